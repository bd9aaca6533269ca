"""Bytes <-> messages. One decoder a direction; what does not fit its union raises `BadMessage`."""

from typing import Generic, TypeVar

import msgspec

from walkgraph.wire import messages as m

MAX_BYTES = 96 * 1024 * 1024
"""Largest frame a socket takes; media inputs are bounded well below."""

Union = TypeVar("Union")
_encoder = msgspec.msgpack.Encoder()


class BadMessage(Exception):
    """A frame that is no message of the expected direction; the reader counts it and goes on."""


class Direction(Generic[Union]):
    """Decodes the messages of one direction."""

    def __init__(self, union: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[Union] = msgspec.msgpack.Decoder(union)  # type: ignore[arg-type]

    def decode(self, frame: bytes | memoryview) -> Union:
        if len(frame) > MAX_BYTES:
            raise BadMessage(f"a frame of {len(frame)} bytes is over the limit of {MAX_BYTES}")
        try:
            return self._decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadMessage("a frame is no message of this direction") from error


def encode(message: m.Message) -> bytes:
    return _encoder.encode(message)


to_conductor: Direction[m.ToConductor] = Direction(m.ToConductor)
from_conductor: Direction[m.FromConductor] = Direction(m.FromConductor)
to_worker: Direction[m.ToWorker] = Direction(m.ToWorker)
from_worker: Direction[m.FromWorker] = Direction(m.FromWorker)
between_workers: Direction[m.BetweenWorkers] = Direction(m.BetweenWorkers)
