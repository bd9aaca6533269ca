"""ZeroMQ sockets: created only here, so that no harmful default of the library remains.

Every socket is bounded (frame size, queue length), never delays an exit, and lives as `ipc://` in the deployment's 0700
directory, where only the same user reaches it. For processes on other hosts it may also `listen` on TCP, at the address
of one interface and only for peers that have the deployment's keys (CURVE). Others are refused and counted. There
both ends ask each other all the time whether they are still there, as a cut cable tells nobody: ZeroMQ's own threads
ask and answer, however busy Python is.
"""

import contextlib
import errno
import signal
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import zmq
from zmq.auth.thread import ThreadAuthenticator

from walkgraph.errors import InvalidInput
from walkgraph.wire.codec import MAX_BYTES, BadMessage, Direction
from walkgraph.wire.fault_points import FaultPoints
from walkgraph.wire.processes.host_network import Keys, in_url

MAX_QUEUED = 4096
"""Messages in one direction of one pipe; beyond that a send fails instead of queueing."""
MAX_FEED = 160
"""Packets of telemetry in flight; a slower reader loses some."""
HEARTBEAT_SECONDS = 0.5
"""How often the ends of a connection between hosts ask each other."""
SILENT_SECONDS = 4.5
"""A connection between hosts ends if nothing has come for so long after a question. A cut of more than five seconds
ends it: the next question is at most `HEARTBEAT_SECONDS` away, and has no answer. A cut of up to three seconds doesn't:
what was sent meanwhile is sent again 0.2, 0.6, 1.4 and 3.0 s after its first time, as TCP doubles its pauses, so both
ends have heard by 3.7 s where a round trip takes a few milliseconds."""
_LONGEST_PATH = 107
"""Bytes of a unix socket's path, terminator excluded."""
_TCP = "tcp://"
_DOMAIN = "walkgraph"
"""The name under which peers are judged; without one, whoever knows the public key could connect."""
_PARTED = zmq.EVENT_DISCONNECTED
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL

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
    """`partings` tells when it has lost a peer on another host."""
    socket = _made(context, zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity)
    return _connected(socket, connect, _PARTED)


def pair_for(context: Context, bind: str) -> Socket:
    """A socket for one peer, which connects. Nobody else's connection is taken while the peer's lasts: it would get a
    share of the messages."""
    return _bound(_made(context, zmq.PAIR), bind)


def pair(context: Context, connect: str) -> Socket:
    return _connected(_made(context, zmq.PAIR), connect)


def pull(context: Context, bind: str) -> Socket:
    return _bound(_made(context, zmq.PULL), bind)


def unbound_pull(context: Context) -> Socket:
    """Stands for the address of a socket that will only `listen`."""
    return _made(context, zmq.PULL)


def listen(socket: Socket, address: str) -> int:
    """Let processes on other hosts connect, which have the keys of the socket's context: at this IP address, and no
    other. Returns the port, which the system chooses. Raises InvalidInput for an address of several interfaces."""
    _show_keys(socket)
    _ask_peers(socket)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, _DOMAIN)
    # Nobody is let in while nobody judges.
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.get_monitor_socket(_REFUSED)
    shown = in_url(address)
    socket.setsockopt(zmq.IPV6, int(":" in shown))
    socket.bind(f"{_TCP}{shown}:*")
    return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def push(context: Context, connect: str) -> Socket:
    """`partings` tells when it has lost a peer on another host."""
    return _connected(_made(context, zmq.PUSH), connect, _PARTED)


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
        """Frames, and peers that were refused."""
        self.refusals = refusals(socket)
        """To be polled with the socket."""
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
        if self.refusals is not None:
            self.rejected += drop(self.refusals)
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


def refusals(socket: Socket) -> Socket | None:
    """Has a message for each peer that a socket has refused; None if it doesn't `listen`. libzmq waits for its
    reader."""
    return socket.get_monitor_socket() if socket.getsockopt(zmq.CURVE_SERVER) else None


def partings(socket: Socket) -> Socket | None:
    """Has a message once a `dealer` or a `push` has lost its peer, with what was under way; None if that is on this
    host. Close it with the socket."""
    return socket.get_monitor_socket() if socket.getsockopt(zmq.HEARTBEAT_IVL) else None


def drop(socket: Socket) -> int:
    """Drop all messages that have come; returns how many."""
    count = 0
    with contextlib.suppress(zmq.Again):
        while socket.recv_multipart(zmq.NOBLOCK):
            count += 1
    return count


def _made(context: Context, kind: int) -> Socket:
    socket = context.socket(kind)
    configure(socket)
    return socket


def _bound(socket: Socket, address: str) -> Socket:
    socket.bind(address)
    return socket


def _connected(socket: Socket, address: str, told: int = 0) -> Socket:
    """`told`: the events of a connection to another host that have a reader."""
    if address.startswith(_TCP):
        keys = _show_keys(socket)
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, keys.public)
        _ask_peers(socket)
        socket.setsockopt(zmq.IPV6, int("[" in address))
        if told:
            socket.get_monitor_socket(told)
    socket.connect(address)
    return socket


def _ask_peers(socket: Socket) -> None:
    """Have both ends of a socket's connections find out when the other one is gone."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, round(1000 * HEARTBEAT_SECONDS))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * SILENT_SECONDS))


def _show_keys(socket: Socket) -> Keys:
    """Have the socket show its context's keys to its peers over TCP. Raises InvalidInput if there are none."""
    context = cast("Any", socket).context
    keys = context.keys if isinstance(context, DeploymentContext) else None
    if keys is None:
        raise InvalidInput("processes of a deployment without keys don't talk over a network; deploy again")
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
    return keys


class DeploymentContext(zmq.Context[Any]):
    """Makes the sockets of a deployment's process. With keys, they may be reached from other hosts, by whoever has the
    same."""

    keys: Keys | None = None
    judge: ThreadAuthenticator | None = None
    """Answers libzmq, on a thread of its own, whether a peer may connect."""

    def admit(self, keys: Keys) -> None:
        self.keys, self.judge = keys, ThreadAuthenticator(self)
        self.judge.configure_curve_callback(_DOMAIN, self)
        self.judge.start()

    def callback(self, domain: str, key: bytes) -> bool:
        """The judge's question: may a peer with this public key connect?"""
        return self.keys is not None and key.decode() == self.keys.public

    def destroy(self, linger: int | None = None) -> None:
        if self.judge is not None:
            self.judge.stop()
        super().destroy(linger)


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


class FailingContext(DeploymentContext):
    """Makes sockets with fault points, and is itself one."""

    faults: FaultPoints

    def socket(self, socket_type: int, *given: Any, **how: Any) -> Any:
        if "socket_class" in how:  # the judge's own
            return cast("Any", super()).socket(socket_type, *given, **how)
        if self.faults.due("open.socket"):
            raise zmq.ZMQError(errno.EMFILE)
        made = cast("Any", super()).socket(socket_type, FailingSocket)
        made.faults = self.faults
        return made


def context(faults: FaultPoints | None, keys: Keys | None = None) -> Context:
    """One of its own for each process. `keys`: for its peers on other hosts; None: it has none."""
    if faults is not None:
        made = FailingContext()
        made.faults = faults
    elif keys is not None:
        made = DeploymentContext()
    else:
        return zmq.Context()
    if keys is not None:
        made.admit(keys)
    return made
