"""The trace of one run: what it did, on which rank, when; by columns, as it is kept, sent and drawn.

Times are whole microseconds from `began`. Strings that repeat are indices into `names`. All columns of a table have the
same length; rows are in the order of `started` (blocks) or `sent` (hops).
"""

from typing import Literal

import msgspec

from walkgraph.wire.watching import Level

CALL, LAUNCH, FOLDED = 0, 1, 2
"""Kinds of blocks: a call of a node; iterations of a loop on the device; what a node did in a while, from `summary`
telemetry, which does not tell calls apart."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the picture of a rank: a node, or a loop that its device runs whole."""

    rank: int
    name: str
    nodes: tuple[str, ...]
    """One, or those of the loop."""
    loop: bool
    spans: bool = False
    """The loop has parts on other ranks, which wait for each other on the devices: their times are in its own."""


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    kind: tuple[int, ...] = ()
    lane: tuple[int, ...] = ()
    """Index into `Trace.lanes`."""
    walk: tuple[int, ...] = ()
    """Name."""
    use: tuple[int, ...] = ()
    """Name of the node's use in that Walk; -1 of a loop."""
    step: tuple[int, ...] = ()
    iteration: tuple[tuple[int, ...], ...] = ()
    """Loop indices, outermost first; of a launch its first iteration's, of a folded block the last call's."""
    count: tuple[int, ...] = ()
    """Calls, or iterations of the loop."""
    number: tuple[int, ...] = ()
    """Of the batch, counted by its rank; -1 where folded."""
    batch: tuple[int, ...] = ()
    """Rows of the batch; of a folded block, of its largest."""
    mates: tuple[tuple[int, ...], ...] = ()
    """Names of the other runs in the batch, the first few."""
    ready: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    launched: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    """From started to finished; of a folded block, summed over its calls."""
    queued: tuple[int, ...] = ()
    """From ready to started; likewise."""
    pages_free: tuple[int, ...] = ()
    """Of the rank, afterwards; -1 unknown."""
    failed: tuple[bool, ...] = ()


class Hops(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors that went from rank to rank."""

    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    walk: tuple[int, ...] = ()
    """Name."""
    edge: tuple[int, ...] = ()
    """Name: `use.port -> use.port`, or of the stream."""
    step: tuple[int, ...] = ()
    key: tuple[tuple[int, ...], ...] = ()
    transport: tuple[int, ...] = ()
    """Name."""
    count: tuple[int, ...] = ()
    nbytes: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    arrived: tuple[int, ...] = ()
    """-1 where it was not told."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges of the ranks that took part, while it ran."""

    rank: tuple[int, ...] = ()
    at: tuple[int, ...] = ()
    busy: tuple[float, ...] = ()
    """Share of the time since the last one, 0 to 1."""
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
    reason: Literal["times", "until", "error"]
    at: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    deployment: str
    task: str
    state: str
    """A `RunState` of the store; `running` while it goes on."""
    level: Level
    """The highest that was in force while it ran."""
    wall: float
    """Seconds since 1970 at `began`."""
    seconds: float
    """From its arrival to its end; so far, while it runs."""
    phases: dict[str, int]
    """`queued`, `started`, `first_output`, `finished`, as far as it came."""
    error: str | None = None
    """Code."""
    parent: str = ""
    """`traceparent` of the request that it came with; empty where it came with none."""
    devices: tuple[str, ...] = ()
    """Of the deployment's ranks, by rank: `cuda:0`, `cpu`; empty where they are not known."""
    names: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()
    blocks: Blocks = Blocks()
    hops: Hops = Hops()
    counters: Counters = Counters()
    loops: tuple[LoopEnd, ...] = ()
    lost: int = 0
    """Events of its ranks and its conductor that were dropped while it ran: what is missing here is among them."""
    cut: bool = False
    """Older blocks were left out, as it has more than are kept."""
