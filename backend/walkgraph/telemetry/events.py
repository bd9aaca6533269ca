"""What is told about running work, as data. Times are seconds of the host's monotonic clock, the same in all processes.

Events of one source are numbered without gaps; a reader that sees a gap knows how many were dropped, and so does the
source, which counts them.
"""

from typing import Literal

import msgspec

from walkgraph.ids import Rank, RunId

MAX_BYTES = 1024 * 1024
"""Largest packet."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class RunPhase(Event, frozen=True, tag="run"):
    """From the conductor: a run goes on to another phase."""

    run: RunId
    task: str
    phase: Literal["queued", "started", "first_output", "finished"]
    at: float
    error: str | None = None
    """Code of the error it ended with."""


class CallSpan(Event, frozen=True, tag="call"):
    """One call of a node: one iteration of one run. Level `full`."""

    run: RunId
    rank: Rank
    walk: str
    node: str
    step: int
    iteration: tuple[int, ...]
    ready: float
    launched: float
    finished: float
    batch: int
    """Calls in its forward."""
    batch_number: int
    """Calls of one rank with the same number were one forward."""
    failed: bool = False


class Activity(Event, frozen=True, tag="activity"):
    """What a node did for a run on one rank since the last packet. Level `summary`."""

    run: RunId
    rank: Rank
    node: str
    walk: str
    iteration: tuple[int, ...]
    """Of the latest call."""
    calls: int
    """0: of a loop on the device that has begun, whose calls are told once it has ended."""
    busy: float
    queued: float
    launched: float
    """Of the first call counted here."""
    finished: float
    """Of the last one."""
    batch: int
    """Largest batch one of these calls was in."""


class Transfer(Event, frozen=True, tag="transfer"):
    """Tensors that left a rank for a peer."""

    run: RunId
    source: Rank
    target: Rank
    edge: int
    """Edge of the Walk, or stream, by its index in the plan; -1 for neither."""
    stream: bool
    step: int
    nbytes: int
    at: float


class RankGauge(Event, frozen=True, tag="rank"):
    rank: Rank
    at: float
    runs: int
    pages_free: int
    pages_total: int
    out_tickets: int
    rejected: int
    """Frames that were no messages, since the start."""


class QueueGauge(Event, frozen=True, tag="queue"):
    at: float
    running: int
    waiting: int
    reserved: dict[Rank, int]
    """Pages promised to admitted runs."""
    budget: dict[Rank, int]


Any = RunPhase | CallSpan | Activity | Transfer | RankGauge | QueueGauge


class Packet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of one source, in their order."""

    deployment: str
    """As its spec calls it to telemetry: with its version."""
    source: str
    """`conductor`, or `rank 0` and so on with the number of its start: `rank 0.3`."""
    first: int
    """Number of the first event; the others follow without gaps."""
    dropped: int
    """Events of this source that were never sent, in all."""
    wall: float
    """What to add to the events' times for seconds since 1970."""
    events: tuple[Any, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Packet)


def encode(packet: Packet) -> bytes:
    return _encoder.encode(packet)


def decode(frame: bytes) -> Packet:
    """Raises msgspec.DecodeError for a frame that is no packet."""
    if len(frame) > MAX_BYTES:
        raise msgspec.DecodeError("a packet is over the limit")
    return _decoder.decode(frame)
