"""Messages about what is looked at while it runs, and where runs stop.

service -> conductor -> workers    Watch: taps, breakpoints, the level of telemetry, as a whole
service -> conductor               Steer: pause a run, step it, go on
conductor -> worker                Gate: what of a run may be called
worker -> conductor -> service     Halted, Paused, Resumed
"""

from typing import Literal

import msgspec

from walkgraph.ids import Rank, RunId

Level = Literal["off", "summary", "full"]
"""Of telemetry."""


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class Tap(Message, frozen=True, tag="tap"):
    """Look at the values that leave one place of a Walk, or that go over one edge: each of them, but not more often
    than `interval`."""

    id: str
    walk: str
    source: str
    """As edges name it: `use.port`, `@in.name`."""
    interval: float
    """Seconds between two samples of a rank, at least."""
    to: str = ""
    """Where the edge ends: `use.port`, `@out.name`, `@result.name`. Of an edge out of a loop, these are the values that
    leave the loop. Empty: all values that leave the source."""
    preview: bool = True
    run: RunId | None = None
    """None: of all runs."""


class Break(Message, frozen=True, tag="break"):
    """Pause a run before a call of a use."""

    id: str
    walk: str
    use: str
    iteration: int | None = None
    """Of its innermost loop; None: at every call."""
    run: RunId | None = None


class Watch(Message, frozen=True, tag="watch"):
    """What is wanted from now on, as a whole. A tap or breakpoint inside a loop that is resident counts for runs that
    start from now: they are stepped."""

    level: Level = "summary"
    taps: tuple[Tap, ...] = ()
    breaks: tuple[Break, ...] = ()


class HeldCall(Message, frozen=True, tag="held_call"):
    """A call that a run is paused before."""

    rank: Rank
    walk: str
    use: str
    node: str
    """Empty for a move of a state between ranks."""
    step: int
    iteration: tuple[int, ...]
    loop: str = ""
    """Of a loop that the device runs whole: its name."""


class Steer(Message, frozen=True, tag="steer"):
    """`pause`: hold every call that would be made next; of a run that is paused, tell anew what those that are held
    were given. `step`: make one of those that are held, `call` or the first.
    `iteration`: go on until the innermost loop of that call comes to its next iteration. `resume`: go on."""

    run: RunId
    action: Literal["pause", "step", "iteration", "resume"]
    call: HeldCall | None = None


class Paused(Message, frozen=True, tag="paused"):
    """Told anew whenever what is held changes; on a rank that holds nothing, calls may still be under way."""

    run: RunId
    held: tuple[HeldCall, ...]
    breakpoint: str = ""
    """Id of the one that it came to; empty where it was asked for, or stepped."""


class Resumed(Message, frozen=True, tag="resumed"):
    run: RunId


class Gate(Message, frozen=True, tag="gate"):
    """The gate that the calls of a run pass. `close`: hold all that come, and tell what those that
    are held were given. `open`: let all pass, and those to come.
    `one`: let `call` pass, if it is held; of a loop on a device, its part on the rank that obeys. `through`: let pass
    what belongs to the iteration of `call`'s innermost loop or an earlier one, on all ranks of the run, and hold the
    rest."""

    run: RunId
    mode: Literal["close", "open", "one", "through"]
    call: HeldCall | None = None
    number: int = 0
    """Counts the gates that the conductor sends, from 1."""


class Halted(Message, frozen=True, tag="halted"):
    """The calls of a run that are held here, whenever they change while its gate is not open."""

    rank: Rank
    run: RunId
    held: tuple[HeldCall, ...]
    breakpoint: str = ""
    """Where one has closed the gate: its id."""
    gate: int = 0
    """Number of the last `Gate` of this run that was obeyed here; 0 before the first: what was said before a gate was
    opened, and comes after, is told from what is held since."""
