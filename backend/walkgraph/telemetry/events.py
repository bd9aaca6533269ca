"""The events about running work, as data. Times are seconds of the monotonic clock of a process's host; device times
are aligned to it. Those of a packet are times of the service's host (`telemetry.clocks`).

    summary   RunPhase, RunPasses, RunPart, Activity, Kept, Looping, LoopEnded, TaskCalled, Transfer (summed),
              RankGauge, QueueGauge
    full      and Forward, Launch, ShardWork, Arrival; Transfer one by one; no Activity and no Looping
    asked     Sample: at any level, where a tap, a held call or a recorded run asks for it

Events of one source are numbered without gaps: a gap shows the reader how many were dropped, and the source counts them
too.
"""

from typing import Literal

import msgspec

from walkgraph.ids import Rank, RunId
from walkgraph.wire.processes.host_clocks import Alignment

MAX_BYTES = 1024 * 1024
"""Bytes of the largest packet."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", gc=False):
    """Events form no reference cycles and a process may keep a hundred thousand, so garbage collection skips them."""


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


class RunPhase(Event, frozen=True, tag="run"):
    """A run enters another phase, as the conductor reports it."""

    run: RunId
    task: str
    phase: Literal["queued", "started", "first_output", "finished"]
    at: float
    error: str | None = None
    """Code of the error that ended it."""


class RunPasses(Event, frozen=True, tag="passes"):
    """A run's ranks get steps that are in passes of loops, as the conductor reports it."""

    run: RunId
    first: int
    """Number of the first of these steps."""
    passes: tuple[tuple[int, ...], ...]
    """For each step the pass of each loop around it, outermost first."""
    at: float


class RunPart(Event, frozen=True, tag="part"):
    """A rank has nothing more to do for a run. At every level but `off`."""

    run: RunId
    rank: Rank
    received: float
    """The time at which it read the message that starts the run."""
    at: float


# ── work, level `full` ──────────────────────────────────────────────────────────────────────────


class Forward(Event, frozen=True, tag="forward"):
    """One forward of a rank outside device loops: a batch of calls in columns, one row per call. A long call that is
    served in parts has a row in each part's forward."""

    rank: Rank
    number: int
    """Counts the forwards and launches of a rank."""
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    nodes: tuple[str, ...]
    uses: tuple[str, ...]
    """Uses of these nodes in their Walks, by name."""
    steps: tuple[int, ...]
    iterations: tuple[tuple[int, ...], ...]
    ready: tuple[float, ...]
    """When a call had all its inputs and was queued; for a later part, when the part before it was done."""
    taken: float
    """When the batch was formed; preparing its tensors and tables starts here."""
    launched: float
    """When the host had handed all of it to the device."""
    started: float
    """Start on the device; on a CPU, equal to `taken`."""
    finished: float
    """End on the device; on a CPU, when the host was done."""
    pages_free: int = 0
    """Free pages of the rank's paged states after it."""
    failed: tuple[int, ...] = ()
    """Rows that failed."""


class Launch(Event, frozen=True, tag="launch"):
    """`count` iterations of loops on the device, one loop per row: the loops of one name in one Walk. A launch of
    several such groups has several events with one number."""

    rank: Rank
    number: int
    loop: str
    nodes: tuple[str, ...]
    """Nodes that these iterations call; a captured launch does not separate their times."""
    uses: tuple[str, ...]
    """Uses of these nodes, in the order of their calls."""
    count: int
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    steps: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]
    """Indices of the enclosing loops, per row."""
    first: tuple[int, ...]
    """First iteration of each row in this launch."""
    ready: tuple[float, ...]
    """When each row could have been launched. For a loop's first launch: when it had all its inputs and waited for a
    slot. For later ones: when the previous launch was over, or a reader had room for its values."""
    taken: float
    launched: float
    started: float
    finished: float
    pages_free: int = 0
    spans: bool = False
    """Parts of the loops run on other ranks, and the launch waits for them on its device: its time includes theirs."""


class ShardWork(Event, frozen=True, tag="shard"):
    """The part that another shard of a rank took in a forward or launch, which the first shard reports. A group of
    launches with one number has one event."""

    rank: Rank
    """The shard's own."""
    of: Rank
    """The first shard's rank, which counts the forwards and launches:"""
    number: int
    started: float
    """Start on the shard's own device."""
    finished: float


# ── work, level `summary` ───────────────────────────────────────────────────────────────────────


class Activity(Event, frozen=True, tag="activity"):
    """The work of a use of a node for a run on one rank since the last packet."""

    run: RunId
    rank: Rank
    node: str
    use: str
    walk: str
    iteration: tuple[int, ...]
    """Loop indices of the latest call."""
    calls: int
    busy: float
    """Seconds of its forwards, from start to end."""
    queued: float
    """Seconds from ready to started."""
    launched: float
    """When the first call counted here started."""
    finished: float
    """When the last one ended."""
    batch: int
    """Largest batch one of these calls was in."""


class Looping(Event, frozen=True, tag="looping"):
    """The position of the loops of one name in one Walk on a rank's device, repeated while they move; their totals
    follow in `LoopEnded.work`."""

    rank: Rank
    loop: str
    nodes: tuple[str, ...]
    uses: tuple[str, ...]
    """Like `Launch.uses`, for all launches since the last event of this loop."""
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    iterations: tuple[tuple[int, ...], ...]
    """Iterations done in each run's loop, after the indices of the enclosing loops."""
    launches: int
    """Launches since the last event of this loop."""
    calls: int
    """Iterations in these launches, summed over all runs."""
    busy: float
    """Seconds of these launches."""
    batch: int
    """Batch size of the last launch."""
    at: float
    spans: bool = False
    """Like `Launch.spans`."""


class LoopWork(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The totals of a device loop. Its time belongs to the loop: the times of its nodes are unknown."""

    nodes: tuple[str, ...]
    uses: tuple[str, ...]
    """One use for each of these nodes."""
    calls: tuple[int, ...]
    """Calls of each use."""
    spans: bool
    """Like `Launch.spans`."""
    busy: float
    """Seconds of its launches, including the other loops in them."""
    queued: float
    """Seconds that it waited for a slot."""
    began: float
    batch: int
    """Batch size of its last launch."""


class LoopEnded(Event, frozen=True, tag="loop_ended"):
    """A device loop has ended for a run. At every level but `off`."""

    run: RunId
    rank: Rank
    walk: str
    loop: str
    step: int
    iteration: tuple[int, ...]
    """Indices of the enclosing loops."""
    iterations: int
    reason: str
    """`stop`: its `until`. `bound`: its count. `error`. Otherwise the flag that named the end."""
    at: float
    work: LoopWork | None = None
    """On `summary`; on `full` its launches have reported the work."""


class Kept(Event, frozen=True, tag="kept"):
    """A call that was not made: its node is deterministic, and the outputs are those of an earlier call with the same
    inputs and parameters. At every level but `off`."""

    run: RunId
    rank: Rank
    walk: str
    node: str
    use: str
    step: int
    iteration: tuple[int, ...]
    at: float


class TaskCalled(Event, frozen=True, tag="task_called"):
    """A task that a use called has ended. At every level but `off`."""

    run: RunId
    rank: Rank
    walk: str
    node: str
    use: str
    step: int
    iteration: tuple[int, ...]
    task: str
    """`graph/task`."""
    called: str
    """Id of the run that it was; empty if none began."""
    asked: float
    at: float
    """When it was answered."""
    failed: bool


# ── values between ranks ────────────────────────────────────────────────────────────────────────


class Transfer(Event, frozen=True, tag="transfer"):
    """Tensors that left a rank for a peer. On `summary` those of one edge since the last packet are summed: `at` and
    `key` are those of the last one."""

    run: RunId
    source: Rank
    target: Rank
    walk: str
    edge: int
    """Index in the plan of the Walk's edge, or of the stream."""
    stream: bool
    step: int
    key: tuple[int, ...]
    """Loop indices of the value; for a stream, the number of the first item within the step; for a part of a state,
    the part's number."""
    transport: str
    count: int
    nbytes: int
    at: float
    """When it was queued to leave."""


class Arrival(Event, frozen=True, tag="arrival"):
    """The counterpart of `Transfer` on the receiving rank, level `full`."""

    run: RunId
    rank: Rank
    edge: int
    stream: bool
    step: int
    key: tuple[int, ...]
    at: float
    """When the value could be read."""


# ── gauges ──────────────────────────────────────────────────────────────────────────────────────


class NodeFigure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A figure that the operator of a node publishes, of the numbers that it counted on the device since the last
    gauge. Nodes that share an operator share its figures."""

    nodes: tuple[str, ...]
    name: str
    count: int
    total: int
    most: int
    """The largest of them."""


class RankGauge(Event, frozen=True, tag="rank"):
    rank: Rank
    at: float
    runs: int
    queue: int
    """Calls and loops waiting for a batch or a slot."""
    busy: float
    """Share of the time since the last gauge in which its device had work, 0 to 1."""
    memory_used: int
    """Bytes: in use on a GPU, by any process; on a CPU, by this process."""
    memory_total: int
    pages_free: int
    pages_total: int
    prefix_tokens: int
    """Tokens looked up since the start; the next field counts those found:"""
    prefix_hits: int
    out_tickets: int
    rejected: int
    """Frames that were not valid messages, since the start."""
    dropped: int
    """Events that were never sent, since the start."""
    figures: tuple[NodeFigure, ...] = ()
    """Figures of its nodes, up to a gauge ago on a GPU, as nothing waits for them."""


class QueueGauge(Event, frozen=True, tag="queue"):
    at: float
    running: int
    waiting: int
    reserved: dict[Rank, int]
    """Rank -> pages promised to admitted runs."""
    budget: dict[Rank, int]


# ── samples ────────────────────────────────────────────────────────────────────────────────────


class Statistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Statistics of a tensor's finite numbers; booleans count as 0 and 1."""

    count: int
    """Count of all numbers, finite or not."""
    nan: int
    infinite: int
    low: float
    high: float
    mean: float
    std: float
    histogram: tuple[int, ...]
    """Equal bins from `low` to `high`."""
    every: int = 1
    """All fields but `count` come from an even sample of a large tensor: one number in this many."""


class Preview(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", gc=False):
    pass


class TextPreview(Preview, frozen=True, tag="text"):
    text: str


class NumbersPreview(Preview, frozen=True, tag="numbers"):
    """The leading numbers, for few numbers or ids: tokens, codes, actions, scalars, flags."""

    values: tuple[float, ...]
    """Row by row, `columns` per row."""
    columns: int


class PicturePreview(Preview, frozen=True, tag="picture"):
    """A small picture of pixels or latents."""

    width: int
    height: int
    rgb: bytes
    """height * width * 3 bytes."""


class SoundPreview(Preview, frozen=True, tag="sound"):
    rate: int
    pcm: bytes
    """int16, little-endian, one channel."""


class HeatPreview(Preview, frozen=True, tag="heat"):
    """A matrix, reduced by averaging."""

    rows: int
    columns: int
    cells: bytes
    """rows * columns bytes; 0 for `low`, 255 for `high`."""
    low: float
    high: float


class MediaPreview(Preview, frozen=True, tag="media"):
    """Encoded media unchanged: PNG, JPEG, WebP, WAV; empty if too large."""

    data: bytes
    nbytes: int


AnyPreview = TextPreview | NumbersPreview | PicturePreview | SoundPreview | HeatPreview | MediaPreview


class Sample(Event, frozen=True, tag="sample"):
    """One value seen by a tap, at a held call or by a recording."""

    why: Literal["tap", "held", "record"]
    """`held`: an input or a state of the call that its paused run is held before."""
    tap: str
    """Id of the tap; otherwise empty."""
    run: RunId
    rank: Rank
    walk: str
    step: int
    source: str
    """Its name in the graph's edges, `use.port` or `@in.name`; at a held call, the call's own `use.port` or
    `use.slot`."""
    iteration: tuple[int, ...]
    at: float
    modality: str
    """Modality of the port; for a state its kind: `paged_kv`, `tensor`, `rng`."""
    dtype: str
    """Dtype of a tensor; otherwise `text`, `bytes`, `number`, `list`, `cache`, `absent`."""
    shape: tuple[int, ...]
    """Shape of a tensor; for a cache: sequences, tokens of the longest, pages."""
    statistics: Statistics | None = None
    preview: AnyPreview | None = None
    digest: str = ""
    """Digest of all its bytes, 16 hex digits: equal values have equal digests. Recorded runs only."""
    picked: tuple[float, ...] = ()
    """Recorded runs only: numbers at fixed places, which show how far apart two values are."""


OfWork = Forward | Launch | ShardWork | Activity | Looping | LoopEnded | Kept | TaskCalled | Transfer | Arrival
Any = RunPhase | RunPasses | RunPart | OfWork | RankGauge | QueueGauge | Sample


class Packet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of one source, in order."""

    deployment: str
    """The deployment's name in its spec for telemetry, which includes its version."""
    source: str
    """`conductor`, or `rank 0` and so on with the count of its starts: `rank 0.3`."""
    first: int
    """Number of the first event; the others follow without gaps."""
    dropped: int
    """Total events of this source that were never sent."""
    wall: float
    """Seconds to add to the events' times for seconds since 1970."""
    events: tuple[Any, ...]
    clock: Alignment | None = None
    """How times of another host were changed; None: the source is on the service's host."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Packet)


def encode(packet: Packet) -> bytes:
    return _encoder.encode(packet)


def decode(frame: bytes) -> Packet:
    """Read a packet. Raises msgspec.DecodeError for any other frame."""
    if len(frame) > MAX_BYTES:
        raise msgspec.DecodeError("a packet is over the limit")
    return _decoder.decode(frame)
