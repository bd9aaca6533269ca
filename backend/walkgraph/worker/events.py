"""What goes into a worker's core and what comes out of it.

Values are local Python values and tensors; the loop packs and unpacks them.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire.messages import BetweenWorkers, FromWorker
from walkgraph.wire.watching import Gate, Tap, Watch


class _AbsentValue:
    """The value that is explicitly not there: of a skipped use, an unbound input, a finished stream."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _AbsentValue()


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message of a peer, its value unpacked (None where the message has none)."""

    message: BetweenWorkers
    value: Any = None


@dataclass(frozen=True, slots=True)
class Started:
    """`Start`, its inputs unpacked."""

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
class Cancelled:
    run: RunId


@dataclass(frozen=True, slots=True)
class Gated:
    gate: Gate


@dataclass(frozen=True, slots=True)
class Watched:
    """What is looked at from now on, and where runs stop."""

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
    """Of a loop: how many there were."""
    stopped: bool = False
    """Of a loop: its `until` ended it."""
    read: int = 0
    """Tokens that a call added to what its run keeps."""
    found: int = 0
    """Of these, what pages of earlier runs held already."""


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call is under way whose outputs other calls of the device may be given: these come behind it. `CallDone`
    follows."""

    ref: Ref
    outputs: dict[str, Any]


Event = Arrived | Started | Cancelled | Gated | Watched | CallBegun | CallDone | Items


@dataclass(frozen=True, slots=True)
class RunCall:
    call: Call


@dataclass(frozen=True, slots=True)
class RunLoop:
    """Answered by `Items` while it runs, then by `CallDone`, whose outputs are those of kind `last` and `collect`."""

    call: LoopCall


@dataclass(frozen=True, slots=True)
class Allow:
    """The loop may launch iterations up to this many; one that has ended meanwhile doesn't care."""

    ref: Ref
    upto: int


@dataclass(frozen=True, slots=True)
class MoveState:
    """`fork`: `source` into `target`. `export`: `source` leaves as output `state`. `import`: `value` is `target`."""

    ref: Ref
    op: Literal["fork", "export", "import"]
    source: StateKey | None = None
    target: StateKey | None = None
    value: Any = None
    width: int | None = None
    """Sequences of a fork's target, where it may differ from the source's."""


@dataclass(frozen=True, slots=True)
class Send:
    """To a peer; where `value` is not ABSENT the loop packs it with `transport` and puts it into the message."""

    rank: Rank
    message: BetweenWorkers
    value: Any = field(default=ABSENT)
    transport: str = "inline"
    walk: str = ""
    """Name of the Walk whose edge a `Deliver` goes along."""


@dataclass(frozen=True, slots=True)
class Report:
    """To the conductor; `value` as in `Send` (for `Emit`)."""

    message: FromWorker
    value: Any = field(default=ABSENT)


@dataclass(frozen=True, slots=True)
class DropStates:
    keys: tuple[StateKey, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Free all of this run: queued calls, states, values; then answer `Released`."""

    run: RunId


@dataclass(frozen=True, slots=True)
class HoldLoops:
    """The run's loops on the device leave their rows, and wait for `FreeLoops`."""

    run: RunId


@dataclass(frozen=True, slots=True)
class FreeLoops:
    run: RunId


@dataclass(frozen=True, slots=True)
class Observe:
    """Look at a value, for the taps that are due, for a record, or because a call that has it is held."""

    why: Literal["tap", "held", "record"]
    run: RunId
    walk: str
    step: int
    source: str
    iteration: tuple[int, ...]
    modality: str
    """Of a state, its kind."""
    value: Any
    """A `StateKey` stands for what the state holds."""
    taps: tuple[Tap, ...] = ()


Command = RunCall | RunLoop | Allow | MoveState | Send | Report | DropStates | Release | HoldLoops | FreeLoops | Observe
