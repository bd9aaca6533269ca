"""The broadcast of a group's first shard to the others: records, in the order in which all of them ask for them.

    time        a reading of the first shard's clock
    reached     whether its device had reached a mark
    span        the times of one of its launches
    messages    the messages of a turn from the conductor
    arrivals    the messages of a turn from other ranks, with their values inside

A shard that asks for another kind of record than the one that comes has made another choice than the first one. It
ends then, as nothing that it computes could be right.
"""

import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from walkgraph.errors import GroupBroken
from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire.sockets import socket_path

_HEAD = struct.Struct("<cI")
_TIME, _REACHED, _SPAN = struct.Struct("<d"), struct.Struct("<?"), struct.Struct("<dd")
TIME, REACHED, SPAN, MESSAGES, ARRIVALS = b"t", b"r", b"s", b"m", b"a"
_CONNECT_SECONDS = 60.0

T = TypeVar("T")


class ShardsApart(GroupBroken):
    """Two shards of a group are no longer at the same point, or one of them has ended."""


def address(directory: Path, rank: Rank, start: int) -> Path:
    """The path of the socket on which a shard listens to its group's first one."""
    return socket_path(directory, f"shard{rank}.{start}")


class Broadcast:
    """The first shard's end, which writes to all others."""

    def __init__(self, targets: Sequence[Path]) -> None:
        """Connects. Raises ShardsApart for a shard that has ended."""
        self._sockets = [_connected(path) for path in targets]
        self._encoder = msgspec.msgpack.Encoder()

    def time(self, now: float) -> None:
        self._write(TIME, _TIME.pack(now))

    def reached(self, reached: bool) -> None:
        self._write(REACHED, _REACHED.pack(reached))

    def span(self, began: float, finished: float) -> None:
        self._write(SPAN, _SPAN.pack(began, finished))

    def messages(self, messages: Sequence[m.ToWorker]) -> None:
        self._write(MESSAGES, self._encoder.encode(messages))

    def arrivals(self, messages: Sequence[m.BetweenWorkers]) -> None:
        """`messages`: with their values inside."""
        self._write(ARRIVALS, self._encoder.encode(messages))

    def close(self) -> None:
        for one in self._sockets:
            one.close()

    def _write(self, kind: bytes, body: bytes) -> None:
        record = _HEAD.pack(kind, len(body)) + body
        for one in self._sockets:
            try:
                one.sendall(record)
            except OSError as error:
                raise ShardsApart("another shard of its group has ended") from error


class Receiver:
    """Another shard's end."""

    def __init__(self, path: Path) -> None:
        """Listens at `path`. `accept` waits for the first shard."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._path = path
        self._messages, self._arrivals = _Records(m.ToWorker), _Records(m.BetweenWorkers)
        self._socket: socket.socket | None = None

    def accept(self) -> None:
        """Wait for the first shard. Raises ShardsApart if it does not come."""
        if self._socket is not None:
            self._socket.close()
        self._listener.settimeout(_CONNECT_SECONDS)
        try:
            self._socket, _ = self._listener.accept()
        except OSError as error:
            raise ShardsApart("the first shard of its group did not come") from error
        self._socket.settimeout(None)

    def fileno(self) -> int:
        """Readable when a record comes."""
        return self._connection.fileno()

    def time(self) -> float:
        return float(_TIME.unpack(self._read(TIME))[0])

    def reached(self) -> bool:
        return bool(_REACHED.unpack(self._read(REACHED))[0])

    def span(self) -> tuple[float, float]:
        began, finished = _SPAN.unpack(self._read(SPAN))
        return float(began), float(finished)

    def messages(self) -> list[m.ToWorker]:
        return self._messages.decode(self._read(MESSAGES))

    def arrivals(self) -> list[m.BetweenWorkers]:
        return self._arrivals.decode(self._read(ARRIVALS))

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        if self._socket is not None:
            self._socket.close()

    @property
    def _connection(self) -> socket.socket:
        if self._socket is None:
            raise ShardsApart("the first shard of its group has not come yet")
        return self._socket

    def _read(self, wanted: bytes) -> bytes:
        kind, length = _HEAD.unpack(self._exactly(_HEAD.size))
        if kind != wanted:
            raise ShardsApart(f"the first shard of its group told `{kind.decode()}` where `{wanted.decode()}` was due")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        found = bytearray(length)
        view = memoryview(found)
        while view:
            try:
                count = self._connection.recv_into(view)
            except OSError as error:
                raise ShardsApart("the first shard of its group has ended") from error
            if not count:
                raise ShardsApart("the first shard of its group has ended")
            view = view[count:]
        return bytes(found)


class _Records(Generic[T]):
    def __init__(self, union: object) -> None:
        several = list[union]  # type: ignore[valid-type]
        self._decoder: msgspec.msgpack.Decoder[list[T]] = msgspec.msgpack.Decoder(several)  # type: ignore[arg-type]

    def decode(self, body: bytes) -> list[T]:
        return self._decoder.decode(body)


def _connected(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(_CONNECT_SECONDS)
    try:
        found.connect(str(path))
    except OSError as error:
        found.close()
        raise ShardsApart("another shard of its group has ended") from error
    found.settimeout(None)
    return found
