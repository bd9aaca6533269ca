"""`python -m walkgraph.worker.fork_server --listen F --parent P`: the process that workers are forked from.

Imports take most of a worker's start. They happen once, here, and a worker is a fork of this process, which starts in
some 20 ms and shares its memory. It serves the conductors that connect to the socket `F`. A worker dies with its
conductor and not with this process, and this process dies with the service.

Nothing here may start threads or touch a GPU: a fork has neither.
"""

import argparse
import errno
import gc
import importlib
import os
import select
import signal
import site
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from walkgraph.ids import Rank
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.common import die_at_end_of, die_with, named

COLLECTIONS = (5_000, 20, 1_000)
"""Thresholds of a rank's garbage collections. A full one takes up to a tenth of a second, so it is made in idle moments
(`WorkerLoop`), and amid runs only after a hundred million allocations."""


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    rank: int
    start: int
    connection: socket.socket
    """The connection to the conductor that asked for it."""


class ForkServer:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._connections: dict[int, socket.socket] = {}
        self._children: dict[int, _Child] = {}
        """Children by pidfd."""
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def serve(self) -> forks.Fork:
        """Forks what conductors ask for. Returns in the new process, with its assignment."""
        while True:
            for file, _ in self._poll.poll():
                if file in self._children:
                    self._bury(file)
                elif file in self._connections:
                    assigned = self._hear(self._connections[file])
                    if assigned is not None:
                        return assigned
                elif file == self._listener.fileno():
                    self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and (self._connections or self._children):
                # Who waits is accepted once a file is closed. Until then the listener would never let `poll` wait.
                self._poll.unregister(self._listener)
            return
        connection.setblocking(False)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)

    def _hear(self, connection: socket.socket) -> forks.Fork | None:
        """Reads one message. Returns it in the process that it asked for."""
        try:
            heard = forks.receive_order(connection)
        except BlockingIOError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            heard = None
        message, files = heard or (None, [])
        try:
            match message:
                case forks.Fork() if len(files) == forks.FILES:
                    return self._fork(message, files, connection)
                case forks.Kill():
                    self._kill(message, connection)
                case _:
                    self._close(connection)
            return None
        finally:
            for file in files:
                os.close(file)

    def _fork(self, message: forks.Fork, files: list[int], connection: socket.socket) -> forks.Fork | None:
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(connection, forks.Forked(message.rank, message.start, 0, error.errno or 1))
            return None
        if not pid:
            self._become(files[forks.LIFELINE], files[forks.OUTPUT])
            named(f"rank {message.rank}")
            return message
        try:
            # It can't be reaped before this, so the number is still its own.
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # no more files: nobody could hear of its end
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._tell(connection, forks.Forked(message.rank, message.start, 0, error.errno or 1))
            return None
        self._children[pidfd] = _Child(pid, message.rank, message.start, connection)
        self._poll.register(pidfd, select.POLLIN)
        if not self._tell(connection, forks.Forked(message.rank, message.start, pid), pidfd):
            os.kill(pid, signal.SIGKILL)  # its conductor doesn't know of it
        return None

    def _kill(self, message: forks.Kill, connection: socket.socket) -> None:
        for pidfd, child in self._children.items():
            if (child.rank, child.start, child.connection) == (message.rank, message.start, connection):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def _become(self, lifeline: int, output: int) -> None:
        """Turns this process, which has just been forked, into a worker: it keeps none of the server's files."""
        self._listener.close()
        for connection in self._connections.values():
            connection.close()
        for pidfd in self._children:
            os.close(pidfd)
        die_at_end_of(lifeline)
        _find_new_packages()
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())

    def _bury(self, pidfd: int) -> None:
        child = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        self._poll.register(self._listener, select.POLLIN)
        _, status = os.waitpid(child.pid, 0)
        self._tell(child.connection, forks.Exited(child.rank, child.start, os.waitstatus_to_exitcode(status)))

    def _tell(self, connection: socket.socket, message: forks.FromForkServer, *files: int) -> bool:
        """Sends a message. A conductor that doesn't read is no longer served: returns False then."""
        if connection.fileno() == -1:
            return False
        try:
            forks.send(connection, message, *files)
        except OSError:
            self._close(connection)
            return False
        return True

    def _close(self, connection: socket.socket) -> None:
        del self._connections[connection.fileno()]
        self._poll.unregister(connection)
        connection.close()
        self._poll.register(self._listener, select.POLLIN)


def _find_new_packages() -> None:
    """Have imports find packages that were installed since this interpreter began."""
    importlib.invalidate_caches()
    for folder in site.getsitepackages():
        site.addsitedir(folder)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--listen", type=int, required=True)
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args()
    # Before torch is imported, which takes seconds.
    die_with(given.parent)
    signal.signal(signal.SIGTERM, _leave)

    # All that imports make stays: to look for garbage in it again and again takes a tenth of the time. Frozen objects
    # are not written to, so forks share their memory.
    gc.disable()
    from walkgraph.worker.serve import serve

    gc.freeze()
    assigned = ForkServer(socket.socket(fileno=given.listen)).serve()
    gc.set_threshold(*COLLECTIONS)
    gc.enable()
    serve(Path(assigned.directory), Rank(assigned.rank), assigned.start, assigned.ports)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
