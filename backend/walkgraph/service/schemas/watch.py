"""Bodies of requests about taps, breakpoints and steering."""

from typing import Annotated, Literal

from pydantic import Field

from walkgraph.service.schemas.resources import DocumentName, Given
from walkgraph.wire.watching import Level

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PlaceName = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(ge=1, le=86_400, strict=False)]
"""Seconds until it expires."""


class LevelRequest(Given):
    level: Level


Interval = Annotated[float, Field(ge=0.05, le=60, strict=False)]
"""Minimum seconds between two samples of one rank."""


class TapRequest(Given):
    walk: PlaceName
    source: PlaceName
    """Source of an edge: `use.port` or `@in.name`."""
    to: Annotated[str, Field(max_length=200)] = ""
    """Target of the edge: `use.port`, `@out.name` or `@result.name`. The tap then sees only the values on that edge;
    on an edge out of a loop, the values that leave the loop. Empty: all values that leave the source."""
    interval: Interval = 0.25
    preview: bool = True
    run: RunId | None = None
    """null: all runs."""
    seconds: Seconds = 1800.0


class TapChange(Given):
    interval: Interval


class BreakRequest(Given):
    walk: PlaceName
    use: PlaceName
    iteration: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Iteration of the innermost loop around the use; null: every call."""
    run: RunId | None = None
    seconds: Seconds = 1800.0


class HeldCall(Given):
    """A call before which a run is paused."""

    rank: Annotated[int, Field(ge=0, lt=2**31)]
    walk: Annotated[str, Field(max_length=400)]
    use: Annotated[str, Field(max_length=400)]
    node: Annotated[str, Field(max_length=400)]
    """Empty for a move of a state between ranks."""
    step: Annotated[int, Field(ge=0, lt=2**31)]
    iteration: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=64)]
    loop: Annotated[str, Field(max_length=400)] = ""
    """Name of the device loop, if the call is one."""


class SteerRequest(Given):
    action: Literal["pause", "step", "iteration", "resume"]
    call: HeldCall | None = None
    """The held call that `step` or `iteration` is for; null: the first."""


class ReplayRequest(Given):
    deployment: DocumentName | None = None
    """null: the original run's deployment."""
    record: bool = True
