"""Bodies of requests and answers about what is looked at and where runs stop."""

from typing import Annotated, Literal

from pydantic import Field

from walkgraph.service.schemas.resources import DocumentName, Given, Shown
from walkgraph.wire.watching import Level

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PlaceName = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(ge=1, le=86_400, strict=False)]
"""Until it goes by itself."""


class LevelRequest(Given):
    level: Level


Interval = Annotated[float, Field(ge=0.05, le=60, strict=False)]
"""Seconds between two samples of a rank, at least."""


class TapRequest(Given):
    walk: PlaceName
    source: PlaceName
    """As edges name it: `use.port`, `@in.name`."""
    to: Annotated[str, Field(max_length=200)] = ""
    """Where the edge ends: `use.port`, `@out.name`, `@result.name`. Then the tap sees what goes over that edge
    alone: of one out of a loop, what leaves the loop. Empty: all values that leave the source."""
    interval: Interval = 0.25
    preview: bool = True
    run: RunId | None = None
    """null: of all runs."""
    seconds: Seconds = 1800.0


class TapChange(Given):
    interval: Interval


class BreakRequest(Given):
    walk: PlaceName
    use: PlaceName
    iteration: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Of the innermost loop around it; null: at every call."""
    run: RunId | None = None
    seconds: Seconds = 1800.0


class TapShown(Shown):
    id: str
    walk: str
    source: str
    to: str
    interval: float
    preview: bool
    run: str | None
    expires_at: float
    """Seconds since 1970."""
    inside: bool
    """In a loop that a device runs whole: seen of runs that start from now, which are stepped."""


class BreakShown(Shown):
    id: str
    walk: str
    use: str
    iteration: int | None
    run: str | None
    expires_at: float
    inside: bool


class WatchShown(Shown):
    level: Level
    taps: list[TapShown]
    breakpoints: list[BreakShown]


class HeldCall(Given):
    """A call that a run is paused before."""

    rank: Annotated[int, Field(ge=0, lt=2**31)]
    walk: Annotated[str, Field(max_length=400)]
    use: Annotated[str, Field(max_length=400)]
    node: Annotated[str, Field(max_length=400)]
    """Empty for a move of a state between ranks."""
    step: Annotated[int, Field(ge=0, lt=2**31)]
    iteration: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=64)]
    loop: Annotated[str, Field(max_length=400)] = ""
    """Of a loop that the device runs whole: its name."""


class SteerRequest(Given):
    action: Literal["pause", "step", "iteration", "resume"]
    call: HeldCall | None = None
    """For `step` and `iteration`: one of those that are held; null: the first."""


class HeldShown(Shown):
    rank: int
    walk: str
    use: str
    node: str
    step: int
    iteration: list[int]
    loop: str


class PausedShown(Shown):
    held: list[HeldShown]
    breakpoint: str
    """Id of the one that it came to; empty where it was asked for, or stepped."""


class SteerShown(Shown):
    run: str
    paused: PausedShown | None
    """As it was before this."""


class ReplayRequest(Given):
    deployment: DocumentName | None = None
    """null: the one that the run was asked of."""
    record: bool = True


class NumbersShown(Shown):
    """Of a tensor's finite numbers."""

    count: int
    nan: int
    infinite: int
    low: float
    high: float
    mean: float
    std: float
    histogram: list[int]
    """Empty: of recorded values none is made."""
    every: int
    """All but `count` are of one number in so many."""


class RowShown(Shown):
    """A value that both runs made, and that differs."""

    walk: str
    source: str
    step: int
    iteration: list[int]
    rank_a: int
    rank_b: int
    shape_a: list[int]
    shape_b: list[int]
    dtype_a: str
    dtype_b: str
    statistics_a: NumbersShown | None
    statistics_b: NumbersShown | None
    max_abs: float | None
    """Of the numbers at up to 256 places; null where they can't be compared."""
    max_rel: float | None
    at_a: float
    """Seconds from the run's first recorded value."""
    at_b: float


class MissingShown(Shown):
    a: int
    b: int


class OutputShown(Shown):
    name: str
    index: int
    equal: bool
    """To the last bit."""
    max_abs: float | None


class DifferencesShown(Shown):
    a: str
    b: str
    recorded: bool
    """false: neither run was recorded, only their outputs are compared."""
    compared: int
    equal: int
    missing: MissingShown
    """Values that were recorded of the other run only, because they weren't made here or their sample was lost."""
    outputs: list[OutputShown]
    """Of runs that can be followed both; otherwise none."""
    first: RowShown | None
    rows: list[RowShown]
    """In the order of a's times; those that differ only, and at most 500."""
