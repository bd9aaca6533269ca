"""Bodies of requests about what is looked at and where runs stop."""

from typing import Annotated, Literal

from pydantic import Field

from walkgraph.service.schemas.resources import DocumentName, Given
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


class ReplayRequest(Given):
    deployment: DocumentName | None = None
    """null: the one that the run was asked of."""
    record: bool = True
