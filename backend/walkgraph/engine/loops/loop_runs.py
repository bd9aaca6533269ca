"""Runs in device loops: what the scheduler keeps of each, what it reports of them, and what it asks of a device.

    queued ──> in a slot ──> launched, launched, ... ──> ended
       ^           │ leaves: its run is held, or a queued run of higher priority finds no slot
       └───────────┘

The scheduler is three parts, `slot_admission`, `launch` and `collection`. They import no torch: they schedule the
loops of a GPU through the protocols here, and those of a simulation just so.
"""

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from walkgraph.abi.calls import Outputs
from walkgraph.engine.device.marks import Mark, Timing
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.errors import ErrorInfo

# ── what leaves the scheduler ──


class LoopDone(NamedTuple):
    call: LoopCall
    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    iterations: int
    stopped: bool
    """By its `until`."""
    busy: float
    """Seconds of its launches, shared with the other slots of each."""
    queued: float
    """Seconds that it waited for slots."""
    batch: int
    """Runs in its last launch."""
    began: float = 0.0
    """When it had its first slot; 0 for one that had none."""


class LoopKey(NamedTuple):
    """Names a loop on its rank."""

    run: str
    step: int
    use: int
    iteration: tuple[int, ...]


class LoopMember(NamedTuple):
    """A run in a launch, as telemetry names it; nothing of what it computes."""

    key: LoopKey
    walk: str
    loop: str
    spans: bool
    names: tuple[str, ...]
    """Of its body's uses."""
    nodes: tuple[str, ...]


class Stepped(NamedTuple):
    """A launch that is over."""

    members: tuple[LoopMember, ...]
    """The same object from launch to launch, as long as the same runs are in it."""
    first: Sequence[int]
    """Of each, its first iteration in the launch."""
    ready: Sequence[float]
    """Of each, since when that could have been launched."""
    uses: tuple[int, ...]
    """That took part, by their places in the body."""
    iterations: int
    timing: Timing


# ── what the scheduler keeps ──


class EnteredLike(Protocol):
    """What a device knows of a run in one of its slots."""

    times: int
    """Iterations until it ends, or until its states are full."""
    bound: str
    """What a client reads where the states end it."""
    forms: Any
    """`at(iteration)`: what it does, as something hashable; `alike(iteration, most)`: how many iterations from this one
    on do the same, `most` at most."""


@dataclass(slots=True, eq=False)
class LoopRun:
    """One entry of a device loop by a run, from the queue to its end."""

    call: LoopCall
    due: float
    """Ready time, moved forward by a second for each level of priority: the earliest gets the next slot."""
    number: int
    """Of arrival: breaks ties."""
    allowed: int | None
    """Iterations that may be launched, counted from the loop's start; None: all."""
    batch_key: Hashable = None
    """None before it is known."""
    slot: int = -1
    """-1: it has none."""
    entered: Any = None
    """As the device has given it: None before its first slot."""
    times: int = 0
    forms: Any = None
    """`EnteredLike.times` and `forms`: read before every launch."""
    launched: int = 0
    done: int = 0
    handed: int = 0
    """Iterations whose values were handed out."""
    leaving: bool = False
    """It leaves its slot once nothing is in flight for it."""
    cells: MutableMapping[Any, Any] | None = None
    """What its slot held, while it has none."""
    pieces: list[tuple[Mapping[str, Any], int, int]] = field(default_factory=list[Any])
    """For each iteration that was not handed out: the values of a launch that has any, its iteration there, its row
    there."""
    collected: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Values that it gives at its end, by output."""
    busy: float = 0.0
    batch: int = 0
    """Runs in its last launch."""
    queued: float = 0.0
    """Seconds until it had its first slot."""
    waited: float = 0.0
    """Seconds for another slot, after it left one."""
    since: float = 0.0
    """Its last launch was over, or it was allowed more after that."""
    linked: bool = True
    """False: it is not known yet where what it sends to peers goes."""
    follows: Callable[[], int] | None = None
    """Iterations that its leader has launched; None for one that follows nobody."""
    _member: LoopMember | None = None

    @property
    def order(self) -> tuple[float, int]:
        """Its place in the queue, which it has again when it leaves its slot."""
        return self.due, self.number

    @property
    def key(self) -> LoopKey:
        call = self.call
        return LoopKey(call.run, call.step, call.use, call.iteration)

    @property
    def member(self) -> LoopMember:
        if self._member is None:
            call = self.call
            names, nodes = tuple([use.name for use in call.spec.uses]), tuple([use.node for use in call.spec.uses])
            self._member = LoopMember(self.key, call.walk, call.loop, call.spans, names, nodes)
        return self._member

    @property
    def wants(self) -> bool:
        """Whether another iteration may be launched. What a leader has launched must be, though the run is held."""
        leaving = self.leaving and self.follows is None
        return self.slot >= 0 and not leaving and self.linked and self.reach > 0

    @property
    def ready(self) -> float:
        """Since when nothing but a slot, and the launches of others, kept its next iteration waiting."""
        return max(self.since, self.call.ready_at)

    @property
    def form(self) -> Hashable:
        """Of the iteration that is launched next."""
        return self.forms.at(self.launched)

    @property
    def reach(self) -> int:
        """Iterations that may be launched."""
        most = self.times if self.allowed is None else min(self.allowed, self.times)
        if self.follows is not None:
            most = min(most, self.follows())
        return most - self.launched

    def enter(self, entered: EnteredLike, now: float) -> None:
        """The device has filled a slot for it."""
        if self.entered is None:
            self.queued = max(0.0, now - self.call.ready_at)
        else:
            self.waited += max(0.0, now - self.ready)
        self.entered, self.times, self.forms, self.cells = entered, entered.times, entered.forms, None

    def ended(self, outputs: Outputs | None, error: ErrorInfo | None, *, stopped: bool = False) -> LoopDone:
        queued, began = self.queued + self.waited, self.call.ready_at + self.queued
        return LoopDone(self.call, outputs, error, self.done, stopped, self.busy, queued, self.batch, began)


class LaunchBatch:
    """The runs of a launch, as long as the same ones are launched."""

    __slots__ = ("_members", "runs")

    def __init__(self, runs: Sequence[LoopRun]) -> None:
        self.runs = tuple(runs)
        self._members: tuple[LoopMember, ...] | None = None

    @property
    def members(self) -> tuple[LoopMember, ...]:
        if self._members is None:
            self._members = tuple([run.member for run in self.runs])
        return self._members


@dataclass(slots=True, eq=False)
class BatchGroup:
    """The runs in slots whose loops have one batch key: one launch may step them together."""

    key: Hashable
    slots: "LoopSlotsLike"
    graphs: "LoopGraphsLike"
    spans: bool
    """Its loops have parts on other ranks, for which their launches wait on the device."""
    free: list[int]
    """Slots that nobody has."""
    runs: list[LoopRun] = field(default_factory=list[LoopRun])
    """In the order in which they are launched."""
    batch: LaunchBatch = field(default_factory=lambda: LaunchBatch(()))
    """Of its last launch."""
    in_flight: int = 0
    """Its launches that were not collected."""

    def take_slot(self, run: LoopRun, slot: int) -> None:
        self.free.remove(slot)
        run.slot = slot
        self.runs.append(run)

    def free_slot(self, run: LoopRun) -> None:
        self.runs.remove(run)
        self.free.append(run.slot)
        run.slot = -1
        # What the run was entered with is not kept by those that go on.
        self.batch = LaunchBatch(())


# ── what the scheduler asks of a device ──


class LaunchedLike(Protocol):
    """A launch that the device has been given."""

    uses: tuple[int, ...]
    """That take part, by their places in the body."""
    mark: Mark | None
    """Behind it; None where it was done at once."""

    def read(self) -> tuple[Sequence[Sequence[bool]], Sequence[Sequence[bool]], Mapping[str, Any]]:
        """Of a launch that is over: by iteration and row whether it stopped and whether it was sound; and values by
        output, `[iterations, rows, ..]`."""
        ...

    def span(self, began: float, now: float) -> tuple[float, float]:
        """When it has started and finished, as well as the device can tell. `began`, `now`: when the host has begun to
        launch it, and knows that it is over."""
        ...


class LoopGraphsLike(Protocol):
    """What replays the launches of one batch group."""

    sizes: tuple[int, ...]
    """Batch sizes, rising."""

    def expect(self, counts: Sequence[int]) -> None:
        """Loops to come are likeliest to have so many iterations."""
        ...

    def prepare(self, call: LoopCall, progress: Callable[[float], None]) -> None:
        """Capture what loops like this one are launched with."""
        ...

    def counts(self, runs: Sequence[LoopRun]) -> Sequence[int]:
        """Iterations that a launch of these may have; 1 is among them."""
        ...

    def ready(self, runs: Sequence[LoopRun], iterations: int) -> Any:
        """What replays such a launch, brought to these slots."""
        ...

    def replay(self, ready: Any) -> LaunchedLike: ...

    def long(self, runs: int) -> bool:
        """Whether a launch is so long that what the host does between two of them is nothing."""
        ...

    def close(self) -> None:
        """Nobody has a slot of the group, and nothing of it is in flight."""
        ...


class LoopSlotsLike(Protocol):
    """The slots of one batch group."""

    gives: bool
    """Whether iterations give the host values."""
    read_bytes: Sequence[int]
    """Of a value of each channel that comes from a peer."""
    sent_bytes: Sequence[int]
    """Of a value of each channel that goes to one."""

    def enter(self, run: LoopRun, slot: int) -> EnteredLike:
        """Fill a slot with what the run enters with, or with what it has kept since it left one."""
        ...

    def link(self, slot: int, links: Sequence[int]) -> None:
        """Fill in where what it sends to peers goes."""
        ...

    def leave(self, run: LoopRun) -> MutableMapping[Any, Any]:
        """Give the run's states back what its slot holds; what is left of it, for another slot."""
        ...

    def end(self, run: LoopRun) -> tuple[Outputs, Mark | None]:
        """As `leave`, for good: the values of the last iteration, there once the mark is reached."""
        ...


class LoopDeviceLike(Protocol):
    def made(self, call: LoopCall) -> Any:
        """What its slots and graphs are made of; `key` is the batch key, which loops share whose runs may be in one
        launch. It takes long. Raises what ends the run."""
        ...

    def opened(self, made: Any, call: LoopCall) -> BatchGroup: ...

    def stacked(self, values: Sequence[Any]) -> Any:
        """Values along a new first axis."""
        ...

    def mark(self) -> Mark | None:
        """Behind all that was launched; None where that is done already."""
        ...

    def failure(self, call: LoopCall, raised: Exception) -> ErrorInfo: ...

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo: ...
