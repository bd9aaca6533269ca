"""A simulated device: it computes the iterations of device loops on plain values, in simulated time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.loops.loop_runs import BatchGroup, LaunchValues, LoopRun
from walkgraph.engine.loops.spec import LoopCall, StreamItems
from walkgraph.errors import ErrorInfo
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.reference.plain_loop import PlainLoop
from walkgraph.simulation.simulator import Simulator

SLOTS = 3
STEP_SECONDS = 0.002
"""Mean duration of an iteration."""
SLOWNESS = (0.3, 1.0, 1.0, 8.0)
"""Factors by which devices differ: on a slow one, more happens while work is in flight."""

Serve = Callable[[Call], dict[str, Any]]
"""Computes a call of a node; the call fails on ValueError."""


class StepWatch:
    """`on`: batches of calls and launches of loops are reported."""

    on = False

    def span(self, device: object, mark: object, began: float, now: float) -> tuple[float, float]:
        return began, now


@dataclass(slots=True)
class SimulatedMark:
    """A point in the device's work, reached at a known time."""

    simulator: Simulator
    at: float

    def query(self) -> bool:
        return self.simulator.now >= self.at

    def synchronize(self) -> None:
        if not self.query():
            raise self.simulator.fail("the host waits for the device on the step path")

    def wait(self) -> None: ...


class SimulatedQueue:
    """The device's queue: launches run one after the other."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._slowness = simulator.chance.choice(SLOWNESS)
        self.busy_until = 0.0
        """Time at which all launches have ended."""

    def launch(self, seconds: float) -> SimulatedMark:
        """Adds a launch. `seconds`: its mean duration."""
        simulator = self._simulator
        seconds *= 2 * simulator.chance.random() * self._slowness
        self.busy_until = max(self.busy_until, simulator.now) + seconds
        return SimulatedMark(simulator, self.busy_until)


class IterationForms:
    """The uses of a loop that each iteration calls. Implements `forms`."""

    def __init__(self, call: LoopCall) -> None:
        masks = [use.active for use in call.uses]
        self._same = all(mask is None for mask in masks)
        self._masks = masks

    def at(self, iteration: int) -> tuple[bool, ...]:
        if self._same:
            return ()
        return tuple(mask is None or mask[iteration] for mask in self._masks)

    def alike(self, iteration: int, most: int) -> int:
        if self._same:
            return most
        here = self.at(iteration)
        return next((k for k in range(1, most) if self.at(iteration + k) != here), most)


@dataclass(slots=True)
class EnteredSlot:
    """A run's entry into a slot."""

    times: int
    bound: str
    forms: Any


@dataclass(slots=True)
class SimulatedLaunch:
    mark: Mark | None
    stops: list[list[bool]]
    sound: list[list[bool]]
    values: Mapping[str, LaunchValues]
    uses: tuple[int, ...] = ()

    def read(self) -> tuple[list[list[bool]], list[list[bool]], Mapping[str, Any]]:
        if self.mark is not None and not self.mark.query():
            raise RuntimeError("a launch is read before it is over")
        return self.stops, self.sound, self.values

    def span(self, began: float, now: float) -> tuple[float, float]:
        return began, now


@dataclass(slots=True)
class SlotContents:
    """A loop run in a slot. Once it has ended (`live` is False), iterations don't change it."""

    loop: PlainLoop
    live: bool = True


@dataclass
class SimulatedSlots:
    begin: Callable[[LoopCall], PlainLoop]
    gives: bool = True
    told: Sequence[str] = ()
    read_bytes: Sequence[int] = ()
    sent_bytes: Sequence[int] = ()
    cells: dict[int, SlotContents] = field(default_factory=dict[int, SlotContents])

    def enter(self, run: LoopRun, slot: int) -> EnteredSlot:
        self.cells[slot] = SlotContents(self.begin(run.call)) if run.cells is None else run.cells["contents"]
        for items in run.items:
            self.put_items(slot, items)
        run.items.clear()
        return EnteredSlot(run.call.times, "", IterationForms(run.call))

    def fill(self, runs: Sequence[LoopRun]) -> None: ...

    def put_items(self, slot: int, items: StreamItems) -> None:
        self.cells[slot].loop.put_items(items)

    def link(self, slot: int, links: Sequence[int]) -> None: ...

    def leave(self, run: LoopRun) -> dict[Any, Any]:
        return {"contents": self.cells.pop(run.slot)}

    def end(self, run: LoopRun) -> tuple[dict[str, Any], Mark | None]:
        return self.cells.pop(run.slot).loop.last(), None


@dataclass
class SimulatedGraphs:
    queue: SimulatedQueue
    slots: SimulatedSlots
    sizes: tuple[int, ...] = (1, 2, SLOTS)

    def expect(self, counts: Sequence[int]) -> None: ...

    def counts(self, runs: Sequence[LoopRun]) -> list[int]:
        return [1, 2, 4]

    def long(self, runs: int) -> bool:
        return False

    def prepare(self, call: LoopCall, progress: Any) -> None: ...

    def close(self) -> None: ...

    def ready(self, runs: Sequence[LoopRun], iterations: int) -> tuple[list[LoopRun], int]:
        if len({run.form for run in runs}) != 1:
            raise CallFailed("runs that do not do the same are launched together")
        return list(runs), iterations

    def replay(self, ready: Any) -> SimulatedLaunch:
        runs, iterations = ready
        call: LoopCall = runs[0].call
        form = runs[0].forms.at(runs[0].launched - iterations)
        outputs = [out for out in call.spec.outputs if out.kind != "last" and (not form or form[out.use])]
        stops, sound = [[[False] * len(runs) for _ in range(iterations)] for _ in range(2)]
        values: dict[str, list[list[Any]]] = {
            out.key: [[None] * len(runs) for _ in range(iterations)] for out in outputs
        }
        for k in range(iterations):
            for row, run in enumerate(runs):
                contents = self.slots.cells[run.slot]
                sound[k][row] = True
                if not contents.live:
                    continue
                try:
                    contents.loop.iterate()
                except ValueError:  # on a device, a node that is meant to fail gives NaN
                    sound[k][row] = contents.live = False
                    continue
                stops[k][row] = contents.loop.turn()
                contents.live = not stops[k][row]
                for out in outputs:
                    values[out.key][k][row] = contents.loop.gave(out)
        mark = self.queue.launch(STEP_SECONDS * iterations)
        return SimulatedLaunch(mark, stops, sound, values)


class MadeGroup(NamedTuple):
    key: Any


class SimulatedDevice:
    """Implements `LoopDeviceLike`."""

    def __init__(
        self, simulator: Simulator, queue: SimulatedQueue, functions: Mapping[str, Serve], states: StateStore
    ) -> None:
        self._simulator, self._queue, self._functions, self._states = simulator, queue, functions, states

    def made(self, call: LoopCall) -> MadeGroup:
        return MadeGroup((call.spec.key, tuple(use.node for use in call.spec.uses)))

    def opened(self, made: Any, call: LoopCall) -> BatchGroup:
        slots = SimulatedSlots(self._begin)
        return BatchGroup(made.key, slots, SimulatedGraphs(self._queue, slots), False, list(range(SLOTS)))

    def apart(self, values: LaunchValues) -> LaunchValues:
        return values

    def stacked(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def mark(self) -> Mark | None:
        return None

    def failure(self, call: LoopCall, raised: Exception) -> ErrorInfo:
        raise self._simulator.fail(f"`{call.loop}` of run {call.run} fails on its device: {raised}") from raised

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo:
        return ErrorInfo(code="numeric_error", message="no number", walk=call.walk, iteration=(iteration,))

    def _begin(self, call: LoopCall) -> PlainLoop:
        def renew() -> None:
            for key, anew in call.anew.items():
                self._states.renew(key, anew.source)

        return PlainLoop(call, self._functions, begin=renew)
