"""The events that a worker's core takes, and the commands that it returns.

Values are local Python values and tensors; the loop packs and unpacks them.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.loops.spec import Items, LoopCall, StreamItems
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import BOUND
from walkgraph.wire.messages import BetweenWorkers, FromWorker
from walkgraph.wire.watching import Gate, Tap, Watch


class _AbsentValue:
    """Stands for a value that is explicitly missing: from a skipped use, an unbound input, or a finished stream."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _AbsentValue()


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message from a peer, with its value unpacked (None if it has none)."""

    message: BetweenWorkers
    value: Any = None


@dataclass(frozen=True, slots=True)
class Started:
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


@dataclass(frozen=True, slots=True)
class Extended:
    """The conductor's `Extend`."""

    run: RunId
    leg: Any


@dataclass(frozen=True, slots=True)
class Cancelled:
    run: RunId


@dataclass(frozen=True, slots=True)
class Gated:
    gate: Gate


@dataclass(frozen=True, slots=True)
class Watched:
    """New taps and breakpoints."""

    watch: Watch


@dataclass(frozen=True, slots=True)
class Ref:
    """Names one call or state operation of a run."""

    run: str
    step: int
    use: int
    iteration: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallDone:
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


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call is in flight, and its outputs may be given to other calls on the device, which are launched behind it.
    `CallDone` follows."""

    ref: Ref
    outputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PieceCame:
    """A called task has sent a value, which leaves at once. `CallDone` follows."""

    ref: Ref
    port: str
    value: Any


Event = Arrived | Started | Extended | Cancelled | Gated | Watched | CallBegun | CallDone | PieceCame | Items


@dataclass(frozen=True, slots=True)
class RunCall:
    call: Call
    task: str = ""
    """`graph/task`, or a component's name, if the service serves it; otherwise the engine does."""
    outputs: tuple[str, ...] = ()
    """For a task, the outputs that edges take once it has ended."""
    pieces: tuple[str, ...] = ()
    """For a task, the outputs whose values leave as it sends them."""


@dataclass(frozen=True, slots=True)
class RunLoop:
    """Run a device loop. `Items` come while it runs, then `CallDone` with the outputs of kind `last` and `collect`."""

    call: LoopCall


@dataclass(frozen=True, slots=True)
class Allow:
    """Allow a loop to launch iterations up to this count; no effect if it has ended."""

    ref: Ref
    upto: int
    items: tuple[StreamItems, ...] = ()
    """The items that streams have brought for these iterations and later ones."""


@dataclass(frozen=True, slots=True)
class MoveState:
    """Move a state. `fork`: copy `source` to `target`. `export`: return `source` as output `state`. `import`: replace
    `target` by `value`."""

    ref: Ref
    op: Literal["fork", "export", "import"]
    source: StateKey | None = None
    target: StateKey | None = None
    value: Any = None
    width: int | None = None
    """Sequences of a fork's target, if they may differ from the source's."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a peer. Unless `value` is ABSENT, the loop packs it with `transport` and puts it into the
    message."""

    rank: Rank
    message: BetweenWorkers
    value: Any = field(default=ABSENT)
    transport: str = "inline"
    walk: str = ""
    """Name of the Walk whose edge a `Deliver` follows."""


@dataclass(frozen=True, slots=True)
class Report:
    """Send a message to the conductor; `value` as in `Send` (for `Emit`)."""

    message: FromWorker
    value: Any = field(default=ABSENT)


@dataclass(frozen=True, slots=True)
class DropStates:
    keys: tuple[StateKey, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Free everything of a run: queued calls, states, values. Answer `Released`."""

    run: RunId


@dataclass(frozen=True, slots=True)
class HoldLoops:
    """Make the run's device loops leave their slots and wait for `FreeLoops`."""

    run: RunId


@dataclass(frozen=True, slots=True)
class FreeLoops:
    run: RunId


@dataclass(frozen=True, slots=True)
class Observe:
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


Command = RunCall | RunLoop | Allow | MoveState | Send | Report | DropStates | Release | HoldLoops | FreeLoops | Observe
