"""Bytes <-> messages, one decoder per direction. Anything outside its union raises `BadMessage`.

A frame is one message, or an array of several in the same direction: messages that wait together travel together.
"""

import struct
from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from walkgraph.wire import messages as m

MAX_BYTES = 96 * 1024 * 1024
"""Largest frame a socket takes; media inputs are bounded well below."""

MOST_TOGETHER = 256
"""The most messages in one frame, and the most bytes of several:"""
BYTES_TOGETHER = 64 * 1024

Union = TypeVar("Union")
Decoded = TypeVar("Decoded")
_ARRAYS = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
"""First bytes of arrays in msgpack; a message is a map."""
_ARRAY = struct.Struct(">BH")
_encoder = msgspec.msgpack.Encoder()


class BadMessage(Exception):
    """A frame is not a message of the expected direction; the reader counts it and continues."""


class Direction(Generic[Union]):
    """Decodes the messages of one direction."""

    def __init__(self, union: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[Union] = msgspec.msgpack.Decoder(union)  # type: ignore[arg-type]
        several = list[union]  # type: ignore[valid-type]
        self._several: msgspec.msgpack.Decoder[list[Union]] = msgspec.msgpack.Decoder(several)  # type: ignore[arg-type]

    def decode(self, frame: bytes | memoryview) -> Union:
        """Decode a frame with one message."""
        return self._decoded(self._decoder, frame)

    def decode_all(self, frame: bytes | memoryview) -> list[Union]:
        """Decode any frame; if one of its messages is invalid, all are refused."""
        if len(frame) and frame[0] in _ARRAYS:
            return self._decoded(self._several, frame)
        return [self.decode(frame)]

    @staticmethod
    def _decoded(decoder: "msgspec.msgpack.Decoder[Decoded]", frame: bytes | memoryview) -> "Decoded":
        if len(frame) > MAX_BYTES:
            raise BadMessage(f"a frame of {len(frame)} bytes is over the limit of {MAX_BYTES}")
        try:
            return decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadMessage("a frame is not a message of this direction") from error


def encode(message: m.Message) -> bytes:
    return _encoder.encode(message)


def together(waiting: Sequence[bytes]) -> tuple[int, bytes]:
    """(how many, frame): the leading encoded messages, at least one, that go into one frame."""
    count = size = 0
    for one in islice(waiting, MOST_TOGETHER):
        size += len(one)
        if count and size > BYTES_TOGETHER:
            break
        count += 1
    if count == 1:
        return 1, waiting[0]
    return count, b"".join((_ARRAY.pack(0xDC, count), *islice(waiting, count)))


to_conductor: Direction[m.ToConductor] = Direction(m.ToConductor)
from_conductor: Direction[m.FromConductor] = Direction(m.FromConductor)
to_worker: Direction[m.ToWorker] = Direction(m.ToWorker)
from_worker: Direction[m.FromWorker] = Direction(m.FromWorker)
between_workers: Direction[m.BetweenWorkers] = Direction(m.BetweenWorkers)
