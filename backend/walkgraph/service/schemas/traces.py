"""Answers about traces."""

from typing import Literal

from walkgraph.service.schemas.resources import Shown
from walkgraph.wire.watching import Level


class TraceListed(Shown):
    run: str
    task: str
    state: Literal["running", "done", "failed", "cancelled"]
    level: Level
    """The highest that was in force while it ran."""
    seconds: float
    """From its arrival to its end."""
    at: float
    """When it came, in seconds since 1970."""
    blocks: int
    recorded: bool
    """Its values can be compared with another run's."""


WhyKind = Literal["admission", "queue", "launch", "compute", "transfer", "wait"]


class PieceShown(Shown):
    kind: WhyKind
    lane: int
    """Index of the trace's lanes; -1 for none."""
    walk: str
    block: int | None
    """Row of the trace's blocks."""
    hop: int | None
    """Row of the trace's hops."""
    rank: int
    """-1 for none."""
    began: int
    """Microseconds from the run's beginning."""
    ended: int


class BottleneckShown(Shown):
    lane: str
    """Of a transfer, the name of its edge."""
    rank: int
    seconds: float
    share: float
    kind: WhyKind
    loop: bool
    """The lane is that of a loop that a device runs whole."""


class WhyShown(Shown):
    run: str
    seconds: float
    shares: dict[WhyKind, float]
    """Seconds; together the run's."""
    path: list[PieceShown]
    """The critical path, without gaps; empty where telemetry was `summary`, which does not tell calls apart."""
    bottleneck: BottleneckShown | None
    says: str


class NodeFiguresShown(Shown):
    node: str
    """Or a loop that a device runs whole: its name."""
    rank: int
    loop: bool
    nodes: list[str]
    calls: int
    """Or iterations."""
    p50: float
    """Milliseconds of compute, of a call or an iteration."""
    p95: float
    p99: float
    queued_p50: float
    """Milliseconds from ready to started."""
    queued_p95: float
    batch_mean: float
    share: float
    """Of the runs' critical paths, 0 to 1; those of `summary` have none."""
    busy: float
    """Seconds of its device."""


class StatisticsShown(Shown):
    runs: int
    nodes: list[NodeFiguresShown]
    """Those that the runs waited for longest come first."""
