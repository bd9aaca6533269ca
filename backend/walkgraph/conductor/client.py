"""The control service's handle of a running deployment: one child process, messages both ways, and its exit code.

The service binds the socket, so that a message sent before the conductor is up waits instead of being lost.
"""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import zmq

from walkgraph.errors import Overloaded, WalkgraphError
from walkgraph.ids import RunId
from walkgraph.settings import worker_environment
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.looped import Looped
from walkgraph.wire.processes import posting
from walkgraph.wire.processes.posting import PostOffice, PostSender
from walkgraph.wire.spec import LOG, SERVICE_SOCKET, DeploymentSpec, Limits, write_spec

__all__ = ["DeploymentProcess", "DeploymentSpec", "Limits"]

_log = logging.getLogger(__name__)

_FILES = 64
"""Files that the service opens at most for one deployment: pipes, sockets, and a connection of each process."""
_MOST_POSTED = 256
"""Files of requests that the conductor has at most, as a process may open only so many. Beyond that, values go inside
their messages."""
_STOP_SECONDS = 5.0
"""Time that a conductor has to stop its workers after `Stop`."""
_LAST_MESSAGE_SECONDS = 2.0
"""Time that the last message of a conductor may take through the socket's own thread, after the conductor's exit."""


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _check_files() -> None:
    """Raises OSError if this process may open too few files. ZeroMQ ends the whole process where a peer connects and
    it may open no more."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft - open_files() < _FILES:
        raise OSError(errno.EMFILE, f"a deployment needs {_FILES} files that can be opened")


class ForkServing(Protocol):
    """The process that workers are forked from: `ForkServerProcess`."""

    async def running(self) -> Path:
        """Its socket. Raises OSError if it can't be started."""
        ...


class DeploymentProcess:
    """A conductor with its workers. Start it with `await DeploymentProcess.start(...)` on the main thread's loop: the
    child dies with the thread that started it."""

    pid: int
    status: m.Status | None
    """The last status received; `on_message` gets it too."""

    @classmethod
    async def start(
        cls,
        fork_server: ForkServing,
        directory: Path,
        spec: DeploymentSpec,
        on_message: Callable[[m.FromConductor], None],
        on_exit: Callable[[int], None],
    ) -> "DeploymentProcess":
        """Writes the spec into `directory` (mode 0700, with a short path, since sockets lie in it) and starts the
        conductor. Its workers are forked from `fork_server`.

        `on_message` and `on_exit` (with the exit code) are called on this loop, one at a time, in the order of events;
        nothing follows `on_exit`. Runs that are unfinished then are lost: the caller must tell their clients.
        Raises InvalidInput if the path is too long for a socket, OSError if no process can be started.
        """
        _check_files()
        forks = await fork_server.running()
        write_spec(directory, spec)
        sockets.socket_path(directory, SERVICE_SOCKET)
        with (directory / LOG).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "walkgraph.conductor.process", "--dir", str(directory), "--forks", str(forks)),
                *("--parent", str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                env=worker_environment(),
                stdout=log,
                stderr=log,
            )
        try:
            return cls(process, directory, on_message, on_exit)
        except (zmq.ZMQError, OSError) as error:
            process.kill()
            await process.wait()
            raise OSError(error.errno, "no socket for the deployment's process") from error

    def __init__(
        self,
        process: Process,
        directory: Path,
        on_message: Callable[[m.FromConductor], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self.pid = process.pid
        self.status = None
        self._rejected = 0
        self._process = process
        self._on_message, self._on_exit = on_message, on_exit
        self._directory = directory
        self._post = PostOffice(directory / posting.SERVICE)
        self._senders: dict[str, PostSender] = {}
        """The ways for large values to its processes, by the names of their sockets."""
        self._context: sockets.Context = zmq.Context()
        try:
            address = sockets.address(directory, SERVICE_SOCKET)
            self._looped = Looped(sockets.pair_for(self._context, address), self._take)
        except zmq.ZMQError:
            self._context.destroy(linger=0)
            self._post.close()
            raise
        self._waiting_files: dict[RunId, int] = {}
        """Unfinished run -> the files of its request that the conductor has."""
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[bytes] = deque()
        self._gathers = False
        """A message was sent in this turn of the loop."""
        self._idle = asyncio.Event()
        self._stopped = asyncio.Event()
        self._ended = asyncio.create_task(self._watch())

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def rejected(self) -> int:
        """Malformed frames from the conductor and its workers."""
        return self._rejected + self._post.rejected

    def send(self, message: m.ToConductor) -> None:
        """Sends a message without waiting. The first of a turn of the loop leaves at once, so that what else its caller
        does delays no run; those behind it leave together. Raises `Overloaded` if the conductor has stopped reading."""
        if self._looped.waiting + len(self._outbox) >= sockets.MAX_QUEUED:
            raise Overloaded("the deployment takes no more messages; try again shortly")
        message = self._posted(message)
        self._outbox.append(codec.encode(message))
        if not self._gathers:
            self._flush()
            self._gathers = True
            self._loop.call_soon(self._turned)

    async def stop(self, grace: float) -> None:
        """Refuses new runs, lets the others finish for up to `grace` seconds, and ends the rest with `shutting_down`.

        Returns when all processes are gone and `on_exit` was called. A second call with less grace shortens the first.
        """
        # Before its first status it has no runs, and may take seconds to read a message.
        if self.alive and self.status is not None:
            with contextlib.suppress(Overloaded):
                self.send(m.Drain())
            if grace > 0:
                await self._drained(grace)
            with contextlib.suppress(Overloaded):
                self.send(m.Stop())
            await asyncio.wait([self._ended], timeout=_STOP_SECONDS)
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await asyncio.shield(self._ended)

    async def _drained(self, grace: float) -> None:
        self._idle.clear()
        idle = asyncio.create_task(self._idle.wait())
        await asyncio.wait([idle, self._ended], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()

    async def _watch(self) -> None:
        code = await self._process.wait()
        if code == 0:
            # It says last that it has stopped; the socket's thread may not have read that far yet.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), _LAST_MESSAGE_SECONDS)
        # Closing reads the messages that are still in the socket.
        self._looped.close()
        for one in (self._post, *self._senders.values()):
            one.close()
        sockets.end(self._context)
        self._on_exit(code)

    def _posted(self, message: m.ToConductor) -> m.ToConductor:
        """The message, with its large values posted."""
        match message:
            case m.Submit() if sum(self._waiting_files.values()) < _MOST_POSTED:
                sender = self._sender(posting.CONDUCTOR)
                before, posted = sender.count, sender.request(message)
                if sender.count > before:
                    self._waiting_files[message.run] = sender.count - before
                return posted
            case m.TaskPiece() | m.TaskAnswer():
                return self._sender(posting.rank_office(message.rank)).answer(message)
            case _:
                return message

    def _sender(self, office: str) -> PostSender:
        if office not in self._senders:
            self._senders[office] = PostSender(self._directory / office, f"service>{office}")
        return self._senders[office]

    def _turned(self) -> None:
        self._gathers = False
        self._flush()

    def _flush(self) -> None:
        while self._outbox and self.alive:
            count, frame = codec.together(self._outbox)
            self._looped.send(frame)
            for _ in range(count):
                self._outbox.popleft()

    def _take(self, frames: list[bytes]) -> None:
        try:
            messages = codec.from_conductor.decode_all(frames[-1])
        except codec.BadMessage:
            self._rejected += 1
            return
        for message in messages:
            if isinstance(message, m.Status):
                self.status = message
                if message.state == "draining" and message.running == 0 and message.waiting == 0:
                    self._idle.set()
                if message.state == "stopped":
                    self._stopped.set()
            try:
                self._on_message(self._fetched(message))
            except Exception:  # noqa: BLE001 (it is logged, and ends nobody else's run)
                # The other messages of the frame belong to other runs.
                _log.exception("a message of the deployment could not be handled")

    def _fetched(self, message: m.FromConductor) -> m.FromConductor:
        """The message with the bytes of its posted values. A run ends where they are lost."""
        match message:
            case m.Output() | m.CallTask():
                try:
                    return self._post.fetch(message)
                except WalkgraphError as error:
                    with contextlib.suppress(Overloaded):
                        self.send(m.Abort(run=message.run))
                    return m.Finished(run=message.run, error=error.info())
            case m.Finished() | m.Waits():
                self._post.forget(message.run)
                self._waiting_files.pop(message.run, None)
            case m.Rejected():
                self._waiting_files.pop(message.run, None)
            case _:
                pass
        return message
