"""Answers about traces: where a run spent its time, and the durations of a deployment's nodes."""

from typing import Literal, TypedDict

from walkgraph.wire.answers.runs import RunState
from walkgraph.wire.watching import Level

WhyKind = Literal["admission", "queue", "launch", "compute", "transfer", "wait"]
Share = Literal["socket", "decode", "queue", "host", "launch", "device", "transfer", "call", "encode", "other"]


class TraceListed(TypedDict):
    run: str
    task: str
    state: RunState
    level: Level
    """The highest level in force while it ran."""
    seconds: float
    """From its arrival to its end."""
    at: float
    """When it came, in seconds since 1970."""
    blocks: int
    recorded: bool
    """Its values can be compared with another run's."""


class Piece(TypedDict):
    kind: WhyKind
    lane: int
    """Index into the trace's lanes; -1 for none."""
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


class Bottleneck(TypedDict):
    lane: str
    """For a transfer, the name of its edge."""
    rank: int
    seconds: float
    share: float
    kind: WhyKind
    loop: bool
    """The lane is a device loop."""


class ShareRow(TypedDict):
    share: Share
    seconds: float
    part: float
    """Part of the whole, 0 to 1."""
    means: str
    advice: str
    """Advice for the case that it is the largest."""


class Moment(TypedDict):
    what: str
    at: float
    """Seconds from the beginning of the request."""


class Profile(TypedDict):
    seconds: float
    """The time from the head of the request to its answer's last byte, as far as they are known."""
    exact: bool
    """False with `summary` telemetry, which does not report single calls."""
    shares: list[ShareRow]
    """All of them, in the order in which a request comes by them; they add up to the whole."""
    largest: Share
    moments: list[Moment]
    """The known borders on the request's way, by time."""


class Why(TypedDict):
    run: str
    seconds: float
    shares: dict[WhyKind, float]
    """Seconds by kind; they add up to the run's."""
    path: list[Piece]
    """The critical path, without gaps; empty with `summary` telemetry, which does not report single calls."""
    bottleneck: Bottleneck | None
    says: str
    profile: Profile
    """The whole request, with what the service did before and after the run."""


class NodeFigures(TypedDict):
    node: str
    """Name of the node, or of a device loop."""
    rank: int
    loop: bool
    nodes: list[str]
    calls: int
    """Calls, or iterations of a loop."""
    p50: float
    """Milliseconds of compute per call or iteration."""
    p95: float
    p99: float
    queued_p50: float
    """Milliseconds from ready to started."""
    queued_p95: float
    batch_mean: float
    share: float
    """Share of the runs' critical paths, 0 to 1; runs with `summary` telemetry have none."""
    busy: float
    """Seconds on its device."""


class Statistics(TypedDict):
    runs: int
    nodes: list[NodeFigures]
    """Those that the runs waited for longest come first."""
