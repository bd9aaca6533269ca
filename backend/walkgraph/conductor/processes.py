"""Starts, kills and buries the worker processes of a deployment, which are forked from the service's fork server.

A worker dies with this process: it holds one end of a pipe, the *lifeline*, whose other end only this process has.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from walkgraph.conductor.events import Died, Spawned
from walkgraph.ids import Rank
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_network import Ports

EXIT_SECONDS = 1.0
"""Time that the fork server has to tell the exit code of a worker that is seen to be dead."""


@dataclass(slots=True)
class WorkerProcess:
    start: int
    """Number of this start of its rank."""
    there: bool = False
    """It has been started."""
    pidfd: int | None = None
    """None until it is there, and on another host."""
    waiting: deque[bytes] = field(default_factory=deque[bytes])
    """Encoded messages that wait to be sent to it."""

    def identity(self, rank: Rank) -> bytes:
        return f"{rank}.{self.start}".encode()


class Forking(Protocol):
    """Forks workers."""

    def ask(self, directory: Path, rank: Rank, start: int) -> None:
        """Asks for a worker, which is told later. Raises OSError."""
        ...

    def kill(self, rank: Rank, start: int) -> None:
        """Asks for the end of a worker."""
        ...

    def told(self) -> "Iterator[tuple[forks.FromForkServer, int | None]]":
        """Events since the last call; a worker that was forked comes with its pidfd. Raises ConnectionError
        if no more will be told of the workers that were asked for."""
        ...

    def files(self) -> tuple[int, ...]:
        """Files that can be read when there is more to tell."""
        ...


class ForkLink:
    """A conductor's connection to the fork server, made when a worker is first asked for."""

    def __init__(self, server: Path, ports: Mapping[Rank, Ports] | None = None) -> None:
        """`server`: the socket of the fork server. `ports`: where ranks on other hosts find this process."""
        self._server, self._ports = server, ports or {}
        self._connection: socket.socket | None = None
        self._lifeline, self._held = os.pipe()

    def ask(self, directory: Path, rank: Rank, start: int) -> None:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.setblocking(False)
            try:
                connection.connect(str(self._server))
            except OSError:
                connection.close()
                raise
            self._connection = connection
        forks.send(self._connection, forks.Fork(str(directory), rank, start, self._ports.get(rank)), self._lifeline, 1)

    def kill(self, rank: Rank, start: int) -> None:
        if self._connection is None:
            return
        try:
            forks.send(self._connection, forks.Kill(rank, start))
        except OSError:
            # It doesn't read, or is gone: its workers end with the connection.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def told(self) -> Iterator[tuple[forks.FromForkServer, int | None]]:
        while self._connection is not None:
            try:
                heard = forks.receive_answer(self._connection)
            except BlockingIOError:
                return
            except ConnectionError:
                heard = None
            if heard is None:
                self._connection.close()
                self._connection = None
                raise ConnectionResetError(errno.ECONNRESET, "the fork server is gone")
            message, files = heard
            yield message, files[0] if files else None

    def close(self) -> None:
        """Ends all its workers."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        os.close(self._held)
        os.close(self._lifeline)

    def files(self) -> tuple[int, ...]:
        return () if self._connection is None else (self._connection.fileno(),)


class Processes:
    def __init__(self, directory: Path, forking: Forking) -> None:
        """`directory`: the folder of the deployment's sockets."""
        self._directory, self._forking = directory, forking
        self.alive: dict[Rank, WorkerProcess] = {}
        """Workers that were asked for and have not died."""
        self._events: deque[Spawned | Died] = deque()

    def spawn(self, rank: Rank, start: int) -> None:
        """Asks for a worker. Raises OSError if none can be asked for now."""
        self._forking.ask(self._directory, rank, start)
        self.alive[rank] = WorkerProcess(start)

    def files(self) -> Iterator[int]:
        """Files that can be read when there may be events."""
        yield from self._forking.files()
        yield from (worker.pidfd for worker in self.alive.values() if worker.pidfd is not None)

    @property
    def has_events(self) -> bool:
        """True if `events` has some that no file tells of."""
        return bool(self._events)

    def events(self) -> Iterator[Spawned | Died]:
        """Starts and deaths since the last call."""
        self._listen()
        exited = [rank for rank, worker in self.alive.items() if worker.pidfd is not None and _ready(worker.pidfd)]
        end = time.monotonic() + EXIT_SECONDS
        while any(rank in self.alive for rank in exited):
            self._listen()
            files, left = self._forking.files(), end - time.monotonic()
            if not files or left <= 0:
                break
            if any(rank in self.alive for rank in exited):
                _ready(*files, seconds=left)
        for rank in exited:
            self._bury(rank, None)
        while self._events:
            yield self._events.popleft()

    def kill(self, rank: Rank) -> None:
        """Kills a worker; does nothing if it is dead."""
        worker = self.alive.get(rank)
        if worker is None:
            return
        worker.waiting.clear()
        if worker.there:
            self._end(rank, worker.start, worker.pidfd)
        else:
            # It dies once it is there.
            self._bury(rank, -signal.SIGKILL)

    def end(self) -> None:
        """Kills all workers and waits for the exit of those on this host. Others end with the server's connection."""
        for rank, worker in list(self.alive.items()):
            self.kill(rank)
            if worker.pidfd is not None:
                _ready(worker.pidfd, seconds=None)

    def _listen(self) -> None:
        try:
            for message, pidfd in self._forking.told():
                self._take(message, pidfd)
        except ConnectionError:
            # Those that run here go on. Those that don't run yet never will, and others end with their server.
            for rank in [rank for rank, worker in self.alive.items() if worker.pidfd is None]:
                self._bury(rank, None)

    def _take(self, message: forks.FromForkServer, pidfd: int | None) -> None:
        rank = Rank(message.rank)
        worker = self.alive.get(rank)
        expected = worker is not None and worker.start == message.start
        match message:
            case forks.Exited(code=code):
                if expected:
                    self._bury(rank, code)
            case forks.Forked(pid=0, error=error, reason=reason):
                if expected:
                    self._bury(rank, error, reason)
            case forks.Forked(pid=pid) if worker is not None and expected:
                worker.there, worker.pidfd = True, pidfd
                self._events.append(Spawned(rank, message.start, pid))
            case forks.Forked():
                self._end(rank, message.start, pidfd)
                if pidfd is not None:
                    os.close(pidfd)

    def _end(self, rank: Rank, start: int, pidfd: int | None) -> None:
        if pidfd is None:
            self._forking.kill(rank, start)
        else:
            _kill(pidfd)

    def _bury(self, rank: Rank, code: int | None, reason: str = "") -> None:
        worker = self.alive.pop(rank, None)
        if worker is None:
            return
        if worker.pidfd is not None:
            os.close(worker.pidfd)
        for name in "rank", "shard":
            (self._directory / f"{name}{rank}.{worker.start}").unlink(missing_ok=True)
        self._events.append(Died(rank, worker.start, code, reason))


def _kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _ready(*files: int, seconds: float | None = 0.0) -> bool:
    """True once one of them can be read, False after so many seconds. None: wait however long it takes."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else 1000 * seconds))
