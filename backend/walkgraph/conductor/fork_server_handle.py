"""The service's handle of the process that starts the workers of all its deployments: its fork server, which they are
forked from, or its actor server.

It is started with the first deployment, and again when it ends. The socket is the service's: what conductors ask for
meanwhile waits in it. Workers that were forked don't need the server any more; actors end with it.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from walkgraph.settings import worker_environment
from walkgraph.wire.sockets import socket_path

FORK_SERVER = "walkgraph.worker.fork_server"
SOCKET, LOG = "forks", "forks.log"
_PENDING = 1024
"""Most conductors that wait to be accepted."""
_PAUSE = 1.0
"""Seconds until it is started again."""

_log = logging.getLogger(__name__)


class ForkServerProcess:
    def __init__(self, directory: Path, module: str = FORK_SERVER, words: Sequence[str] = ()) -> None:
        """`directory`: the folder of its socket and its log; made if it isn't there. `module`: what it runs, with these
        `words`. Raises InvalidInput if its path is too long for a socket."""
        self._module, self._words = module, tuple(words)
        self._directory, self.socket = directory, socket_path(directory, SOCKET)
        self._listener: socket.socket | None = None
        self._process: Process | None = None
        self._kept: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """None if it doesn't run."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def running(self) -> Path:
        """Its socket, once the process was started; it may still be importing. Call it on the main thread's loop: the
        process dies with the thread that started it. Raises OSError if it can't be started."""
        if self._kept is None or self._kept.done():
            process = await self._start()
            self._kept = asyncio.create_task(self._keep(process))
        return self.socket

    async def close(self) -> None:
        """Ends it. Deployments must have ended before."""
        if self._kept is not None:
            self._kept.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._kept
        if self._listener is not None:
            self._listener.close()
            self.socket.unlink(missing_ok=True)

    async def _start(self) -> Process:
        listener = self._listener = self._listener or self._listen()
        with (self._directory / LOG).open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", self._module, "--listen", str(listener.fileno()), "--parent", str(os.getpid())),
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                env=worker_environment(),
                stdout=log,
                stderr=log,
                pass_fds=(listener.fileno(),),
            )
        return self._process

    def _listen(self) -> socket.socket:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(str(self.socket))
            self.socket.chmod(0o600)
            listener.listen(_PENDING)
        except OSError:
            listener.close()
            raise
        return listener

    async def _keep(self, process: Process) -> None:
        """Starts it again whenever it ends."""
        try:
            while True:
                code = await process.wait()
                _log.warning("the fork server has ended with status %d and is started again; see %s", code, LOG)
                await asyncio.sleep(_PAUSE)
                with contextlib.suppress(OSError):
                    process = await self._start()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
