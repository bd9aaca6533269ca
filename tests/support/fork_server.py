"""A fork server for all deployments that one process of pytest starts without a service."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from walkgraph.settings import worker_environment


class SharedForkServer:
    """It belongs to no loop, unlike a service's, and ends with this process."""

    def __init__(self, module: str = "walkgraph.worker.fork_server", *words: str, **environment: str) -> None:
        """`module`: the server's, which takes these `words`, and these variables beside a worker's."""
        self._folder = tempfile.TemporaryDirectory(prefix="wg")
        self.socket = Path(self._folder.name) / "forks"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.socket))
        self.listener.listen(1024)
        file = self.listener.fileno()
        command = ("-m", module, "--listen", str(file), "--parent", str(os.getpid()), *words)
        self.process = subprocess.Popen(
            [sys.executable, *command], env={**worker_environment(), **environment}, pass_fds=(file,)
        )
        self.pid = self.process.pid

    def close(self) -> None:
        """Ends it, and removes its socket."""
        self.process.terminate()
        self.process.wait()
        self.listener.close()
        self._folder.cleanup()

    async def running(self) -> Path:
        return self.socket


def actor_server(address: str, *words: str, **environment: str) -> SharedForkServer:
    """Has workers started as actors of a Ray cluster. `address`: of its head; `local`: of one that is made for it."""
    # Where no token is given, Ray writes one into the user's home.
    token = os.environ.get("RAY_AUTH_TOKEN", secrets.token_hex(32))
    words = "walkgraph.cluster.actor_server", "--address", address, *words
    return SharedForkServer(*words, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token, **environment)


@cache
def shared_forks() -> SharedForkServer:
    return SharedForkServer()
