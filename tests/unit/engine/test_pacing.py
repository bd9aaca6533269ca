"""Values that are played as they come: deadlines, shares and rows by themselves, without an engine."""

from __future__ import annotations

import random
from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import pytest

from walkgraph.abi.calls import Timed
from walkgraph.engine.loops.loop_runs import LoopRun
from walkgraph.engine.loops.loop_turns import LoopTurns
from walkgraph.engine.loops.slot_admission import BatchGroups
from walkgraph.engine.pacing.backlog import Backlog
from walkgraph.engine.pacing.batch_times import BatchTimes
from walkgraph.engine.pacing.playback import Playback, Playbacks
from walkgraph.engine.pacing.turns import SHARE, DueWork, Shares, StepTimes, chosen_rows, leaves_time


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(order: tuple[DueWork, ...], start: float) -> bool:
    at = start
    for demand in order:
        at += demand.seconds
        if at > demand.due:
            return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_other_work_goes_first_exactly_where_some_order_keeps_all_deadlines_after_it(seed: int) -> None:
    draw = random.Random(seed)
    demands = [DueWork(draw.uniform(1, 12), draw.uniform(0, 3)) for _ in range(draw.randrange(1, 6))]
    seconds, now = draw.uniform(0, 4), draw.uniform(0, 1)
    assert leaves_time(demands, seconds, now) == any(kept(order, now + seconds) for order in permutations(demands))


@pytest.mark.parametrize("seed", range(40))
def test_a_device_keeps_every_deadline_that_some_order_keeps(seed: int) -> None:
    """Work without deadlines fills the time between, and never breaks one."""
    draw = random.Random(seed)
    waiting = [DueWork(draw.uniform(1, 20), draw.uniform(0.1, 3)) for _ in range(6)]
    feasible = kept(tuple(sorted(waiting)), 0.0)
    now = 0.0
    while waiting:
        other = draw.uniform(0.1, 2)
        if leaves_time(waiting, other, now):
            now += other
            continue
        first = min(waiting)
        waiting.remove(first)
        now += first.seconds
        assert now <= first.due or not feasible


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_gets_its_share_whatever_is_chosen_before_it(seed: int) -> None:
    draw = random.Random(seed)
    work = {name: draw.uniform(0.001, 0.05) for name in "abcd"}
    shares, waited = Shares(), dict.fromkeys(work, 0.0)
    for _ in range(2000):
        owed = [name for name in work if shares.owed(name, work[name])]
        # Otherwise the rest is as unfair as can be.
        name = max(owed, key=lambda one: shares.passed(one) / work[one]) if owed else "a"
        shares.launched(name, work[name], work)
        for other, seconds in work.items():
            waited[other] = 0.0 if other == name else waited[other] + work[name]
            bound = seconds * (1 / SHARE - 1) + sum(work.values()) * len(work)
            assert waited[other] <= bound


def test_what_is_no_longer_ready_waits_for_nothing() -> None:
    shares = Shares()
    shares.launched("a", 1.0, ["a", "b"])
    assert shares.owed("b", 0.1)
    shares.launched("a", 1.0, ["a"])
    assert not shares.owed("b", 0.1)


def test_launches_that_waited_for_others_change_a_step_s_time_little() -> None:
    times = StepTimes()
    assert times.of("x") == 0
    for seconds in (0.010, 0.010, 0.050, 0.010):
        times.note("x", seconds)
    assert 0.010 <= times.of("x") < 0.013
    times.note("x", 0.004)
    assert times.of("x") < 0.009


@pytest.mark.parametrize("seed", range(60))
def test_near_rows_go_alone_only_in_a_smaller_batch_which_is_filled_up(seed: int) -> None:
    draw = random.Random(seed)
    dues = [draw.uniform(0, 2) for _ in range(draw.randrange(1, 33))]
    sizes, until = (1, 2, 4, 8, 16, 32), draw.uniform(0, 2)
    rows = chosen_rows(dues, until, sizes)
    near = {at for at, due in enumerate(dues) if due < until}
    assert near <= set(rows.chosen)
    assert len(set(rows.chosen)) == len(rows.chosen)
    if rows.some:
        assert len(rows.chosen) in sizes
        assert max(dues[at] for at in rows.chosen) <= min(d for at, d in enumerate(dues) if at not in rows.chosen)
        assert len(rows.chosen) < 2 * len(near) or len(near) == 1
    else:
        assert len(rows.chosen) == len(dues)


def test_playback_stops_where_nothing_more_has_left_and_goes_on_with_the_next() -> None:
    clock = Clock()
    runs = Playbacks(clock)
    one = runs.of("a", chunk=2.0)
    assert one.began is None
    assert one.lacks(0.0) == 2.0
    clock.now = 1.0
    runs.left("a", 0.4)
    assert one.due == pytest.approx(1.4)
    assert one.lacks(0.4) == pytest.approx(2.0)
    assert one.lacks(3.0) == 0.0
    clock.now = 1.3
    runs.left("a", 2.0)
    assert one.underruns == 0
    assert one.due == pytest.approx(3.4)
    clock.now = 4.0
    runs.left("a", 2.0)
    assert runs.played("a") is one
    assert one.underruns == 1
    assert one.late == pytest.approx(0.6)
    runs.of("b")
    assert runs.played("b") is None, "nothing of it has left"
    runs.forget("b")
    assert one.due == pytest.approx(6.0)
    runs.forget("a")
    assert not runs


class Stage:
    """A loop of a run whose values are played, or feed the one that makes these."""

    wants = True
    launched = 0

    def __init__(self, playback: Playback, seconds: float) -> None:
        self.playback = playback
        self.call = SimpleNamespace(ready_at=0.0, timed=Timed(seconds))

    made = LoopRun.made
    lacks = LoopRun.lacks


class Alone(SimpleNamespace):
    """A group with one run."""

    def seconds_of(self, rows: int) -> float:
        return self.seconds


def test_loops_that_make_the_first_sound_together_are_equally_far() -> None:
    """The one that writes the words doesn't run ahead of the one that says them."""
    clock = Clock()
    runs = Playbacks(clock)
    playback = runs.of("a", chunk=0.4)
    words, speech = (Alone(key=name, seconds=0.003, runs=[Stage(playback, 0.08)]) for name in ("words", "speech"))
    turns = LoopTurns(cast(BatchGroups, [words, speech]), runs, clock)
    order = []
    for _ in range(6):
        turn = turns.next()
        assert turn is not None
        group = turn.group
        order.append(group.key)
        turns.launched(group, 1, 1)
        group.runs[0].launched += 1
        clock.now += group.seconds
    assert order == ["words", "speech"] * 3


def test_batches_of_other_sizes_take_other_times() -> None:
    times = BatchTimes()
    assert times.of("prefix", 968) == 0.0
    times.note("prefix", 968, 6.0)
    assert times.of("prefix", 950) == 6.0, "about as many"
    assert times.of("prefix", 100) == 6.0, "no more than that, as far as anybody knows"
    assert times.of("prefix", 4 * 968) == pytest.approx(24.0, rel=0.1)
    assert times.of("vision", 968) == 0.0
    times.note("prefix", 4 * 968, 20.0)
    assert times.of("prefix", 2 * 968) == pytest.approx(12.0, rel=0.1)
    assert times.of("prefix", 3 * 968) == pytest.approx(18.0, rel=0.1)
    assert times.of("prefix", 4 * 968 - 700) == 20.0, "no more than a larger batch"


@pytest.mark.parametrize("seed", range(20))
def test_more_rows_take_no_less_time_where_that_was_measured(seed: int) -> None:
    draw, times = random.Random(seed), BatchTimes()
    sizes = sorted(draw.sample([2**power for power in range(12)], 5))
    measured = sorted(draw.uniform(0.1, 9) for _ in sizes)
    for size, seconds in zip(sizes, measured, strict=True):
        times.note("work", size, seconds)
    found = [times.of("work", rows) for rows in range(1, 3000)]
    assert found == sorted(found)
    assert [times.of("work", size) for size in sizes] == measured


@pytest.mark.parametrize("seed", range(40))
def test_a_backlog_knows_when_a_device_is_done_with_what_takes_as_long_as_expected(seed: int) -> None:
    draw, backlog, now, free = random.Random(seed), Backlog(), 0.0, 0.0
    ends: list[tuple[float, float, Any]] = []
    for _ in range(60):
        if draw.random() < 0.6:
            seconds = draw.uniform(0, 3)
            free = max(free, now) + seconds
            ends.append((free, seconds, backlog.launched(now, seconds)))
        now += draw.uniform(0, 2)
        while ends and ends[0][0] <= now:
            end, seconds, launch = ends.pop(0)
            assert backlog.over(launch, end) == pytest.approx(seconds)
        for end, _, launch in ends:
            assert backlog.left(now, launch) == pytest.approx(end - now)
