"""Calls outside the loops on the device: queued, launched in batches, collected.

    add ──> schedule ──> a batch ──> Launched ──> collect ──> Done, and what a batch was where that is told

Batches on the device go in turn with the steps of loops; captured steps, and operators on a processor beside the
device, take no turn.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import torch

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.captured_step import Singles
from walkgraph.engine.calls.chunked_prefill import Begun, Done, Forwarded, Parts
from walkgraph.engine.calls.inflight import Launched, Result
from walkgraph.engine.calls.runner import Runner
from walkgraph.engine.calls.schedule import Mix, Part, Schedule
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.loops.bodies import Loaded

TURNS = 4
"""Batches under way in turn with the steps of loops: what a run's own ones are followed by is launched behind them."""
BESIDE = 2
"""Batches of captured steps under way: what comes meanwhile forms the next one together."""


class _Batch(NamedTuple):
    calls: Sequence[Call]
    launched: Launched
    began: float
    handed: float
    """The host was done with it; told while the stopwatch is on."""
    device: torch.device


class _Lane(NamedTuple):
    way: Literal["turn", "side", "host"]
    """`turn`: in turn with the steps of loops; `side`: by captured steps beside them; `host`: by a processor next to a
    device, which has its own work meanwhile."""
    operator: int
    bucket: Hashable


class Batches:
    def __init__(
        self,
        nodes: Mapping[str, Loaded],
        runner: Runner,
        singles: Callable[[torch.device], Singles | None],
        *,
        chained: Collection[str] = (),
        mix: Mix,
        device: torch.device,
        watch: Stopwatch,
        clock: Callable[[], float],
    ) -> None:
        """`singles`: what captures steps on a device, if anything. `chained`: as `reading.chained`. `device`: the
        rank's."""
        self._nodes, self._runner, self._singles, self._mix = nodes, runner, singles, mix
        self.chained, self._device, self._watch, self._clock = chained, device, watch, clock
        self._schedule, self._parts = Schedule(), Parts()
        self.since = 0
        """Batches launched since the last step of the loops."""
        self._unready: list[Done] = []
        self._begun: list[Begun] = []
        self._turns: deque[_Batch] = deque()
        self._beside: deque[_Batch] = deque()
        self._over: list[_Batch] = []
        """Those that were done at once."""

    # ── in ──

    def add(self, call: Call) -> None:
        self.lead(call.run)
        try:
            ready = self._part(self._nodes[call.node], call)
        except Exception as raised:  # noqa: BLE001 (inputs that an operator can't even sort end that run alone)
            self._unready.append(Done(call, None, self._runner.failures.of(call, raised), 0.0, 0.0, 1))
            return
        self._schedule.add(*ready)

    def lead(self, run: str) -> None:
        """What is launched from now on may read what a run has under way beside it."""
        for batch in self._beside:
            if any(call.run == run for call in batch.calls):
                batch.launched.lead()

    def hold(self, run: str) -> None:
        """Launch nothing of a run until `release` or `cancel`."""
        self._schedule.hold(run)

    def release(self, run: str) -> None:
        self._schedule.release(run)

    def cancel(self, run: str) -> list[Call]:
        """Take out what waits of a run."""
        removed = [one.call for one in self._unready if one.call.run == run]
        self._unready = [one for one in self._unready if one.call.run != run]
        return removed + self._parts.forget(self._schedule.cancel(run))

    # ── launch ──

    def launch(self, *, running: bool) -> bool:
        """Launch a batch in turn with the steps of loops, of which some are `running`; False where none may be."""
        if len(self._turns) >= TURNS or not self._mix.may(running, self.since):
            return False
        batch = self._schedule.next(
            self._mix.rows(running), lambda call, rows: self._cut(call, rows, running), _in_turn
        )
        if batch is None:
            return False
        loaded, began = self._nodes[batch.calls[0].node], self._clock()
        launched = self._runner.launch(loaded.operator, loaded.device, batch.calls)
        self._note(self._turns, batch.calls, launched, began, loaded.device)
        return True

    def launch_beside(self) -> bool:
        """Launch what takes no turn: a batch of captured steps, then one of an operator that has the host to itself."""
        launched, rows = False, self._mix.rows(running=False)
        for way, room in ("side", len(self._beside) < BESIDE), ("host", True):
            batch = self._schedule.next(rows, fits=lambda lane, way=way: lane.way == way) if room else None
            if batch is not None:
                loaded, began = self._nodes[batch.calls[0].node], self._clock()
                singles = self._singles(loaded.device)
                if way == "side" and singles is not None:
                    made = self._runner.launch_beside(singles, loaded.operator, loaded.device, batch.calls)
                else:
                    made = self._runner.launch(loaded.operator, loaded.device, batch.calls)
                self._note(self._beside, batch.calls, made, began, loaded.device)
                launched = True
        return launched

    def _note(
        self,
        under_way: deque[_Batch],
        calls: Sequence[Call],
        launched: Launched,
        began: float,
        device: torch.device,
    ) -> None:
        handed = self._clock() if self._watch.on else began
        (under_way if launched.asynchronous else self._over).append(_Batch(calls, launched, began, handed, device))
        for call, given in zip(calls, launched.given if launched.asynchronous else (), strict=False):
            if given is not None and call.node in self.chained and not self._parts.has(call):
                self._begun.append(Begun(call, given))

    def _part(self, loaded: Loaded, call: Call) -> Part:
        operator, singles = loaded.operator, self._singles(loaded.device)
        key = None if singles is None else singles.lane(operator, call)
        if key is not None:
            return Part(call, _Lane("side", loaded.index, key), operator.rows(call))
        way = "host" if loaded.device.type == "cpu" and self._device.type != "cpu" else "turn"
        return Part(call, _Lane(way, loaded.index, operator.bucket(call)), operator.rows(call))

    def _cut(self, call: Call, rows: int, running: bool) -> Sequence[Part]:
        loaded, most = self._nodes[call.node], self._mix.part(running)
        with suppress(Exception):  # what can't be split says why when it is served whole
            parts = loaded.operator.split(call, most) if rows > most else ()
            ready = [self._part(loaded, part) for part in parts]
            if len(ready) > 1:
                self._parts.add(call, parts)
                return ready
        return ()

    # ── out ──

    def collect(self) -> list[Begun | Done | Forwarded]:
        """What is over, or may be followed, without waiting."""
        events: list[Begun | Done | Forwarded] = [*self._begun]
        self._begun.clear()
        events += [event for done in self._unready for event in self._unmade(done)]
        self._unready.clear()
        over, self._over = self._over, []
        for under_way in self._turns, self._beside:
            while under_way and under_way[0].launched.ready:
                over.append(under_way.popleft())
        for batch in over:
            events += self._settled(batch)
        return events

    def wait(self, *, turns: bool) -> bool:
        """Wait for the oldest batch, of those in turn or of those beside; False where there is none."""
        under_way = self._turns if turns else self._beside
        if under_way:
            under_way[0].launched.wait()
        return bool(under_way)

    def _settled(self, batch: _Batch) -> list[Done | Forwarded]:
        done: list[Done | Forwarded] = []
        results = batch.launched.results()
        if self._watch.on:
            done.append(self._told(batch, results))
        for call, result in zip(batch.calls, results, strict=True):
            queued = max(0.0, batch.began - call.ready_at)
            part = Done(call, result.outputs, result.error, result.busy, queued, result.batch, result.read)
            whole, rest = self._parts.settle(part)
            self._schedule.remove(rest)
            done += [] if whole is None else [whole]
        return done

    def _unmade(self, done: Done) -> list[Done | Forwarded]:
        at, ready = self._clock(), done.call.ready_at
        return [Forwarded([done.call], [ready], (0,), Timing(at, at, at, at)), done] if self._watch.on else [done]

    def _told(self, batch: _Batch, results: Sequence[Result]) -> Forwarded:
        now = self._clock() if batch.launched.asynchronous else batch.handed
        started, finished = self._watch.span(batch.device, batch.launched.stamp, batch.began, now)
        ready = self._parts.went(batch.calls, finished)
        failed = tuple(at for at, result in enumerate(results) if result.error is not None)
        return Forwarded(batch.calls, ready, failed, Timing(batch.began, batch.handed, started, finished))

    # ── what there is ──

    @property
    def over(self) -> bool:
        """Something was done at once."""
        return bool(self._over)

    @property
    def under_way(self) -> bool:
        return bool(self._turns or self._beside)

    @property
    def waiting(self) -> int:
        """Calls, and parts of calls, that wait for a batch."""
        return len(self._schedule)

    @property
    def idle(self) -> bool:
        """Nothing can be launched or collected."""
        return not (self._unready or self._over or self.under_way or self.waiting)

    @property
    def since_when(self) -> float | None:
        """When the oldest batch that is under way on the device was taken."""
        return min((batch.began for batch in (*self._turns, *self._beside)), default=None)

    def rides(self, run: str) -> bool:
        """Whether a call of the run is under way."""
        return any(call.run == run for batch in (*self._turns, *self._beside) for call in batch.calls)


def _in_turn(lane: _Lane) -> bool:
    return lane.way == "turn"
