"""Runs in device loops: the scheduler's record of each, the events it reports, and the protocols of a device.

    queued ──> in a slot ──> launched, launched, ... ──> ended
       ^           │ leaves: its run is held, or a queued run of higher priority finds no slot
       └───────────┘

The scheduler has three parts: `slot_admission`, `launch` and `collection`. They import no torch: through the protocols
here they schedule the loops of a GPU, and equally those of a simulation.
"""

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from walkgraph.abi.calls import Outputs
from walkgraph.engine.device.marks import Mark, Timing
from walkgraph.engine.loops.spec import LoopCall, StreamItems
from walkgraph.engine.pacing.playback import Playback
from walkgraph.engine.pacing.turns import StepTimes, batch_size
from walkgraph.errors import ErrorInfo
from walkgraph.placement.tables import BOUND, STOP

# ── events ──


class LoopDone(NamedTuple):
    call: LoopCall
    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    iterations: int
    stopped: bool
    """True if its `until` ended it."""
    busy: float
    """Seconds of its launches, each shared with the other slots in it."""
    queued: float
    """Seconds that it waited for slots."""
    batch: int
    """Runs in its last launch."""
    began: float = 0.0
    """When it got its first slot; 0 if it never had one."""

    @property
    def reason(self) -> str:
        """Why it ended, if not by an error."""
        if not self.stopped:
            return BOUND
        return next((name for name, key in self.call.spec.reasons if (self.outputs or {}).get(key)), STOP)


class LoopKey(NamedTuple):
    """Names a loop on its rank."""

    run: str
    step: int
    use: int
    iteration: tuple[int, ...]


class LoopMember(NamedTuple):
    """A run in a launch, as telemetry names it; it holds no values."""

    key: LoopKey
    walk: str
    loop: str
    spans: bool
    names: tuple[str, ...]
    """Names of the uses in its body."""
    nodes: tuple[str, ...]


class Stepped(NamedTuple):
    """A finished launch."""

    members: tuple[LoopMember, ...]
    """The same object from launch to launch while the same runs are in it."""
    first: Sequence[int]
    """First iteration of each member in the launch."""
    ready: Sequence[float]
    """Since when each member's first iteration could have been launched."""
    uses: tuple[int, ...]
    """Indices in the body of the uses that took part."""
    iterations: int
    timing: Timing


# ── records ──

LaunchValues = Sequence[Sequence[Any]]
"""Values of one output, by iteration and row of a launch."""


class EnteredLike(Protocol):
    """The device's record of a run in one of its slots."""

    times: int
    """Iterations until it ends, or until its states are full."""
    bound: str
    """The message to the client if full states end it."""
    forms: Any
    """`at(iteration)`: the form of an iteration, hashable. `alike(iteration, most)`: how many iterations from this one
    on have the same form, up to `most`."""


@dataclass(slots=True, eq=False)
class LoopRun:
    """One entry of a device loop by a run, from the queue to its end."""

    call: LoopCall
    due: float
    """Ready time, moved forward by a second for each level of priority: the earliest gets the next slot."""
    number: int
    """Number of its arrival; breaks ties."""
    allowed: int | None
    """Iterations that may be launched, counted from the loop's start; None for all."""
    fed: int | None = None
    """Iterations whose items of streams have come; None if it waits for none."""
    batch_key: Hashable = None
    """None until it is known."""
    slot: int = -1
    """-1 if it has none."""
    entered: Any = None
    """The device's record; None before its first slot."""
    times: int = 0
    forms: Any = None
    """`EnteredLike.times` and `forms`, copied here because every launch reads them."""
    launched: int = 0
    done: int = 0
    handed: int = 0
    """Iterations whose values were handed out."""
    leaving: bool = False
    """True if it leaves its slot as soon as nothing of it is in flight."""
    cells: MutableMapping[Any, Any] | None = None
    """The content of its slot, while it has none."""
    items: list[StreamItems] = field(default_factory=list[StreamItems])
    """Items of streams that came while it had no slot."""
    pieces: list[tuple[Mapping[str, LaunchValues], int, int]] = field(default_factory=list[Any])
    """For each iteration that was not handed out: the values of its launch, and its iteration and row in these."""
    told: dict[str, list[int | None]] = field(default_factory=dict[str, list[int | None]])
    """Integers that its iterations gave so far, by output, for those that its slots ask for."""
    collected: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Values that are collected until its end, by output."""
    busy: float = 0.0
    batch: int = 0
    """Runs in its last launch."""
    queued: float = 0.0
    """Seconds until it had its first slot."""
    waited: float = 0.0
    """Seconds that it waited for a slot after it had left one."""
    since: float = 0.0
    """When its last launch was over, or more iterations were allowed after that."""
    linked: bool = True
    """False while the inboxes of its values at peers are not known."""
    playback: Playback | None = None
    """That of its run; None if its values are not played as they come."""
    follows: Callable[[], int] | None = None
    """Gives the iterations that its leader has launched; None if it follows no leader."""
    key: LoopKey = field(init=False)
    _member: LoopMember | None = None

    def __post_init__(self) -> None:
        call = self.call
        self.key = LoopKey(call.run, call.step, call.use, call.iteration)

    @property
    def order(self) -> tuple[float, int]:
        """Its place in the queue, which it gets back when it leaves its slot."""
        return self.due, self.number

    @property
    def member(self) -> LoopMember:
        if self._member is None:
            call = self.call
            names, nodes = tuple([use.name for use in call.spec.uses]), tuple([use.node for use in call.spec.uses])
            self._member = LoopMember(self.key, call.walk, call.loop, call.spans, names, nodes)
        return self._member

    @property
    def wants(self) -> bool:
        """True if another iteration may be launched. Iterations that a leader has launched must be launched here, even
        if the run is held."""
        if self.slot < 0 or not self.linked or (self.leaving and self.follows is None):
            return False
        return self.reach > 0

    @property
    def ready(self) -> float:
        """Since when only slots and other launches kept its next iteration waiting."""
        return max(self.since, self.call.ready_at)

    @property
    def form(self) -> Hashable:
        """The form of the next iteration to launch."""
        return self.forms.at(self.launched)

    @property
    def lacks(self) -> float:
        """Iterations that playback waits for: those of the next chunk. 0 if its values are not played."""
        timed = self.call.timed
        return 0.0 if timed is None or self.playback is None else self.playback.lacks(self.made) / timed.seconds

    @property
    def made(self) -> float:
        """Seconds of playback in what it was launched for; 0 if its values are not played."""
        timed = self.call.timed
        return 0.0 if timed is None else timed.before + self.launched * timed.seconds

    @property
    def reach(self) -> int:
        """The number of iterations that may be launched now."""
        most, allowed = self.times, self.allowed
        if allowed is not None and allowed < most:
            most = allowed
        if self.fed is not None and self.fed < most:
            most = self.fed
        if self.follows is not None:
            most = min(most, self.follows())
        return most - self.launched

    def enter(self, entered: EnteredLike, now: float) -> None:
        """Note that the device has filled a slot for it."""
        if self.entered is None:
            self.queued = max(0.0, now - self.call.ready_at)
        else:
            self.waited += max(0.0, now - self.ready)
        self.entered, self.times, self.forms, self.cells = entered, entered.times, entered.forms, None

    def ended(self, outputs: Outputs | None, error: ErrorInfo | None, *, stopped: bool = False) -> LoopDone:
        queued, began = self.queued + self.waited, self.call.ready_at + self.queued
        return LoopDone(self.call, outputs, error, self.done, stopped, self.busy, queued, self.batch, began)


class LaunchBatch:
    """The runs of a launch; one object while the same runs are launched."""

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
    """True if its loops have parts on other ranks, for which its launches wait on the device."""
    free: list[int]
    """Free slots."""
    runs: list[LoopRun] = field(default_factory=list[LoopRun])
    """Runs in slots, in the order of their launches."""
    placed: dict[LoopKey, LoopRun] = field(default_factory=dict[LoopKey, LoopRun])
    """The same runs by their keys."""
    batch: LaunchBatch = field(default_factory=lambda: LaunchBatch(()))
    """The batch of its last launch."""
    in_flight: int = 0
    """The number of its launches that are not collected."""
    times: StepTimes = field(default_factory=StepTimes)
    """Seconds of an iteration, by batch size."""
    apart: float = 0.0
    """Seconds of launches without the runs that are ahead, since all were launched."""

    @property
    def seconds(self) -> float:
        """Measured seconds of an iteration of all its runs; 0 if there is no measurement."""
        return self.seconds_of(len(self.runs))

    def note(self, rows: int, seconds: float) -> None:
        """Note a measurement of an iteration."""
        self.times.note(batch_size(rows, self.graphs.sizes), seconds)

    def seconds_of(self, rows: int) -> float:
        """Measured seconds of an iteration of so many rows."""
        return self.times.of(batch_size(rows, self.graphs.sizes))

    def take_slot(self, run: LoopRun, slot: int) -> None:
        self.free.remove(slot)
        run.slot = slot
        self.runs.append(run)
        self.placed[run.key] = run

    def free_slot(self, run: LoopRun) -> None:
        self.runs.remove(run)
        del self.placed[run.key]
        self.free.append(run.slot)
        run.slot = -1
        # Don't keep the values of a run that has left.
        self.batch = LaunchBatch(())


# ── protocols of a device ──


class LaunchedLike(Protocol):
    """A launch on the device."""

    uses: tuple[int, ...]
    """Indices in the body of the uses that take part."""
    mark: Mark | None
    """Mark behind it; None if it was done at once."""

    def read(self) -> tuple[Sequence[Sequence[bool]], Sequence[Sequence[bool]], Mapping[str, Any]]:
        """Read a finished launch: by iteration and row, whether it stopped and whether its numbers were finite; then
        values by output, `[iterations, rows, ..]`."""
        ...

    def span(self, began: float, now: float) -> tuple[float, float]:
        """When it started and finished, as exactly as the device can tell. `began`, `now`: when the host began to
        launch it, and when it saw the end."""
        ...


class LoopGraphsLike(Protocol):
    """Captures and replays the launches of one batch group."""

    sizes: tuple[int, ...]
    """Batch sizes, rising."""

    def expect(self, counts: Sequence[int]) -> None:
        """Note the likely iteration counts of later loops."""
        ...

    def prepare(self, call: LoopCall, progress: Callable[[float], None]) -> None:
        """Capture the launches of loops like this one."""
        ...

    def counts(self, runs: Sequence[LoopRun]) -> Sequence[int]:
        """Counts of iterations that a launch of these runs may have, always including 1."""
        ...

    def ready(self, runs: Sequence[LoopRun], iterations: int) -> Any:
        """Prepare a launch of these runs' slots, for `replay`."""
        ...

    def replay(self, ready: Any) -> LaunchedLike: ...

    def long(self, runs: int) -> bool:
        """True if launches are so long that the host's work between them doesn't matter."""
        ...

    def close(self) -> None:
        """Free the graphs. No run may be in a slot, and nothing in flight."""
        ...


class LoopSlotsLike(Protocol):
    """The slots of one batch group."""

    gives: bool
    """True if iterations give the host values."""
    told: Sequence[str]
    """Outputs of one integer that the host remembers until a run leaves its slot for good."""
    read_bytes: Sequence[int]
    """Bytes of a value of each channel from a peer."""
    sent_bytes: Sequence[int]
    """Bytes of a value of each channel to a peer."""

    def enter(self, run: LoopRun, slot: int) -> EnteredLike:
        """Give a run a slot, for its entering values or for the content of the slot that it left. The slot is filled by
        `fill`."""
        ...

    def fill(self, runs: Sequence[LoopRun]) -> None:
        """Fill the slots of runs that have entered, before anything of them is launched. If it raises, it can be called
        again."""
        ...

    def put_items(self, slot: int, items: StreamItems) -> None:
        """Fill in what a stream has brought for iterations that are not launched yet."""
        ...

    def link(self, slot: int, links: Sequence[int]) -> None:
        """Fill in the addresses of its channels at peers."""
        ...

    def leave(self, run: LoopRun) -> MutableMapping[Any, Any]:
        """Write the slot's content back to the run's states. Returns the rest, for another slot."""
        ...

    def end(self, run: LoopRun) -> tuple[Outputs, Mark | None]:
        """Leave for good. Returns the values of the last iteration, complete once the mark is reached."""
        ...


class LoopDeviceLike(Protocol):
    def made(self, call: LoopCall) -> Any:
        """Make the body of a call; `key` of the result is its batch key. Slow for a new body. Raises what ends the
        run."""
        ...

    def opened(self, made: Any, call: LoopCall) -> BatchGroup: ...

    def apart(self, values: Any) -> LaunchValues:
        """Take the values of an output apart, `[iterations, rows, ..]`: of all rows at once, since each view takes
        the host as long as a step of Python."""
        ...

    def stacked(self, values: Sequence[Any]) -> Any:
        """Stack values along a new first axis."""
        ...

    def mark(self) -> Mark | None:
        """Mark the end of everything launched; None if it is done already."""
        ...

    def failure(self, call: LoopCall, raised: Exception) -> ErrorInfo: ...

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo: ...
