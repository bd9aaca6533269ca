"""Measures the link between two hosts by one TCP connection: its latency and its bandwidth.

    the one that measures -> the other    the token; then orders, each a kind and a count
    ECHO       the other sends the byte back
    TAKE n     the other reads n bytes, then sends a byte
    GIVE n     the other sends n bytes

The token is made for one measurement, and only who has it is answered.
"""

import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import msgspec

from walkgraph.errors import WalkgraphError

TOKEN_BYTES = 32
PATIENCE = 5.0
"""Seconds that an end waits for the other one."""
ECHOES = 8
FIRST_BYTES, MOST_BYTES = 256 * 1024, 64 * 1024 * 1024
TRANSFER_SECONDS = 0.2
"""Time that a transfer shall take, as far as `MOST_BYTES` allows."""
_ORDER = struct.Struct("!cQ")
_PIECE = bytes(1024 * 1024)


T = TypeVar("T")


class _Order:
    ECHO, TAKE, GIVE = b"e", b"t", b"g"


class LinkFailed(WalkgraphError):
    """The other host can't be reached, or doesn't answer as it should."""


class LinkEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a link that answers."""

    address: str
    token: bytes
    port: int = 0


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bandwidth: float
    """Bytes a second, in the slower direction."""
    latency: float
    """Seconds from one end to the other."""


def answer_once(address: str, token: bytes) -> int:
    """Answer the next measurement by this token, in a thread; returns the port. Raises OSError."""
    listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.settimeout(PATIENCE)
    threading.Thread(target=_answer, args=(listener, token), daemon=True).start()
    return listener.getsockname()[1]


def measure(address: str, port: int, token: bytes, clock: Callable[[], float] = time.perf_counter) -> Measured:
    """Measure the link to a host that answers. Raises LinkFailed."""
    try:
        with socket.create_connection((address, port), PATIENCE) as to:
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            to.sendall(token)
            rounds = min(_timed(lambda: _echo(to), clock) for _ in range(ECHOES))
            rates = [
                _rate(lambda count, move=move: move(to, count), rounds, clock) for move in (_have_taken, _have_given)
            ]
    except OSError as error:
        raise LinkFailed(f"the link to {address} can't be measured: {error}") from error
    return Measured(min(rates), rounds / 2)


def _rate(move: Callable[[int], None], rounds: float, clock: Callable[[], float]) -> float:
    """Bytes a second. `move`: transfers so many, and one round on top."""
    found = _bytes_a_second(FIRST_BYTES, move, rounds, clock)
    count = int(min(max(found * TRANSFER_SECONDS, FIRST_BYTES), MOST_BYTES))
    return max(found, _bytes_a_second(count, move, rounds, clock))


def _bytes_a_second(count: int, move: Callable[[int], None], rounds: float, clock: Callable[[], float]) -> float:
    taken = _timed(lambda: move(count), clock)
    # What is left after the round may be nothing where few bytes go over a quick link.
    return count / max(taken - rounds, taken / 2, 1e-9)


def _timed(act: Callable[[], None], clock: Callable[[], float]) -> float:
    begun = clock()
    act()
    return clock() - begun


def _echo(to: socket.socket) -> None:
    to.sendall(_ORDER.pack(_Order.ECHO, 0))
    _read(to, 1)


def _have_taken(to: socket.socket, count: int) -> None:
    to.sendall(_ORDER.pack(_Order.TAKE, count))
    _send(to, count)
    _read(to, 1)


def _have_given(to: socket.socket, count: int) -> None:
    to.sendall(_ORDER.pack(_Order.GIVE, count))
    _drop(to, count)


def _answer(listener: socket.socket, token: bytes) -> None:
    try:
        with closing(listener):
            to, _ = listener.accept()
        with to:
            to.settimeout(PATIENCE)
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if secrets.compare_digest(_read(to, TOKEN_BYTES), token):
                while True:
                    _obey(to, *_ORDER.unpack(_read(to, _ORDER.size)))
    except OSError:
        return  # the other end tells that the measurement failed, or it is over


def _obey(to: socket.socket, kind: bytes, count: int) -> None:
    if count > MOST_BYTES:
        raise ConnectionAbortedError
    match kind:
        case _Order.GIVE:
            _send(to, count)
        case _Order.TAKE:
            _drop(to, count)
            to.sendall(kind)
        case _:
            to.sendall(kind)


def _send(to: socket.socket, count: int) -> None:
    piece = memoryview(_PIECE)
    for start in range(0, count, len(piece)):
        to.sendall(piece[: min(len(piece), count - start)])


def _read(to: socket.socket, count: int) -> bytes:
    """So few bytes that they arrive as they are needed. Raises OSError if there are fewer."""
    found = b""
    while len(found) < count:
        found += _some(to.recv(count - len(found)))
    return found


def _drop(to: socket.socket, count: int) -> None:
    """Raises OSError if there are fewer bytes."""
    buffer = bytearray(len(_PIECE))
    while count:
        count -= _some(to.recv_into(buffer, min(count, len(buffer))))


def _some(got: T) -> T:
    """The bytes that were received. Raises OSError if the other end has closed."""
    if not got:
        raise ConnectionResetError
    return got
