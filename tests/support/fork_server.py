"""A fork server for all deployments that one process of pytest starts without a service."""

import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from walkgraph.settings import worker_environment


class SharedForkServer:
    """It belongs to no loop, unlike a service's, and ends with this process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wg")
        self.socket = Path(self._folder.name) / "forks"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.socket))
        self.listener.listen(1024)
        file = self.listener.fileno()
        command = ("-m", "walkgraph.worker.fork_server", "--listen", str(file), "--parent", str(os.getpid()))
        self.process = subprocess.Popen([sys.executable, *command], env=worker_environment(), pass_fds=(file,))
        self.pid = self.process.pid

    def close(self) -> None:
        """Removes its socket. The process must have ended."""
        self.listener.close()
        self._folder.cleanup()

    async def running(self) -> Path:
        return self.socket


@cache
def shared_forks() -> SharedForkServer:
    return SharedForkServer()
