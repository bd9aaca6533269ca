"""Chooses what is launched next: the batch group, its runs, and the number of iterations.

The launches of a group follow each other without waiting: the runs of one are chosen before the results of the previous
one are known. The device itself ends a loop and turns its slot off; the host learns of it one launch late.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from walkgraph.engine.device.marks import Mark
from walkgraph.engine.loops.loop_runs import BatchGroup, LaunchBatch, LaunchedLike, LoopRun
from walkgraph.engine.loops.loop_turns import LoopTurns
from walkgraph.engine.loops.slot_admission import BatchGroups, SlotAdmission
from walkgraph.engine.pacing.backlog import Backlog, Queued
from walkgraph.wire.fault_points import FaultPoints

DEPTH = 2
"""The most launches in flight."""


class Watch(Protocol):
    @property
    def on(self) -> bool:
        """True if launches are timed, and reported as `Stepped`."""
        ...


@dataclass(slots=True, eq=False)
class InFlight:
    """A launch that is not collected yet."""

    group: BatchGroup
    batch: LaunchBatch
    launched: LaunchedLike
    taken: float
    began: float
    handed: float
    """When the host had launched it; 0 while the watch is off, unless it was done at once. `taken` is 0 then."""
    queued: Queued | None
    """Its place in the device's backlog; None if it was done at once."""
    took: float = 0.0
    """Seconds since the device could begin it, once it is taken; 0 if it was done at once."""

    @property
    def over(self) -> bool:
        return self.launched.mark is None or self.launched.mark.query()

    def wait(self) -> None:
        if self.launched.mark is not None:
            self.launched.mark.synchronize()


class Launcher:
    def __init__(
        self,
        admission: SlotAdmission,
        groups: BatchGroups,
        turns: LoopTurns,
        watch: Watch,
        clock: Callable[[], float] = time.monotonic,
        faults: FaultPoints | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._backlog = backlog or Backlog()
        self._admission, self._groups, self._watch, self._clock = admission, groups, watch, clock
        self._turns = turns
        self._faults = faults
        self._in_flight: deque[InFlight] = deque()

    def launch(self) -> bool:
        """Launch the next group that has something to launch; False if none has, or enough is in flight."""
        turn = None if self.full else self._turns.next()
        if turn is None or len(self._in_flight) >= self._depth(turn.group):
            return False
        group = turn.group
        self._groups.pass_turn(group)
        batch = next_batch(group, self._turns.rows(turn))
        try:
            self._in_flight.append(self._launched(group, batch))
            group.in_flight += 1
        except Exception as raised:  # noqa: BLE001 (a launch that fails ends only the runs in it)
            for run in batch.runs:
                self._admission.fail(group, run, raised)
        return True

    def take(self, *, wait: bool) -> InFlight | None:
        """Remove and return the oldest launch if it is over; with `wait`, wait until it is."""
        if not self._in_flight or not (wait or self._in_flight[0].over):
            return None
        flight = self._in_flight.popleft()
        flight.group.in_flight -= 1
        flight.wait()
        if flight.queued is not None:
            flight.took = self._backlog.over(flight.queued, self._clock())
        return flight

    def settle(self) -> None:
        """Wait for the launches in flight that wait for peers and write their memory."""
        for flight in [flight for flight in self._in_flight if flight.group.spans]:
            flight.wait()

    @property
    def busy(self) -> bool:
        return bool(self._in_flight)

    @property
    def full(self) -> bool:
        return len(self._in_flight) >= DEPTH

    def left(self) -> float:
        """Seconds that the device probably still takes for the oldest launch; not positive if it is over, or such
        launches were never measured."""
        queued = None if not self._in_flight or self._in_flight[0].over else self._in_flight[0].queued
        return 0.0 if queued is None else self._backlog.left(self._clock(), queued)

    @property
    def spans(self) -> bool:
        """True if a launch in flight may wait for peers."""
        return any(flight.group.spans for flight in self._in_flight)

    @property
    def oldest(self) -> tuple[float, Mark | None]:
        """Seconds that the oldest launch in flight probably takes, 0 if such launches were never measured; and its end,
        None if nothing is in flight."""
        if not self._in_flight:
            return 0.0, None
        oldest = self._in_flight[0]
        return oldest.queued.seconds if oldest.queued else 0.0, oldest.launched.mark

    @property
    def since(self) -> float | None:
        """When the oldest launch in flight began."""
        return self._in_flight[0].began if self._in_flight else None

    def _depth(self, group: BatchGroup) -> int:
        """How many launches may be in flight, including a new one of this group."""
        if not self._in_flight:
            return 1
        deep = self._in_flight[0].launched.mark and (group.spans or not group.graphs.long(len(group.runs)))
        return DEPTH if deep else 1

    def _launched(self, group: BatchGroup, batch: LaunchBatch) -> InFlight:
        taken = self._clock() if self._watch.on else 0.0
        runs, graphs = batch.runs, group.graphs
        if self._faults is not None:
            _reach(self._faults)
        iterations = next_iterations(runs, graphs.counts(runs))
        ready = graphs.ready(runs, iterations)
        for run in runs:
            run.launched += iterations
            run.batch = len(runs)
        self._turns.launched(group, len(runs), iterations)
        if group.spans:
            self._admission.peers.launching(runs[0].call, runs[0].launched)
        began = self._clock()
        launched = graphs.replay(ready)
        handed = self._clock() if self._watch.on or launched.mark is None else 0.0
        seconds = iterations * group.seconds_of(len(runs))
        queued = None if launched.mark is None else self._backlog.launched(began, seconds)
        return InFlight(group, batch, launched, taken, began, handed, queued)


def _reach(faults: FaultPoints) -> None:
    if faults.due("allocate.slots"):
        raise MemoryError
    if faults.due("launch.loop"):
        raise RuntimeError("a fault was set here")


def next_batch(group: BatchGroup, willing: Sequence[LoopRun]) -> LaunchBatch:
    """The runs of a group's next launch: those of `willing` whose next iterations have the same form, in turn."""
    form, most = willing[0].form, group.graphs.sizes[-1]
    runs = [run for run in willing if run.form == form][:most]
    if len(runs) < len(group.runs):
        chosen = set(runs)
        group.runs = [run for run in group.runs if run not in chosen] + runs
    # The same runs keep the same batch object: it caches what was found for them.
    if group.batch.runs != tuple(runs):
        group.batch = LaunchBatch(runs)
    return group.batch


def next_iterations(runs: Sequence[LoopRun], counts: Sequence[int]) -> int:
    """The largest count of iterations that all the runs can do."""
    most = min([run.reach for run in runs])
    most = min([run.forms.alike(run.launched, most) for run in runs])
    return max(count for count in counts if count <= most)
