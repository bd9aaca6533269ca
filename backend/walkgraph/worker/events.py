"""The events that a worker's core takes, and the commands that it returns.

Values are local Python values and tensors; the loop packs and unpacks them.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.loops.spec import Items, LoopCall, StreamItems
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.selection import Selection
from walkgraph.placement.tables import BOUND
from walkgraph.wire.messages import BetweenWorkers, FromWorker
from walkgraph.wire.watching import Gate, Tap, Watch


class _AbsentValue:
    """Stands for a value that is explicitly missing: from a skipped use, an unbound input, or a finished stream."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _AbsentValue()


class Arrived(Struct, frozen=True):
    """A message from a peer, with its value unpacked (None if it has none)."""

    message: BetweenWorkers
    value: Any = None


class Started(Struct, frozen=True):
    """The conductor's `Start`, with its inputs unpacked."""

    run: RunId
    itinerary: Any
    params: dict[str, Any]
    inputs: dict[str, Any]
    session: str | None = None
    priority: int = 0
    stepped: bool = False
    record: bool = False
    hold: bool = False
    selected: Mapping[str, Selection] = {}


class Extended(Struct, frozen=True):
    """The conductor's `Extend`."""

    run: RunId
    leg: Any


class Cancelled(Struct, frozen=True):
    run: RunId


class Gated(Struct, frozen=True):
    gate: Gate


class Watched(Struct, frozen=True):
    """New taps and breakpoints."""

    watch: Watch


class Ref(Struct, frozen=True):
    """Names one call or state operation of a run."""

    run: str
    step: int
    use: int
    iteration: tuple[int, ...]


class CallDone(Struct, frozen=True):
    """A call or a state operation has ended; exactly one of `outputs` and `error` is set."""

    ref: Ref
    outputs: dict[str, Any] | None = None
    error: ErrorInfo | None = None
    busy: float = 0.0
    """Seconds of its batch's forward."""
    queued: float = 0.0
    """Seconds from ready to launched."""
    iterations: int = 1
    """Iterations, if it was a loop."""
    reason: str = BOUND
    """Why a loop ended."""
    read: int = 0
    """Tokens that a call added to the states of its run."""
    found: int = 0
    """How many of these tokens were found in pages of earlier runs."""
    kept: bool = False
    """The call was not made: its outputs are those of an earlier one."""
    links: tuple[float, ...] = ()
    """Seconds of each call of a chain that was made."""

    @property
    def stopped(self) -> bool:
        """True if the `until` of a loop ended it."""
        return self.reason != BOUND


class CallBegun(Struct, frozen=True):
    """A call is in flight, and its outputs may be given to other calls on the device, which are launched behind it.
    `CallDone` follows."""

    ref: Ref
    outputs: dict[str, Any]


class PieceCame(Struct, frozen=True):
    """A called task has sent a value, which leaves at once. `CallDone` follows."""

    ref: Ref
    port: str
    value: Any


class PartLeaves(Struct, frozen=True):
    """The next part of a state that leaves while it grows, for the peer to which `ref`, an export, moves it."""

    ref: Ref
    value: Any


class PartStored(Struct, frozen=True):
    """A part of a state that a peer has sent is stored."""

    run: RunId
    step: int
    rank: Rank
    """The peer."""
    held: int
    """Tokens that this rank has now, as in `PartTaken`."""


Event = (
    Arrived
    | Started
    | Extended
    | Cancelled
    | Gated
    | Watched
    | CallBegun
    | CallDone
    | PieceCame
    | PartLeaves
    | PartStored
    | Items
)


class RunCall(Struct, frozen=True):
    call: Call
    task: str = ""
    """`graph/task`, or a component's name, if the service serves it; otherwise the engine does."""
    outputs: tuple[str, ...] = ()
    """For a task, the outputs that edges take once it has ended."""
    pieces: tuple[str, ...] = ()
    """For a task, the outputs whose values leave as it sends them."""


class RunLoop(Struct, frozen=True):
    """Run a device loop. `Items` come while it runs, then `CallDone` with the outputs of kind `last` and `collect`."""

    call: LoopCall


class Allow(Struct, frozen=True):
    """Allow a loop to launch iterations up to this count; no effect if it has ended."""

    ref: Ref
    upto: int
    items: tuple[StreamItems, ...] = ()
    """The items that streams have brought for these iterations and later ones."""
    fed: int | None = None
    """`LoopCall.fed`, with these items."""


class MoveState(Struct, frozen=True):
    """Move a state. `fork`: copy `source` to `target`. `export`: return `source` as output `state`, as far as parts of
    it haven't left. `import`: replace `target` by `value`, behind the parts in `source`."""

    ref: Ref
    op: Literal["fork", "export", "import"]
    source: StateKey | None = None
    target: StateKey | None = None
    value: Any = None
    width: int | None = None
    """Sequences of a fork's target, if they may differ from the source's."""


class BeginMove(Struct, frozen=True):
    """Let a state leave in parts from now on, while it grows. `ref`: the export that is to move it, and gives its last
    part."""

    ref: Ref
    source: StateKey


class LetPart(Struct, frozen=True):
    """Let another part of a state leave. `held`: as in `PartTaken`."""

    ref: Ref
    held: int


class TakePart(Struct, frozen=True):
    """Store a part of a state that a peer has sent."""

    run: RunId
    step: int
    rank: Rank
    """The peer."""
    arriving: StateKey
    """The key of what has come so far, a state by itself until the last part is there."""
    target: StateKey
    """The state that it will replace. What that holds is no longer valid."""
    value: Any


class Send(Struct, frozen=True):
    """Send a message to a peer. Unless `value` is ABSENT, the loop packs it with `transport` and puts it into the
    message."""

    rank: Rank
    message: BetweenWorkers
    value: Any = ABSENT
    transport: str = "inline"
    walk: str = ""
    """Name of the Walk whose edge a `Deliver` follows."""


class Report(Struct, frozen=True):
    """Send a message to the conductor; `value` as in `Send` (for `Emit`)."""

    message: FromWorker
    value: Any = ABSENT


class DropStates(Struct, frozen=True):
    keys: tuple[StateKey, ...]


class Release(Struct, frozen=True):
    """Free everything of a run: queued calls, states, values. Answer `Released`."""

    run: RunId


class HoldLoops(Struct, frozen=True):
    """Make the run's device loops leave their slots and wait for `FreeLoops`."""

    run: RunId


class FreeLoops(Struct, frozen=True):
    run: RunId


class Observe(Struct, frozen=True):
    """Probe a value: for due taps, for a record, or because a call with this input is held."""

    why: Literal["tap", "held", "record"]
    run: RunId
    walk: str
    step: int
    source: str
    iteration: tuple[int, ...]
    modality: str
    """Modality of the value; for a state, its kind."""
    value: Any
    """The value; a `StateKey` stands for the content of that state."""
    taps: tuple[Tap, ...] = ()


StateMove = MoveState | BeginMove | LetPart | TakePart
Command = RunCall | RunLoop | Allow | StateMove | Send | Report | DropStates | Release | HoldLoops | FreeLoops | Observe
