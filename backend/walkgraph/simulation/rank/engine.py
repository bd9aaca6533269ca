"""The engine of a simulated rank: the real schedulers of calls and of device loops, over a simulated device.

add, add_loop ──> step ──> Begun, Done, Items, LoopDone, Swapped
"""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Begun, Done, Forwarded
from walkgraph.engine.calls.readback import WalkUse, chained
from walkgraph.engine.gauges import Gauges
from walkgraph.engine.holds import RunHolds
from walkgraph.engine.kv.swap import Swapped
from walkgraph.engine.loops.loop_runs import LoopDone, LoopKey, Stepped
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.rank.calls import CALL_SECONDS, SimulatedCalls
from walkgraph.simulation.rank.device import Serve, SimulatedDevice, SimulatedMark, SimulatedQueue, StepWatch
from walkgraph.simulation.rank.kept import SimulatedKeptCalls, SimulatedMemo
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.rank.swap import SimulatedSwap
from walkgraph.simulation.rank.transfers import SimulatedTransfers
from walkgraph.simulation.simulator import Simulator

Functions = Callable[[StateStore], Mapping[str, Serve]]
"""Node -> the function that computes its calls."""
Event = Begun | Done | Forwarded | Items | LoopDone | Stepped | Swapped


class SimulatedEngine:
    """Implements `worker.interfaces.EngineLike`."""

    def __init__(
        self,
        simulator: Simulator,
        queue: SimulatedQueue,
        functions: Functions,
        states: StateStore,
        device: type[SimulatedDevice] = SimulatedDevice,
        *,
        plan: Plan | None = None,
        rank: Rank | None = None,
        memo: SimulatedMemo | None = None,
    ) -> None:
        """`memo`: what its process keeps of calls, with the plan whose calls it finds; None if it keeps none."""
        self._simulator = simulator
        self._queue = queue
        self._watch = StepWatch()
        served = functions(states)
        self.states = self.pools = states
        self.transfers = SimulatedTransfers(simulator, states)
        self.limits = states.limits
        playbacks = Playbacks(lambda: simulator.now)
        kept, early, stateless = None, frozenset[WalkUse](), frozenset[str]()
        if plan is not None and rank is not None:
            early = chained(plan, plan.ranks[rank])
            stateless = frozenset(node.name for node in plan.nodes if not node.states)
        if memo is not None and plan is not None:
            kept = SimulatedKeptCalls(simulator, memo, plan, self.limits.owner)
        self.calls = SimulatedCalls(
            simulator, self._queue, served, playbacks, self._watch, chained=early, kept=kept, stateless=stateless
        )
        states.before_use = self.calls.make_deferred
        self.loops = LoopScheduler(
            device(simulator, self._queue, served, states),
            playbacks,
            watch=self._watch,
            here=self._here,
            clock=lambda: simulator.now,
        )
        self.holds = RunHolds(self.calls.schedule, self.calls.in_flight, self.loops.admission)
        self.swap = SimulatedSwap(simulator, self._queue, states, self.holds)
        self._spent = 0.0
        """Seconds of the batches launched since the last launch of loops."""
        self._loops_came = False
        """A device loop was added; until then nothing asks for loops."""

    # ── in ──

    def add(self, call: Call) -> None:
        self.calls.add(call)

    def add_loop(self, call: LoopCall) -> None:
        self._simulator.counts["device loops"] += 1
        self._loops_came = True
        self.calls.make_deferred(call.states.values())
        self.loops.add(call)

    def drop(self, run: str) -> None:
        """Drops everything of a run."""
        self.holds.forget(run)
        self.loops.cancel(run)
        self.loops.playbacks.forget(run)
        self.swap.cancel(run)
        self.calls.cancel(run)
        self.states.drop_run(run)

    def _here(self, run: str) -> bool:
        return self.swap.here(run)

    def time_steps(self, *, on: bool) -> None:
        self._watch.on = on

    # ── step ──

    def step(self) -> list[Event]:
        """Launches what is ready, and returns the finished work."""
        calls, loops = self.calls, self.loops
        while not calls.in_flight.over:
            threads = calls.launch_threads()
            batch = calls.launch(loops, spent=self._spent)
            stepped = self._loops_came and loops.launch()
            self._spent = 0.0 if stepped else self._spent + batch
            if not (stepped or batch or threads):
                break
        ended = loops.collect(wait=False) if self._loops_came else ()
        return [*calls.collect(), *ended, *self.swap.advance()]

    @property
    def idle(self) -> bool:
        """True if nothing can be launched or collected."""
        return self.calls.idle and self.swap.idle and not (self._loops_came and not self.loops.idle)

    @property
    def resting(self) -> bool:
        return self.idle

    @property
    def wakes(self) -> None:
        """Threads end at their times."""

    def due(self) -> float:
        """Time at which `step` may have work to collect or launch."""
        now, calls = self._simulator.now, self.calls
        if calls.deferred.restless:
            return now
        batches = (*calls.in_flight.turns, *calls.in_flight.threaded)
        marks = [cast("SimulatedMark", batch.launched.stamp).at for batch in batches]
        marks += self.swap.due()
        if self.loops.launcher.busy:
            marks.append(self._queue.busy_until)
        return min((at for at in marks if at > now), default=now + CALL_SECONDS)

    # ── state ──

    def positions(self) -> Mapping[LoopKey, int]:
        return self.loops.positions()

    def gauges(self) -> Gauges:
        waiting = self.calls.waiting + self.loops.admission.waiting
        free, total = self.states.pages()
        return Gauges(waiting, 0.0, 0, 0, free, total, 0, 0)

    def left(self) -> Iterable[str]:
        """Descriptions of leaks: things that are kept although nothing runs."""
        for batch in self.calls.in_flight.turns:
            yield f"a call in flight: {batch.calls[0]}"
        yield from self.held()

    def held(self) -> Iterable[str]:
        """Equals `left` without what the device does: it can't be called back."""
        if self.loops.playbacks:
            yield "playbacks of runs that are over"
        if self.calls.waiting:
            yield f"{self.calls.waiting} calls that wait"
        if self.calls.leads and not self.calls.in_flight.any:
            yield f"{self.calls.leads} calls that others wait for"
        if self.calls.deferred.open and not self.calls.in_flight.any:
            yield f"{self.calls.deferred.open} deferred calls"
        yield from (f"run {run} suspended" for run in self.swap.runs)
        yield from (f"the loops of run {run} held" for run in self.holds.held)
        if self.loops.admission.waiting:
            yield f"{self.loops.admission.waiting} loops that wait"
        for group in self.loops.groups:
            slots, most = len(group.free) + len(group.runs), group.graphs.sizes[-1]
            if group.runs or slots < most:
                yield f"slots of a loop: {len(group.free)} of {most} are free"
        yield from (f"states of run {run}" for run in sorted(self.states.runs) if not run.startswith("session:"))
        free, total = self.states.pages()
        if not self.states.runs and free != total:
            yield f"{total - free} pages"
