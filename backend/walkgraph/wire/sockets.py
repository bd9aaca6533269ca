"""ZeroMQ sockets: created only here, so that no harmful default of the library remains.

Every socket is bounded (frame size, queue length), never delays an exit, and lives as `ipc://` in the deployment's 0700
directory, where only the same user reaches it.
"""

import errno
import signal
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import zmq

from walkgraph.errors import InvalidInput
from walkgraph.wire.codec import MAX_BYTES, BadMessage, Direction
from walkgraph.wire.fault_points import FaultPoints

MAX_QUEUED = 4096
"""Messages in one direction of one pipe; beyond that a send fails instead of queueing."""
MAX_FEED = 160
"""Packets of telemetry in flight; a slower reader loses some."""
_LONGEST_PATH = 107
"""Bytes of a unix socket's path, terminator excluded."""

Union = TypeVar("Union")
Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


def address(directory: Path, name: str) -> str:
    """The `ipc://` address of a socket in a deployment's directory."""
    return f"ipc://{socket_path(directory, name)}"


def socket_path(directory: Path, name: str) -> Path:
    """The path of a Unix socket. Raises InvalidInput if it is too long for one."""
    path = directory / name
    if len(str(path).encode()) > _LONGEST_PATH:
        raise InvalidInput(f"the socket path is longer than {_LONGEST_PATH} bytes; choose a shorter state directory")
    return path


def configure(socket: "zmq.Socket[Any]") -> None:
    """Set the options that all sockets share."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
    socket.setsockopt(zmq.SNDHWM, MAX_QUEUED)
    socket.setsockopt(zmq.RCVHWM, MAX_QUEUED)
    # Messages for an absent peer would be kept, though it may never come.
    socket.setsockopt(zmq.IMMEDIATE, 1)


def end(context: Context) -> None:
    """Close a context with its sockets; unsent messages are dropped.

    A signal that comes meanwhile, such as a child's end, would make libzmq give up halfway, and pyzmq doesn't try
    again: the context's threads and files would stay. So signals wait until it is closed.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        context.destroy(linger=0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def router(context: Context, bind: str) -> Socket:
    """A socket that addresses its peers by identity; sending to an absent one raises instead of dropping silently."""
    socket = _made(context, zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # A restarted worker has a new identity, so none can take over another's.
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    return _bound(socket, bind)


def dealer(context: Context, connect: str, identity: bytes) -> Socket:
    socket = _made(context, zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity)
    return _connected(socket, connect)


def pair_for(context: Context, bind: str) -> Socket:
    """A socket for one peer, which connects. Nobody else's connection is taken while the peer's lasts: it would get a
    share of the messages."""
    return _bound(_made(context, zmq.PAIR), bind)


def pair(context: Context, connect: str) -> Socket:
    return _connected(_made(context, zmq.PAIR), connect)


def pull(context: Context, bind: str) -> Socket:
    return _bound(_made(context, zmq.PULL), bind)


def push(context: Context, connect: str) -> Socket:
    return _connected(_made(context, zmq.PUSH), connect)


def feed(context: Context, connect: str) -> Socket:
    """A PUSH socket for telemetry: the first packets wait for the connection, and the queue is short."""
    socket = _made(context, zmq.PUSH)
    socket.setsockopt(zmq.IMMEDIATE, 0)
    socket.setsockopt(zmq.SNDHWM, MAX_FEED)
    return _connected(socket, connect)


class Reader(Generic[Union]):
    """Reads a socket without waiting; frames that aren't messages of its direction are counted and skipped.

    A frame may hold several messages. Those that the caller didn't read come first the next time.
    """

    def __init__(self, socket: Socket, direction: Direction[Union], frames: int = 1) -> None:
        """`frames`: 1 for a bare message, 2 if the first frame names the sender."""
        self.socket = socket
        self.rejected = 0
        self._direction = direction
        self._frames = frames
        self._read: deque[tuple[bytes, Union]] = deque()
        """Messages of the last frame that were not delivered yet."""

    @property
    def waiting(self) -> bool:
        """True if messages were read from the socket but not delivered yet; polling the socket doesn't show them."""
        return bool(self._read)

    def drain(self, limit: int = MAX_QUEUED) -> Iterator[tuple[bytes, Union]]:
        """Yield (sender, message) of at most `limit` frames; the sender is empty for one-frame sockets."""
        for _ in range(limit):
            while self._read:
                yield self._read.popleft()
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(frames)
        while self._read:
            yield self._read.popleft()

    def _take(self, frames: list[bytes]) -> None:
        if len(frames) != self._frames:
            self.rejected += 1
            return
        try:
            messages = self._direction.decode_all(frames[-1])
        except BadMessage:
            self.rejected += 1
            return
        sender = frames[0] if self._frames > 1 else b""
        self._read.extend((sender, message) for message in messages)


def offer(socket: Socket) -> Callable[[bytes], bool]:
    """Return a send function that never waits: it returns False if the frame was not accepted."""

    def send(frame: bytes) -> bool:
        try:
            socket.send(frame, zmq.NOBLOCK)
        except zmq.ZMQError:
            # What is offered may be lost, and says so by its number.
            return False
        return True

    return send


def _made(context: Context, kind: int) -> Socket:
    socket = context.socket(kind)
    configure(socket)
    return socket


def _bound(socket: Socket, address: str) -> Socket:
    socket.bind(address)
    return socket


def _connected(socket: Socket, address: str) -> Socket:
    socket.connect(address)
    return socket


class FailingSocket(zmq.Socket[bytes]):
    """A socket with the points `send` and `receive`."""

    faults: FaultPoints

    def send(self, *given: Any, **how: Any) -> Any:
        self._reach("send")
        return cast("Any", super()).send(*given, **how)

    def send_multipart(self, msg_parts: Any, flags: int = 0, *given: Any, **how: Any) -> Any:
        *first, last = msg_parts
        self._reach("send")
        for part in first:
            super().send(part, flags | zmq.SNDMORE)
        return cast("Any", super()).send(last, flags)

    def recv_multipart(self, *given: Any, **how: Any) -> Any:
        # Where nothing has come, nothing is received; what could not be received stays.
        if self.poll(0):
            self._reach("receive")
        return cast("Any", super()).recv_multipart(*given, **how)

    def _reach(self, point: str) -> None:
        if self.faults.due(point):
            raise zmq.ZMQError(errno.ENOMEM)


class FailingContext(zmq.Context[Any]):
    """Makes sockets with fault points, and is itself one."""

    faults: FaultPoints

    def socket(self, socket_type: int, *given: Any, **how: Any) -> Any:
        if self.faults.due("open.socket"):
            raise zmq.ZMQError(errno.EMFILE)
        made = cast("Any", super()).socket(socket_type, FailingSocket)
        made.faults = self.faults
        return made


def context(faults: FaultPoints | None) -> Context:
    """One of its own for each process."""
    if faults is None:
        return zmq.Context()
    made = FailingContext()
    made.faults = faults
    return made
