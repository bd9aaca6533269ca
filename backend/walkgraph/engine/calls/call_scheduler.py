"""The scheduler of calls outside device loops: they are queued, launched in batches, and collected.

    add ──> schedule ──> a batch ──> in flight ──> collect ──> Done, and Forwarded while the stopwatch is on

A deferred call (`Operator.defers`) is `Begun` at once, without outputs, and is made together with the next one on its
states. It is made earlier if anything else needs them, or if its run has nothing else here for a while.

Batches on the device are launched in turn with the steps of loops. Captured steps, and operators that run on the host's
processor, take no turn. Threads make calls of threaded operators beside all this.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple, Protocol

import torch

from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.calls.call_chains import ChainRunner, LaunchedChain
from walkgraph.engine.calls.call_times import CallTimes
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.calls.chunked_prefill import Begun, Done, Forwarded, SplitCalls
from walkgraph.engine.calls.deferred_calls import DeferredCalls
from walkgraph.engine.calls.inflight import InFlightBatch, InFlightBatches, Launched, Result
from walkgraph.engine.calls.memo import KeptCalls
from walkgraph.engine.calls.runner import Runner
from walkgraph.engine.calls.schedule import Mix, ReadyCall, Schedule
from walkgraph.engine.calls.threads import THREADS, Threads
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.pacing.backlog import Backlog
from walkgraph.engine.pacing.playback import Playbacks

TURNS = 4
"""The most batches in flight that alternate with steps of loops. More than one, so that a run's next batch is launched
behind the one it depends on."""
CHAIN = -1
"""Stands in place of an operator, for chains."""
QUICK_SECONDS = 0.0005
"""The longest call that is made in place, although threads could make it."""
AHEAD_SECONDS = 0.002
"""The longest call on the host's processor that goes before launches. A client, or a larger batch, waits for what it
gives."""
SOON_SECONDS = 0.003
"""The longest call of a thread that a batch of captured steps waits for."""
SHORT_SECONDS = 0.0005
"""The longest calls in turn that are launched before others, if they have no states: the others hardly wait for it, and
the loops of their runs are ready sooner."""
PASSES = 8
"""The most batches of such calls in a row, so that others don't starve."""
BESIDE = 2
"""The most batches of captured steps in flight. Calls that come meanwhile form the next batch together."""


class BatchKey(NamedTuple):
    """Calls with equal keys may form a batch."""

    place: Literal["turn", "play", "beside", "host", "thread"]
    """`turn`: launched in turn with the steps of loops. `play`: likewise, but never held back for them, as its outputs
    are played as they come. `beside`: captured steps, launched beside them. `host`: run by
    the host's processor, while the device has work of its own. `thread`: made by a thread, alone."""
    operator: int
    bucket: Hashable


class RunningLoops(Protocol):
    """The loops beside which batches are launched."""

    @property
    def running(self) -> bool:
        """True if one has something to launch."""
        ...

    def runs(self) -> set[str]:
        """The runs of those that have."""
        ...

    def leaves_time(self, seconds: float) -> bool:
        """True if all of them may wait for so long."""
        ...


class CallScheduler:
    def __init__(  # noqa: PLR0913 - what a rank is built of, each by its name
        self,
        nodes: Mapping[str, Loaded],
        runner: Runner,
        captured: Callable[[torch.device], CapturedSteps | None],
        *,
        follows: Callable[[Call], bool] = lambda call: False,
        mix: Mix,
        device: torch.device,
        watch: Stopwatch,
        clock: Callable[[], float],
        kept: KeptCalls | None = None,
        playbacks: Playbacks,
        threads: Threads | None,
        backlog: Backlog | None = None,
    ) -> None:
        """`captured`: gives the captured steps of a device, if it has any. `follows`: true for calls
        of uses as in `readback.chained`. `device`: the rank's device. `kept`: finds calls whose outputs are known.
        `threads`: make calls of threaded operators; None: they are made like others. `backlog`: that of the
        device's launches, of calls and loops."""
        self._kept, self._playbacks = kept, playbacks
        self.times = CallTimes(nodes)
        self._is_short = partial(_in_turn_and_short, self)
        self._nodes, self._runner, self._captured, self._mix = nodes, runner, captured, mix
        self.follows, self._device, self._watch, self._clock = follows, device, watch, clock
        self._chains = ChainRunner(nodes, runner, clock)
        self.schedule, self._split, self.threads = Schedule(), SplitCalls(), threads
        """`schedule`: holds back and releases the calls of runs."""
        self.in_flight = InFlightBatches(backlog)
        self._passes = 0
        """Batches of short calls that were launched in a row."""
        self.answered: list[Done] = []
        """Calls that ended without a forward, until they are collected."""
        self._begun: list[Begun] = []
        self.deferred = DeferredCalls(self.schedule, self.in_flight)

    # ── admission ──

    def add(self, call: Call) -> None:
        """Queue a call whose inputs are complete. Its tensors may be on any device."""
        call.ready_at = call.ready_at or self._clock()
        self.in_flight.fence(call.run)
        loaded = self._nodes[call.node]
        outputs = None if self._kept is None else self._kept.find(loaded, call)
        if outputs is not None and call.content is not None:
            self._runner.digests.note(loaded.operator, call, outputs)
            self.answered.append(Done(call, outputs, None, 0.0, 0.0, 1, kept=True))
            return
        try:
            ready = self._ready(loaded, call)
            deferred = not (call.awaited or call.links or self._mix.single) and loaded.operator.defers(call)
        except Exception as raised:  # noqa: BLE001 (inputs that an operator can't sort end only that run)
            self.answered.append(Done(call, None, self._runner.failures.of(call, raised), 0.0, 0.0, 1))
            return
        self.make_deferred(call.states.values(), beside=ready.key)
        self.schedule.add(*ready, deferred=deferred)
        if deferred:
            self._begun.append(Begun(call, {}))
        self.deferred.added(call, deferred=deferred)

    def make_deferred(self, states: Iterable[StateKey], beside: Hashable = None) -> None:
        """Make the deferred calls on these states, which something is about to read or change, except those that may
        form a batch with it: `beside` is their key."""
        for batch in self.schedule.deferred_on(states, beside):
            loaded, began = self._nodes[batch.calls[0].node], self._clock()
            self._note(self.in_flight.turns, batch.calls, self._launched(loaded, batch.calls), began, loaded.device)

    def cancel(self, run: str) -> list[Call]:
        """Remove the calls of a run that have not been launched."""
        removed = [one.call for one in self.answered if one.call.run == run]
        self.answered = [one for one in self.answered if one.call.run != run]
        self._begun = [one for one in self._begun if one.call.run != run]
        removed += self._split.forget(self.schedule.cancel(run))
        self.deferred.forget(run, removed)
        return removed

    @property
    def waiting(self) -> int:
        """The number of calls, and of parts of split calls, that wait for a batch."""
        return len(self.schedule)

    @property
    def idle(self) -> bool:
        """True if nothing is to be launched or collected, now or once a thread has made a call."""
        return self.resting and not self.schedule and not self.in_flight.threaded

    @property
    def resting(self) -> bool:
        """True if nothing can be launched or collected before a thread has made a call, or another one is added."""
        if self.answered or self.in_flight.over or self.in_flight.any:
            return False
        if not self.schedule or not self.in_flight.threaded:
            return not self.schedule
        full, soon = len(self.in_flight.threaded) >= THREADS, self.in_flight.soon(SOON_SECONDS)

        def may_begin(key: BatchKey, calls: Iterable[Call]) -> bool:
            return not full if key.place == "thread" else _ripe(soon, key.place, key, calls)

        return not self.schedule.ahead(may_begin) and bool(self.schedule.ahead(lambda key, calls: True))

    def _ready(self, loaded: Loaded, call: Call) -> ReadyCall:
        if call.links:
            place = "host" if self._device.type != "cpu" else "turn"
            return ReadyCall(call, BatchKey(place, CHAIN, (call.walk, call.use)), 1)
        operator, captured = loaded.operator, self._captured(loaded.device)
        key = None if captured is None else captured.key(operator, call)
        if key is not None:
            return ReadyCall(call, BatchKey("beside", loaded.index, key), operator.rows(call))
        if self.threads is not None and _for_threads(loaded, call, self.times.of_each(loaded.index)):
            return ReadyCall(call, BatchKey("thread", loaded.index, None), 1)
        place = "turn" if call.timed is None else "play"
        place = "host" if loaded.device.type == "cpu" and self._device.type != "cpu" else place
        alike, batch = operator.alike(call), BatchKey(place, loaded.index, operator.bucket(call))
        return ReadyCall(call, batch, operator.rows(call), None if alike is None else (loaded.index, alike))

    # ── launch ──

    def launch(self, loops: RunningLoops, *, spent: float) -> float:
        """Launch a batch in its turn; returns the seconds that it may take, 0 if none may be launched. `spent`: seconds
        of those since the last step of the loops."""
        if not self.schedule or len(self.in_flight.turns) >= TURNS:
            return 0.0
        fits, ahead = _in_turn, self.schedule.ahead(_in_turn)
        if ahead and self._playbacks and not self._may_wait(ahead[0], loops.leaves_time):
            fits, ahead = _plays, self.schedule.ahead(_plays)
        elif self._passes < PASSES and (short := self.schedule.ahead(self._is_short)):
            fits, ahead = self._is_short, short
        running = loops.running
        seconds = (self.times.of(ahead[:1]) or self._mix.turn) if ahead else 0.0
        if not ahead or not self._mix.may(running, spent, seconds):
            return 0.0
        rows = self._mix.rows(loops.runs(), {call.run for call in ahead}) if running else self._mix.rows()
        batch = self.schedule.next(rows, lambda call, rows: self._parts(call, rows, running), fits)
        if batch is None:
            return 0.0
        self._passes = self._passes + 1 if fits is self._is_short else 0
        loaded, began = self._nodes[batch.calls[0].node], self._clock()
        launched = self._launched(loaded, batch.calls)
        self._note(self.in_flight.turns, batch.calls, launched, began, loaded.device)
        return seconds

    def _may_wait(self, first: Call, leaves_time: Callable[[float], bool]) -> bool:
        """True if the loops may wait for the batch that is next in turn, with this call, and for those ahead of it."""
        launched = [batch.due - batch.began for batch in self.in_flight.turns]
        return leaves_time(sum(launched, self.times.of([first])))

    def _launched(self, loaded: Loaded, calls: Sequence[Call]) -> Launched:
        if calls[0].links:
            return self._chains.run(calls, timed=self._watch.on)
        return self._runner.launch(loaded.operator, loaded.device, calls)

    def launch_quick(self) -> Sequence[Call]:
        """Run a batch of an operator on the host's processor, if it takes no longer than a launch. Returns its
        calls."""

        def is_quick(key: BatchKey, _: Iterable[Call]) -> bool:
            return key.place == "host" and 0 < self.times.of_each(key.operator) < AHEAD_SECONDS

        rows = self._mix.rows()
        batch = self.schedule.next(rows, fits=is_quick) if self.schedule else None
        if batch is None:
            return ()
        loaded, began = self._nodes[batch.calls[0].node], self._clock()
        self._note(self.in_flight.beside, batch.calls, self._launched(loaded, batch.calls), began, loaded.device)
        return batch.calls

    def launch_beside(self) -> bool:
        """Launch what needs no turn: a batch of captured steps, then one of an operator that runs on the host."""
        if not self.schedule:
            return False
        some, rows, soon = False, self._mix.rows(), self.in_flight.soon(SOON_SECONDS)
        for place, fits in ("beside", len(self.in_flight.beside) < BESIDE), ("host", True):
            batch = self.schedule.next(rows, fits=partial(_ripe, soon, place)) if fits else None
            if batch is not None:
                loaded, began = self._nodes[batch.calls[0].node], self._clock()
                captured = self._captured(loaded.device)
                if place == "beside" and captured is not None:
                    launched = self._runner.launch_beside(captured, loaded.operator, loaded.device, batch.calls)
                else:
                    launched = self._launched(loaded, batch.calls)
                self._note(self.in_flight.beside, batch.calls, launched, began, loaded.device)
                some = True
        return some

    def launch_threads(self) -> bool:
        """Let threads make calls of threaded operators, as many as there are threads."""
        some = False
        while self.threads is not None and self.schedule and len(self.in_flight.threaded) < THREADS:
            batch = self.schedule.next(0, fits=_threaded)
            if batch is None:
                break
            loaded, began = self._nodes[batch.calls[0].node], self._clock()
            launched = self._runner.start(self.threads, loaded.operator, loaded.device, batch.calls[0])
            self._note(self.in_flight.threaded, batch.calls, launched, began, loaded.device)
            some = True
        return some

    def _note(
        self,
        batches: deque[InFlightBatch],
        calls: Sequence[Call],
        launched: Launched,
        began: float,
        device: torch.device,
    ) -> None:
        handed, asynchronous = self._clock() if self._watch.on else began, launched.asynchronous
        runs = frozenset([call.run for call in calls])
        rows = self.times.rows(calls)
        seconds = self.times.of_rows(calls[0].node, rows)
        in_turn = asynchronous and batches is self.in_flight.turns
        queued = self.in_flight.backlog.launched(began, seconds) if in_turn else None
        batch = InFlightBatch(calls, runs, launched, began, handed, began + seconds, device, rows, queued)
        (batches if asynchronous else self.in_flight.over).append(batch)
        for call, outputs in zip(calls, launched.outputs if asynchronous else (), strict=False):
            early = self.follows(call) and call not in self.deferred
            if outputs is not None and early and not self._split.has(call):
                self._begun.append(Begun(call, outputs))

    def _parts(self, call: Call, rows: int, running: bool) -> Sequence[ReadyCall]:
        """The parts of a call that has too many rows; empty if it stays whole, as a deferred one does: it is short."""
        loaded, most = self._nodes[call.node], self._mix.part(running)
        if rows <= most or call in self.deferred:
            return ()
        parts: Sequence[Call] = ()
        ready: list[ReadyCall] = []
        with suppress(Exception):  # what can't be split says why when it is served whole
            parts = loaded.operator.split(call, most)
            ready = [self._ready(loaded, part) for part in parts]
        if len(ready) < 2:
            return ()
        # What would have gone with the whole goes before parts that other batches have.
        self.make_deferred(call.states.values(), beside=ready[0].key)
        for part in parts[:-1]:
            part.answered = False
        self._split.add(call, parts)
        return ready

    # ── collection ──

    def collect(self) -> list[Begun | Done | Forwarded]:
        """Return what is done, and calls in flight whose outputs others may already use (`Begun`). Never waits."""
        events: list[Begun | Done | Forwarded] = [*self._begun]
        self._begun.clear()
        if self.answered:
            events += [event for done in self.answered for event in self._never_launched(done)]
            self.answered.clear()
        if self.threads is not None and self.in_flight.threaded:
            self.threads.heard()
        for batch in self.in_flight.pop_finished():
            events += self._settled(batch)
        self.deferred.collected()
        return events

    def _settled(self, batch: InFlightBatch) -> list[Done | Forwarded]:
        events: list[Done | Forwarded] = []
        results = batch.launched.results()
        took = max([result.busy for result in results])
        if batch.queued is not None:
            took = min(took, self.in_flight.backlog.over(batch.queued, self._clock()))
        self.times.note(batch.calls[0].node, batch.rows, len(results), took)
        if isinstance(batch.launched, LaunchedChain):
            events += batch.launched.forwarded
        elif self._watch.on:
            events.append(self._forwarded(batch, results))
        for call, result in zip(batch.calls, results, strict=True):
            self.schedule.settle(call, failed=result.error is not None)
            deferred = call in self.deferred
            self.deferred.settled(call)
            queued = 0.0 if deferred else max(0.0, batch.began - call.ready_at)
            part = Done(call, *result[:3], queued, result.batch, result.read, links=result.links)
            whole, rest = self._split.settle(part)
            if rest:
                self.schedule.remove(rest)
            if whole is not None:
                events.append(whole)
                if (timed := whole.call.timed) is not None and timed.plays and whole.error is None:
                    self._playbacks.left(call.run, timed.seconds)
                if self._kept is not None and whole.outputs is not None:
                    self._kept.note(whole.call, whole.outputs)
        return events

    def _never_launched(self, done: Done) -> list[Done | Forwarded]:
        if done.kept or not self._watch.on:
            return [done]
        at, ready = self._clock(), done.call.ready_at
        return [Forwarded([done.call], [ready], (0,), Timing(at, at, at, at)), done]

    def _forwarded(self, batch: InFlightBatch, results: Sequence[Result]) -> Forwarded:
        began, now = batch.began, self._clock() if batch.launched.asynchronous else batch.handed
        if batch.launched.times is not None:
            began, now = batch.launched.times()
        started, finished = self._watch.span(batch.device, batch.launched.stamp, began, now)
        ready = self._split.ready_at(batch.calls, finished)
        failed = tuple(at for at, result in enumerate(results) if result.error is not None)
        return Forwarded(batch.calls, ready, failed, Timing(batch.began, batch.handed, started, finished))


def _for_threads(loaded: Loaded, call: Call, seconds: float) -> bool:
    """True for calls of threaded operators that may take long. `seconds`: of its calls before; 0 if there were none."""
    operator, quick = loaded.operator, 0 < seconds < QUICK_SECONDS
    return operator.threaded and loaded.device.type == "cpu" and not quick and not operator.quick(call)


def _ripe(soon: Collection[str], place: str, key: BatchKey, calls: Iterable[Call]) -> bool:
    """True for a batch of this place, unless it is one of captured steps that will soon be larger: threads are making
    short calls for all of its runs (`soon`), as for the other cameras of a robot."""
    return key.place == place and (place != "beside" or any(call.run not in soon for call in calls))


def _in_turn(key: BatchKey, _: Iterable[Call]) -> bool:
    return key.place in ("turn", "play")


def _in_turn_and_short(scheduler: CallScheduler, key: BatchKey, calls: Iterable[Call]) -> bool:
    """True for calls that go before others in turn."""
    short = 0 < scheduler.times.of_each(key.operator) < SHORT_SECONDS
    return short and key.place == "turn" and not any(call.states for call in calls)


def _plays(key: BatchKey, _: Iterable[Call]) -> bool:
    return key.place == "play"


def _threaded(key: BatchKey, _: Iterable[Call]) -> bool:
    return key.place == "thread"
