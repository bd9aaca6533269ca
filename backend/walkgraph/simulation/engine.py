"""The engine of a simulated rank: the real schedules of calls and of device loops, over a simulated device.

add, add_loop ──> step ──> CallBegun, CallDone, Items, LoopDone, SimulatedSwap
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from walkgraph.abi.calls import Call, ChunkInfo
from walkgraph.engine.calls.schedule import MIX, Schedule
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.errors import ErrorInfo
from walkgraph.simulation.device import Serve, SimulatedDevice, SimulatedMark, SimulatedQueue
from walkgraph.simulation.states import StateStore
from walkgraph.simulation.timeline import Timeline
from walkgraph.worker.events import CallBegun, CallDone, Ref

CALL_SECONDS = 0.002
"""A batch's, on average."""
SWAP_SECONDS = 0.01
TURNS = 4
"""Batches in flight."""
BEGUN = 0.3
"""The share of calls that are followed while they are in flight."""


class SimulatedSwap(NamedTuple):
    """A run is out, or back."""

    run: str
    out: bool


class CallBatch(NamedTuple):
    """In flight."""

    mark: SimulatedMark
    done: tuple[CallDone, ...]


class _Off:
    on = False


@dataclass(slots=True)
class _Suspended:
    state: str = "stopping"
    """`stopping`, `leaving`, `out`, `coming`."""
    wanted: bool = False
    """To be here."""
    asked: bool = True
    """Who has asked for it to be out is to be told."""
    mark: SimulatedMark | None = None

    @property
    def moves(self) -> bool:
        return self.state != "out" or self.wanted or self.asked


Functions = Callable[[StateStore], Mapping[str, Serve]]
"""Node -> what serves its calls; a ValueError fails one."""


class SimulatedEngine:
    def __init__(
        self,
        timeline: Timeline,
        chance: random.Random,
        functions: Functions,
        states: StateStore,
        fail: Callable[[str], Exception],
        device: type[SimulatedDevice] = SimulatedDevice,
    ) -> None:
        self._timeline, self._chance = timeline, chance
        self._queue = SimulatedQueue(timeline, chance)
        self.states, self._functions = states, functions(states)
        self.chunks: dict[str, dict[tuple[int, int, str], list[ChunkInfo]]] = {}
        """What uses have read of streams: by run, then by step, use and port."""
        self.loops = LoopScheduler(
            device(self._queue, self._functions, states, fail),
            watch=_Off(),
            here=self._here,
            clock=lambda: timeline.now,
        )
        self._schedule = Schedule()
        self._in_flight: deque[CallBatch] = deque()
        self._begun: list[CallBegun] = []
        self._suspended: dict[str, _Suspended] = {}
        self._held: set[str] = set()
        """Runs whose loops are held."""
        self._since = 0
        """Batches since the last step of the loops."""

    # ── in ──

    def add(self, call: Call) -> None:
        self._schedule.add(call, call.node, 1)

    def add_loop(self, call: LoopCall) -> None:
        self.loops.add(call)

    def hold_loops(self, run: str) -> None:
        self._held.add(run)
        self.loops.admission.hold(run)

    def release_loops(self, run: str) -> None:
        self._held.discard(run)
        if run not in self._suspended:
            self.loops.admission.release(run)

    def suspend(self, run: str) -> None:
        found = self._suspended.get(run)
        if found is None:
            self._suspended[run] = _Suspended()
            self._schedule.hold(run)
            self.loops.admission.hold(run)
        else:
            found.wanted, found.asked = False, True

    def resume(self, run: str) -> None:
        if run in self._suspended:
            self._suspended[run].wanted = True

    def drop(self, run: str) -> None:
        """Forget a run."""
        self._held.discard(run)
        self._suspended.pop(run, None)
        self.loops.cancel(run)
        self._schedule.cancel(run)
        self._begun = [one for one in self._begun if one.ref.run != run]
        self.chunks.pop(run, None)
        self.states.drop_run(run)

    # ── step ──

    def step(self) -> list[CallBegun | CallDone | Items | LoopDone | Stepped | SimulatedSwap]:
        """Launch what can be, and give what is done."""
        while True:
            batch = self._launch()
            stepped = self.loops.launch()
            self._since = 0 if stepped else self._since + batch
            if not (stepped or batch):
                break
        events: list[Any] = [*self._begun]
        self._begun.clear()
        while self._in_flight and self._in_flight[0].mark.query():
            events += self._in_flight.popleft().done
        events += self.loops.collect(wait=False)
        return events + self._swap()

    @property
    def idle(self) -> bool:
        swapping = any(one.moves for one in self._suspended.values())
        return not (self._begun or self._in_flight or len(self._schedule) or swapping) and self.loops.idle

    def due(self) -> float:
        """When `step` may have something to give or to launch."""
        marks = [self._in_flight[0].mark.at] if self._in_flight else []
        marks += [one.mark.at for one in self._suspended.values() if one.mark is not None]
        if self.loops.launcher.busy:
            marks.append(self._queue.busy_until)
        return min((at for at in marks if at > self._timeline.now), default=self._timeline.now + CALL_SECONDS)

    def has(self, run: str) -> bool:
        """Whether something of a run waits or is in flight."""
        calls = any(done.ref.run == run for batch in self._in_flight for done in batch.done)
        return calls or self.loops.admission.occupies(run)

    def left(self) -> list[str]:
        """What is kept though nothing runs."""
        found = [f"a call in flight: {done.ref}" for batch in self._in_flight for done in batch.done]
        found += [f"{len(self._schedule)} calls that wait"] if len(self._schedule) else []
        found += [f"run {run} suspended" for run in self._suspended] + [f"run {run} held" for run in self._held]
        found += [f"{self.loops.admission.waiting} loops that wait"] if self.loops.admission.waiting else []
        for group in self.loops.groups:
            slots = len(group.free) + len(group.runs)
            if group.runs or slots < group.graphs.sizes[-1]:
                found.append(f"slots of a loop: {len(group.free)} of {group.graphs.sizes[-1]} are free")
        found += [f"states of run {run}" for run in sorted(self.states.runs) if not run.startswith("session:")]
        if not self.states.runs and self.states.free != self.states.total:
            found.append(f"{self.states.total - self.states.free} pages")
        return found

    # ── inside ──

    def _launch(self) -> bool:
        if len(self._in_flight) >= TURNS or not MIX.may(self.loops.running, self._since):
            return False
        batch = self._schedule.next(MIX.rows(self.loops.running))
        if batch is None:
            return False
        done = tuple(map(self._serve, batch.calls))
        mark = self._queue.launched(CALL_SECONDS)
        self._in_flight.append(CallBatch(mark, done))
        if self._chance.random() < BEGUN:
            self._begun += [CallBegun(one.ref, one.outputs) for one in done if one.outputs is not None]
        return True

    def _serve(self, call: Call) -> CallDone:
        ref = Ref(call.run, call.step, call.use, call.iteration)
        for port, chunk in call.chunks.items():
            self.chunks.setdefault(call.run, {}).setdefault((call.step, call.use, port), []).append(chunk)
        try:
            return CallDone(ref, self._functions[call.node](call))
        except ValueError as error:
            return CallDone(ref, None, ErrorInfo(code="node_error", message=str(error), node=call.node))

    def _here(self, run: str) -> bool:
        return run not in self._suspended or self._suspended[run].state == "stopping"

    def _swap(self) -> list[SimulatedSwap]:
        found: list[SimulatedSwap] = []
        for run, one in list(self._suspended.items()):
            over = one.mark is None or one.mark.query()
            if one.state == "stopping" and not self.has(run):
                self.states.move_out(run)
                one.state, one.mark = "leaving", self._queue.launched(SWAP_SECONDS)
            elif one.state == "leaving" and over:
                one.state, one.mark = "out", None
            elif one.state == "coming" and over:
                one.state, one.mark = "stopping", None
                if one.wanted:
                    self._back(run)
                    found.append(SimulatedSwap(run, out=False))
            if one.state == "out" and one.asked:
                one.asked = False
                found.append(SimulatedSwap(run, out=True))
            elif one.state == "out" and one.wanted:
                self.states.move_back(run)
                one.state, one.mark = "coming", self._queue.launched(SWAP_SECONDS)
        return found

    def _back(self, run: str) -> None:
        del self._suspended[run]
        self._schedule.release(run)
        if run in self._held:
            self.loops.admission.wake()
        else:
            self.loops.admission.release(run)
