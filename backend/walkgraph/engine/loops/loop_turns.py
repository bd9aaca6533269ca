"""Chooses the group that is launched next, and its rows, where some of the values are played as they come.

A run that plays nothing yet, and one that playback is about to reach, go before runs that are ahead. These are left out
of some launches, which a smaller batch makes shorter, and have half of their group's time at least.
"""

from collections.abc import Callable
from math import ceil, inf
from typing import NamedTuple

from walkgraph.engine.loops.loop_runs import BatchGroup, LoopRun
from walkgraph.engine.loops.slot_admission import BatchGroups
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.engine.pacing.turns import (
    FIRST_SECONDS,
    NEAR_SECONDS,
    SPARE_SECONDS,
    DueWork,
    Shares,
    chosen_rows,
    leaves_time,
)

CALLS = "calls"
"""Stands for batches of calls among the work that waits."""


class NextLaunch(NamedTuple):
    """A group that may be launched next."""

    group: BatchGroup
    willing: list[LoopRun]
    """The runs that want another iteration."""
    dues: list[float] | None = None
    """The time at which each of them is due, as far as that was asked."""


class LoopTurns:
    def __init__(self, groups: BatchGroups, playbacks: Playbacks, clock: Callable[[], float]) -> None:
        self._groups, self._playbacks, self._clock = groups, playbacks, clock
        self._shares = Shares()
        self._held = False
        """A batch of calls waits for launches that are due."""

    def next(self) -> NextLaunch | None:
        """The group that is next: one that is owed its share, then the one that is due first, then the first in
        turn."""
        ready: list[NextLaunch] = []
        for group in self._groups:
            willing = [run for run in group.runs if run.wants]
            if willing:
                ready.append(NextLaunch(group, willing))
                if not self._playbacks:
                    break
        if len(ready) < 2:
            return ready[0] if ready else None
        until = self._clock() + NEAR_SECONDS

        def place(turn: NextLaunch) -> tuple[bool, float]:
            due = min(turn.dues or (inf,))
            return not self._shares.owed(turn.group.key, turn.group.seconds), due if due < until else inf

        return min([turn._replace(dues=[due_of(run) for run in turn.willing]) for turn in ready], key=place)

    def rows(self, turn: NextLaunch) -> list[LoopRun]:
        """The runs that the group's next launch may have."""
        group, willing, dues = turn
        if not self._playbacks or group.spans or len(willing) < 2:
            return willing
        dues = [due_of(run) for run in willing] if dues is None else dues
        rows = chosen_rows(dues, self._clock() + NEAR_SECONDS, group.graphs.sizes)
        group.apart += group.seconds_of(len(rows.chosen))
        if not rows.some or group.apart > group.seconds_of(len(willing)):
            group.apart = 0.0
            return willing
        return [willing[at] for at in rows.chosen]

    def launched(self, group: BatchGroup, rows: int, iterations: int) -> None:
        """Note a launch."""
        if self._playbacks:
            waiting = [one.key for one in self._ready()]
            seconds = group.seconds_of(rows) * iterations
            self._shares.launched(group.key, seconds, [*waiting, CALLS] if self._held else waiting)

    def leaves_time(self, seconds: float) -> bool:
        """True if a batch of calls may take the device for so long before the loops go on."""
        self._held = bool(self._playbacks) and not (
            leaves_time(self._demands(), seconds + SPARE_SECONDS, self._clock()) or self._shares.owed(CALLS, seconds)
        )
        return not self._held

    def _ready(self) -> list[BatchGroup]:
        return [group for group in self._groups if any(run.wants for run in group.runs)]

    def _demands(self) -> list[DueWork]:
        """The work that the loops must do, with its deadlines: a launch serves all runs that are due."""
        found: list[DueWork] = []
        for group in self._groups:
            lacking = [(run, lacks) for run in group.runs if run.wants and (lacks := run.lacks) > 0]
            playing = [(one.due, lacks) for run, lacks in lacking if (one := run.playback) and one.began is not None]
            seconds, done = group.seconds_of(len(lacking)), 0
            for due, lacks in sorted(playing):
                more = max(0, ceil(lacks) - done)
                found.append(DueWork(due, more * seconds))
                done += more
        return found


def due_of(run: LoopRun) -> float:
    """The time by which a run should make more: infinite if it is ahead, or not played."""
    playback = run.playback
    if playback is None:
        return inf
    made = run.made
    if playback.began is None:
        # Of the loops that make its first values, the one that is least ahead goes next.
        return run.call.ready_at + FIRST_SECONDS + made
    return playback.due if run.call.timed is not None and playback.lacks(made) > 0 else inf
