"""The trace of one run: what it did, when and on which rank; in columns, as it is stored, sent and drawn.

Times are whole microseconds from `began`. Strings that repeat are indices into `names`. All columns of a table have the
same length; rows are in the order of `started` (blocks, shards) or `sent` (hops).
"""

from typing import Literal

import msgspec

from walkgraph.wire.watching import Level

CALL, LAUNCH, FOLDED = 0, 1, 2
"""Kinds of blocks: a call of a node; iterations of a device loop; the work of a node over some time, from `summary`
telemetry, which does not report single calls."""
Does = Literal["compute", "host", "decode", "encode", "call"]
"""The kind of work of a lane's node: it computes on its rank's device, or on the host; it decodes or encodes media
there; it calls a task or a server outside."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A row in the picture of a rank: a node, or a device loop."""

    rank: int
    name: str
    nodes: tuple[str, ...]
    """One node, or the nodes of the loop."""
    loop: bool
    spans: bool = False
    """The loop has parts on other ranks, which wait for each other on their devices: its times include theirs."""
    does: Does = "compute"


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    kind: tuple[int, ...] = ()
    lane: tuple[int, ...] = ()
    """Index into `Trace.lanes`."""
    walk: tuple[int, ...] = ()
    """Index into `Trace.names`."""
    use: tuple[int, ...] = ()
    """Index into `Trace.names` of the node's use in that Walk; -1 for a loop."""
    step: tuple[int, ...] = ()
    iteration: tuple[tuple[int, ...], ...] = ()
    """Loop indices, outermost first; for a launch, those of its first iteration, for a folded block those of the last
    call."""
    count: tuple[int, ...] = ()
    """Calls, or iterations of the loop."""
    number: tuple[int, ...] = ()
    """Number of the batch, counted by its rank; -1 for a folded block."""
    batch: tuple[int, ...] = ()
    """Rows of the batch; for a folded block, of its largest one."""
    mates: tuple[tuple[int, ...], ...] = ()
    """Names of the first few other runs in the batch."""
    ready: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    launched: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    """From started to finished; for a folded block, summed over its calls."""
    queued: tuple[int, ...] = ()
    """From ready to started; for a folded block, summed over its calls."""
    pages_free: tuple[int, ...] = ()
    """Free pages of the rank afterwards; -1 if unknown."""
    failed: tuple[bool, ...] = ()


class Shards(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that other shards of a rank took in its batches."""

    rank: tuple[int, ...] = ()
    """The shard's own."""
    of: tuple[int, ...] = ()
    """The rank that serves, whose blocks have these numbers:"""
    number: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()


class Hops(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors that went from rank to rank."""

    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    walk: tuple[int, ...] = ()
    """Index into `Trace.names`."""
    edge: tuple[int, ...] = ()
    """Index into `Trace.names`: `use.port -> use.port`, or the name of the stream."""
    step: tuple[int, ...] = ()
    key: tuple[tuple[int, ...], ...] = ()
    transport: tuple[int, ...] = ()
    """Index into `Trace.names`."""
    count: tuple[int, ...] = ()
    nbytes: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    arrived: tuple[int, ...] = ()
    """-1 if the arrival was not reported."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges of the ranks that took part, while the run was going."""

    rank: tuple[int, ...] = ()
    at: tuple[int, ...] = ()
    busy: tuple[float, ...] = ()
    """Share of the time since the last gauge in which the device had work, 0 to 1."""
    queue: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()
    memory_used: tuple[int, ...] = ()
    pages_used: tuple[int, ...] = ()
    pages_total: tuple[int, ...] = ()


class LoopEnd(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    walk: str
    loop: str
    iteration: tuple[int, ...]
    iterations: int
    reason: str
    """As in `telemetry.events.LoopEnded`."""
    at: int


class LoopReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a loop with an `until` ended in the run, on the device, stepped, or of steps (`wire.messages.LoopEnd`)."""

    walk: str
    """Empty for a loop of steps."""
    loop: str
    iterations: int
    reason: str


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """The playback of a run (`wire.messages.Played`)."""

    seconds: float
    underruns: int
    late: float


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that the run's ranks got at once, some of them in loops of steps."""

    at: int
    first: int
    """Number of the first of these steps."""
    passes: tuple[tuple[int, ...], ...]
    """For each step the pass of each loop around it, outermost first."""


class RankPart(msgspec.Struct, frozen=True, kw_only=True):
    """The run on one rank."""

    rank: int
    received: int
    """The time at which its rank read the message that starts it."""
    done: int
    """The time at which its rank had nothing more to do for it."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The run in the service, from its request to the last byte of its answer. What comes before the run is negative;
    None: not yet, or not known."""

    received: int | None = None
    """The time at which the head of the request came, or its message on a WebSocket."""
    read: int | None = None
    """The time at which all of its bytes were there."""
    submitted: int
    """The time at which it was decoded, checked and sent to the conductor."""
    ended: int | None = None
    """The time at which the service heard of the run's end."""
    answering: int | None = None
    """The time of the answer's turn on the service's loop; its end is encoded from then on."""
    first_sent: int | None = None
    last_sent: int | None = None
    """The time at which the latest bytes of the answer had been handed to the socket."""
    sending: int = 0
    """Microseconds after `ended` in which bytes were handed to the socket."""


class CalledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a use called: a run of its own, with its own trace."""

    run: str
    """Empty if none began."""
    task: str
    """`graph/task`."""
    rank: int
    walk: str
    node: str
    use: str
    step: int
    iteration: tuple[int, ...]
    asked: int
    answered: int
    failed: bool


class KeptCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was not made, as its outputs were kept from an earlier one. It took no time."""

    rank: int
    walk: str
    node: str
    use: str
    step: int
    iteration: tuple[int, ...]
    at: int


class ClockError(msgspec.Struct, frozen=True, kw_only=True):
    """Times of ranks on another host: they were changed into those of the service's host, and may be wrong by a bound
    that was measured."""

    host: str
    """As the plan names it."""
    offset: float
    """Seconds between the two monotonic clocks, which were added to the host's."""
    error: int
    """The most microseconds by which its times here may be wrong."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    deployment: str
    task: str
    state: str
    """A `RunState` of the store; `running` while the run goes on."""
    level: Level
    """The highest level in force while it ran."""
    wall: float
    """Seconds since 1970 at `began`."""
    seconds: float
    """From its arrival to its end; while it runs, up to now."""
    phases: dict[str, int]
    """`queued`, `started`, `first_output`, `finished`, as far as it has come."""
    error: str | None = None
    """Error code."""
    parent: str = ""
    """`traceparent` of its request; empty if there was none."""
    devices: tuple[str, ...] = ()
    """Device of each rank of the deployment: `cuda:0`, `cpu`; empty if unknown."""
    serving: tuple[int, ...] = ()
    """The rank that serves for each rank of the deployment: itself, or the first of its shards; empty if unknown."""
    hosts: tuple[str, ...] = ()
    """Host of each rank of the deployment as its placement names it, empty for the service's own; empty if unknown, and
    in traces of earlier versions."""
    clocks: tuple[ClockError, ...] = ()
    """Those of the other hosts whose ranks took part."""
    names: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()
    blocks: Blocks = Blocks()
    shards: Shards = Shards()
    """Empty where no rank has shards, and in traces of earlier versions."""
    hops: Hops = Hops()
    counters: Counters = Counters()
    loops: tuple[LoopEnd, ...] = ()
    ends: tuple[LoopReason, ...] = ()
    """None while the run goes on."""
    played: Played | None = None
    called: tuple[CalledRun, ...] = ()
    """In the order in which they were asked for."""
    kept: tuple[KeptCall, ...] = ()
    """In the order of their times."""
    passes: tuple[Passes, ...] = ()
    parts: tuple[RankPart, ...] = ()
    """The times of each rank."""
    served: Served | None = None
    """None if the service doesn't know the run any more, and in traces of earlier versions."""
    lost: int = 0
    """Events of its ranks and its conductor that were dropped while it ran; data missing here is among them."""
    cut: bool = False
    """Older blocks were left out, as there are more than are kept."""
    early: int = 0
    """Hops that arrived before they were sent, by more than the bounds of their clocks: these were wrong then."""

    def host_of(self, rank: int) -> str:
        """Empty: the service's, or unknown."""
        return self.hosts[rank] if rank < len(self.hosts) else ""

    def error_of(self, *ranks: int) -> int:
        """The most microseconds by which times of these ranks may be wrong with one another and the service's: 0 for
        ranks of its host."""
        hosts = {self.host_of(rank) for rank in ranks}
        return sum(clock.error for clock in self.clocks if clock.host in hosts)
