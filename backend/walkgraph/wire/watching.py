"""Messages about taps, breakpoints and pauses of runs.

service -> conductor -> workers    Watch: taps, breakpoints, the level of telemetry, as a whole
service -> conductor               Steer: pause a run, step it, go on
conductor -> worker                Gate: what of a run may be called
worker -> conductor -> service     Halted, Paused, Resumed
"""

from typing import Literal

import msgspec

from walkgraph.ids import Rank, RunId

Level = Literal["off", "summary", "full"]
"""Levels of telemetry."""


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class Tap(Message, frozen=True, tag="tap"):
    """Sample the values that leave one place of a Walk, or travel over one edge: all of them, but at most one per
    `interval`."""

    id: str
    walk: str
    source: str
    """The place as edges name it: `use.port`, `@in.name`."""
    interval: float
    """The least seconds between two samples of a rank."""
    to: str = ""
    """End of the edge: `use.port`, `@out.name`, `@result.name`. For an edge out of a loop, the samples are the values
    that leave the loop. Empty: all values that leave the source."""
    preview: bool = True
    run: RunId | None = None
    """None: in all runs."""


class Break(Message, frozen=True, tag="break"):
    """Pause a run before a call of a use."""

    id: str
    walk: str
    use: str
    iteration: int | None = None
    """Iteration of the innermost loop; None: at every call."""
    run: RunId | None = None


class Watch(Message, frozen=True, tag="watch"):
    """All taps, breakpoints and the level from now on, replacing the earlier ones. A tap or breakpoint inside a
    resident loop, or a chain of small nodes that is one call, applies to runs that start from now on: they are
    stepped."""

    level: Level = "summary"
    taps: tuple[Tap, ...] = ()
    breaks: tuple[Break, ...] = ()


class HeldCall(Message, frozen=True, tag="held_call"):
    """A call that a paused run is held before."""

    rank: Rank
    walk: str
    use: str
    node: str
    """Empty for a move of a state between ranks."""
    step: int
    iteration: tuple[int, ...]
    loop: str = ""
    """Name of a device loop; empty for a call of a node."""


class Steer(Message, frozen=True, tag="steer"):
    """`pause`: hold every further call; if the run is paused already, sample the inputs of the held calls again.
    `step`: make one of the held calls, `call` or the first. `iteration`: go on until the innermost loop of that call
    reaches its next iteration. `resume`: go on."""

    run: RunId
    action: Literal["pause", "step", "iteration", "resume"]
    call: HeldCall | None = None


class Paused(Message, frozen=True, tag="paused"):
    """Repeated whenever the held calls change; a rank that holds none may still have calls in flight."""

    run: RunId
    held: tuple[HeldCall, ...]
    breakpoint: str = ""
    """Id of the breakpoint that was reached; empty if the run was paused on request, or stepped."""


class Resumed(Message, frozen=True, tag="resumed"):
    run: RunId


class Gate(Message, frozen=True, tag="gate"):
    """The gate that a run's calls pass. `close`: hold all further calls, and sample the inputs of the held ones.
    `open`: let all calls pass. `one`: let `call` pass if it is held; for a device loop, its part on the rank that
    obeys. `through`: let calls of the iteration of `call`'s innermost loop, or of an earlier one, pass on all ranks of
    the run, and hold the rest."""

    run: RunId
    mode: Literal["close", "open", "one", "through"]
    call: HeldCall | None = None
    number: int = 0
    """Counts the gates that the conductor sends, from 1."""


class Halted(Message, frozen=True, tag="halted"):
    """The calls of a run that are held here; sent whenever they change while its gate is not open."""

    rank: Rank
    run: RunId
    held: tuple[HeldCall, ...]
    breakpoint: str = ""
    """Id of the breakpoint that closed the gate, if one did."""
    gate: int = 0
    """Number of the last `Gate` of this run obeyed here, 0 before the first. It separates late messages from before an
    opened gate from those about calls held since."""
