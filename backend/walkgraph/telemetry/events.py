"""What is told about running work, as data. Times are seconds of the host's monotonic clock, the same in all processes;
what a device has timed is aligned to it.

    summary   RunPhase, Activity, Looping, LoopEnded, Transfer (summed), RankGauge, QueueGauge
    full      and Forward, Launch, Arrival; Transfer one by one; no Activity and no Looping
    asked     Sample: at any level, where a tap, a held call or a recorded run asks for it

Events of one source are numbered without gaps; a reader that sees a gap knows how many were dropped, and so does the
source, which counts them.
"""

from typing import Literal

import msgspec

from walkgraph.ids import Rank, RunId

MAX_BYTES = 1024 * 1024
"""Largest packet."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", gc=False):
    """No cycle goes through one, and a process may keep a hundred thousand: a collection needn't look at them."""


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


class RunPhase(Event, frozen=True, tag="run"):
    """From the conductor: a run goes on to another phase."""

    run: RunId
    task: str
    phase: Literal["queued", "started", "first_output", "finished"]
    at: float
    error: str | None = None
    """Code of the error it ended with."""


# ── work, level `full` ──────────────────────────────────────────────────────────────────────────


class Forward(Event, frozen=True, tag="forward"):
    """One forward of a rank, outside of the loops on its device: a batch of calls, told by columns, a row each. A long
    call that is served in parts has a row in the forward of each."""

    rank: Rank
    number: int
    """Counts the forwards and launches of a rank."""
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    nodes: tuple[str, ...]
    uses: tuple[str, ...]
    """Of these nodes in their Walks, by name."""
    steps: tuple[int, ...]
    iterations: tuple[tuple[int, ...], ...]
    ready: tuple[float, ...]
    """When a call had all its inputs, and was queued; of a later part, when the one before it was done."""
    taken: float
    """The batch was formed: its tensors and tables are prepared from here."""
    launched: float
    """The host has handed all of it to the device."""
    started: float
    """On the device; on a CPU, where it is taken."""
    finished: float
    """On the device; on a CPU, where the host has done it."""
    pages_free: int = 0
    """Of the rank's paged states, after it."""
    failed: tuple[int, ...] = ()
    """Rows."""


class Launch(Event, frozen=True, tag="launch"):
    """`count` iterations of loops on the device, one loop a row: those of one name in one Walk. A launch of several
    such is told by several events with one number."""

    rank: Rank
    number: int
    loop: str
    nodes: tuple[str, ...]
    """Those that these iterations call: a captured launch does not tell their times apart."""
    uses: tuple[str, ...]
    """Of these nodes, in the order of their calls."""
    count: int
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    steps: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]
    """Indices of the loops around."""
    first: tuple[int, ...]
    """Its first iteration here."""
    ready: tuple[float, ...]
    """When that could have been launched: a loop's first when it had all its inputs, and waited for a row; another when
    the one before it was over, or a reader had room for what it gives."""
    taken: float
    launched: float
    started: float
    finished: float
    pages_free: int = 0
    spans: bool = False
    """Parts of the loops run on other ranks, for which the launch waits on its device: its time is theirs, too."""


# ── work, level `summary` ───────────────────────────────────────────────────────────────────────


class Activity(Event, frozen=True, tag="activity"):
    """What a use of a node did for a run on one rank since the last packet."""

    run: RunId
    rank: Rank
    node: str
    use: str
    walk: str
    iteration: tuple[int, ...]
    """Of the latest call."""
    calls: int
    busy: float
    """Seconds of its forwards, from their start to their end."""
    queued: float
    """Seconds from ready to started."""
    launched: float
    """When the first call counted here started."""
    finished: float
    """When the last one ended."""
    batch: int
    """Largest batch one of these calls was in."""


class Looping(Event, frozen=True, tag="looping"):
    """Where the loops of one name in one Walk are now on a rank's device, told anew as long as they move; what a loop
    came to is told once it has ended: `LoopEnded.work`."""

    rank: Rank
    loop: str
    nodes: tuple[str, ...]
    uses: tuple[str, ...]
    """As those of `Launch`: of all its launches since the last event of this loop."""
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    iterations: tuple[tuple[int, ...], ...]
    """Of each run's loop: those that are done; indices of the loops around come first."""
    launches: int
    """Since the last event of this loop."""
    calls: int
    """Iterations in these launches, over all runs."""
    busy: float
    """Seconds of these launches."""
    batch: int
    """Of the last launch."""
    at: float
    spans: bool = False
    """As that of `Launch`."""


class LoopWork(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a loop came to that a device ran whole. Its time is the loop's: nothing tells apart what its nodes took."""

    nodes: tuple[str, ...]
    uses: tuple[str, ...]
    """Of these nodes, one each."""
    calls: tuple[int, ...]
    """Of each use."""
    spans: bool
    """As that of `Launch`."""
    busy: float
    """Seconds of its launches, with the other loops in them."""
    queued: float
    """Seconds that it waited for rows."""
    began: float
    batch: int
    """Of its last launch."""


class LoopEnded(Event, frozen=True, tag="loop_ended"):
    """A loop on the device is over for a run. At every level but `off`."""

    run: RunId
    rank: Rank
    walk: str
    loop: str
    step: int
    iteration: tuple[int, ...]
    """Indices of the loops around."""
    iterations: int
    reason: Literal["times", "until", "error"]
    at: float
    work: LoopWork | None = None
    """On `summary`; on `full` its launches have told."""


# ── values between ranks ────────────────────────────────────────────────────────────────────────


class Transfer(Event, frozen=True, tag="transfer"):
    """Tensors that left a rank for a peer. On `summary` those of one edge since the last packet are summed: `at` and
    `key` are those of the last."""

    run: RunId
    source: Rank
    target: Rank
    walk: str
    edge: int
    """Edge of the Walk, or stream, by its index in the plan."""
    stream: bool
    step: int
    key: tuple[int, ...]
    """Loop indices of the value; of a stream, the number of the first item among the step's."""
    transport: str
    count: int
    nbytes: int
    at: float
    """It was queued to leave."""


class Arrival(Event, frozen=True, tag="arrival"):
    """Its counterpart on the rank that it went to, level `full`."""

    run: RunId
    rank: Rank
    edge: int
    stream: bool
    step: int
    key: tuple[int, ...]
    at: float
    """It can be read."""


# ── gauges ──────────────────────────────────────────────────────────────────────────────────────


class RankGauge(Event, frozen=True, tag="rank"):
    rank: Rank
    at: float
    runs: int
    queue: int
    """Calls and loops that wait for a batch or a row."""
    busy: float
    """Share of the time since the last gauge in which its device had work, 0 to 1."""
    memory_used: int
    """Bytes: in use on a GPU, by whomever; on a CPU, of this process."""
    memory_total: int
    pages_free: int
    pages_total: int
    prefix_tokens: int
    """Asked for, since the start; and of these found kept:"""
    prefix_hits: int
    out_tickets: int
    rejected: int
    """Frames that were no messages, since the start."""
    dropped: int
    """Events that were never sent, since the start."""


class QueueGauge(Event, frozen=True, tag="queue"):
    at: float
    running: int
    waiting: int
    reserved: dict[Rank, int]
    """Pages promised to admitted runs."""
    budget: dict[Rank, int]


# ── looked at ───────────────────────────────────────────────────────────────────────────────────


class Statistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a tensor's finite numbers; booleans count as 0 and 1."""

    count: int
    """Numbers, finite or not."""
    nan: int
    infinite: int
    low: float
    high: float
    mean: float
    std: float
    histogram: tuple[int, ...]
    """Equal bins from `low` to `high`."""
    every: int = 1
    """All but `count` are of an even sample of a large tensor: of one number in so many."""


class Preview(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", gc=False):
    pass


class TextPreview(Preview, frozen=True, tag="text"):
    text: str


class NumbersPreview(Preview, frozen=True, tag="numbers"):
    """The first of few, or of ids: tokens, codes, actions, scalars, flags."""

    values: tuple[float, ...]
    """Row by row, `columns` a row."""
    columns: int


class PicturePreview(Preview, frozen=True, tag="picture"):
    """Pixels and latents, small."""

    width: int
    height: int
    rgb: bytes
    """height * width * 3."""


class SoundPreview(Preview, frozen=True, tag="sound"):
    rate: int
    pcm: bytes
    """int16, little-endian, one channel."""


class HeatPreview(Preview, frozen=True, tag="heat"):
    """A matrix, averaged down."""

    rows: int
    columns: int
    cells: bytes
    """rows * columns; 0 for `low`, 255 for `high`."""
    low: float
    high: float


class MediaPreview(Preview, frozen=True, tag="media"):
    """Encoded as it is: PNG, JPEG, WebP, WAV; empty where it is too large."""

    data: bytes
    nbytes: int


AnyPreview = TextPreview | NumbersPreview | PicturePreview | SoundPreview | HeatPreview | MediaPreview


class Sample(Event, frozen=True, tag="sample"):
    """One value that was looked at."""

    why: Literal["tap", "held", "record"]
    """`held`: an input, or a state, of a call before which its run is paused."""
    tap: str
    """Id of the tap; otherwise empty."""
    run: RunId
    rank: Rank
    walk: str
    step: int
    source: str
    """As edges of the graph name it, `use.port` or `@in.name`; of a held call, its own `use.port` or `use.slot`."""
    iteration: tuple[int, ...]
    at: float
    modality: str
    """Of the port; of a state its kind: `paged_kv`, `tensor`, `rng`."""
    dtype: str
    """Of a tensor; otherwise `text`, `bytes`, `number`, `list`, `cache`, `absent`."""
    shape: tuple[int, ...]
    """Of a cache: its sequences, tokens of the longest, pages."""
    statistics: Statistics | None = None
    preview: AnyPreview | None = None
    digest: str = ""
    """Of all its bytes, 16 hex digits: equal values have equal ones. Recorded runs only."""
    picked: tuple[float, ...] = ()
    """Recorded runs only: numbers at fixed places, to tell how far two values are apart."""


Any = (
    RunPhase | Forward | Launch | Activity | Looping | LoopEnded | Transfer | Arrival | RankGauge | QueueGauge | Sample
)


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
