"""A worker that dies, hangs, can't load or answers late: its runs end with a reason, and it comes back."""

import itertools
from itertools import pairwise

import pytest

from tests.support.conductor_world import World
from tests.unit.conductor.test_core import ONE_GRAPH, ONE_PLAN, released, starts, world
from walkgraph.conductor.events import Died, FromRank
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits


def test_a_lost_worker_ends_its_runs_at_once_and_comes_back() -> None:
    w = world()
    w.submit("a", "part_ways")
    assert len(w.workers[Rank(1)].inbox) == 1
    w.kill(Rank(1))
    error = w.finished["a"].error
    assert error
    assert (error.code, error.retryable, error.rank) == ("worker_lost", True, 1)
    assert w.state == "degraded"
    w.submit("b", "part_ways")
    assert not starts(w, 0)[1:], "`b` waits for the rank"
    w.pass_time(0.49)
    assert Rank(1) not in w.workers
    w.pass_time(0.02)
    assert Rank(1) in w.workers
    w.settle()
    assert w.state == "ready"
    assert w.finished["b"]


def test_a_survivor_keeps_its_pages_until_it_says_they_are_free() -> None:
    w = world()
    w.submit("a", "part_ways")
    before = w.core.pages.promised.total()
    w.kill(Rank(1))
    assert "a" in w.finished
    assert w.core.pages.promised.total() == before
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, released("a")))
    assert w.core.pages.promised.total() == 0


def test_a_client_is_told_at_once_of_a_run_that_ended_well_and_its_pages_stay_promised() -> None:
    w = world(one=True)
    w.submit("a")
    before, start = w.core.pages.promised.total(), w.workers[Rank(0)].start
    w.handle(FromRank(Rank(0), start, m.RankDone(rank=Rank(0), run=RunId("a"), times=())))
    assert w.finished["a"].error is None
    assert w.core.pages.promised.total() == before > 0
    w.handle(FromRank(Rank(0), start, released("a")))
    assert w.core.pages.promised.total() == 0


def test_messages_of_an_older_start_are_dropped() -> None:
    w = world(one=True)
    w.submit("a")
    old = w.workers[Rank(0)].start
    w.kill(Rank(0))
    w.pass_time(1)
    w.settle()
    w.submit("b")
    for message in (m.RankDone(rank=Rank(0), run=RunId("b"), times=()), m.LoadFailed(rank=Rank(0), error=fault())):
        w.handle(FromRank(Rank(0), old, message))
    assert w.state == "ready"
    assert "b" not in w.finished


def fault(code: str = "internal_error") -> ErrorInfo:
    return ErrorInfo(code=code, message="it broke")  # type: ignore[arg-type]


@pytest.mark.safety("R4")
def test_a_crash_loop_backs_off_and_gives_up_with_the_reason() -> None:
    w = World(ONE_GRAPH, ONE_PLAN, Limits(), 0)
    for _ in range(200):
        if w.workers:
            worker = w.workers[Rank(0)]
            w.handle(FromRank(Rank(0), worker.start, m.LoadFailed(rank=Rank(0), error=fault())))
            w.kill(Rank(0))
        w.pass_time(0.1)
    times = [at for at, _ in w.spawned]
    pauses = [round(b - a, 1) for a, b in pairwise(times)]
    assert pauses == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0], abs=0.11)
    assert w.state == "failed"
    assert "it broke" in (w.statuses[-1].reason or "")
    w.submit("a")
    assert w.rejected["a"].error.code == "refused"
    assert w.core.due() > w.now


@pytest.mark.safety("R4")
def test_a_load_that_can_only_fail_again_is_not_tried_again() -> None:
    w = World(ONE_GRAPH, ONE_PLAN, Limits(), 0)
    worker = w.workers[Rank(0)]
    w.handle(FromRank(Rank(0), worker.start, m.LoadFailed(rank=Rank(0), error=fault("refused"))))
    w.kill(Rank(0))
    assert w.state == "failed"


def test_one_that_can_not_be_started_is_tried_again_and_the_reason_told() -> None:
    w = World(ONE_GRAPH, ONE_PLAN, Limits(), 0)
    w.handle(Died(Rank(0), w.workers.pop(Rank(0)).start, 113, "start the head"))
    assert (w.state, w.statuses[-1].reason) == ("starting", "start the head")
    w.pass_time(0.6)
    assert Rank(0) in w.workers
    w.handle(Died(Rank(0), w.workers.pop(Rank(0)).start, 113))
    assert w.statuses[-1].reason == "the worker of rank 0 ended with status 113"


def test_a_worker_that_ends_itself_is_started_anew_and_its_reason_told() -> None:
    w = world(one=True)
    w.submit("a")
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, m.Faulted(rank=Rank(0), error=fault("worker_lost"))))
    w.kill(Rank(0))
    assert w.finished["a"].error.code == "worker_lost"  # type: ignore[union-attr]
    assert w.statuses[-1].reason == "it broke"
    w.pass_time(30)
    w.settle()
    assert w.state == "ready"


def test_restarts_long_ago_are_forgiven() -> None:
    w = world(one=True)
    for _ in range(12):
        w.kill(Rank(0))
        w.pass_time(30)
        w.settle()
    assert w.state == "ready"


def test_a_worker_that_served_is_back_at_once_however_often_it_is_killed() -> None:
    w = world(one=True)
    for index in range(12):
        for name in (f"run{index}.{i}" for i in itertools.count()):
            w.submit(name)
            w.settle()
            while w.act(Rank(0)):
                w.settle()
            if w.finished[name].error is None:  # this world's nodes fail at random
                break
        before = len(w.spawned)
        w.kill(Rank(0))
        killed = w.now
        w.pass_time(0.6)
        w.settle()
        assert w.spawned[before][0] - killed <= 0.61
        assert w.state == "ready"


@pytest.mark.safety("R2")
def test_a_worker_that_stops_answering_is_killed_within_a_second_of_its_deadline() -> None:
    w = world(one=True, step_deadline=10.0)
    w.submit("a")
    w.workers[Rank(0)].stopped = True
    began = w.now
    while not w.killed:
        w.pass_time(max(0.001, w.core.due() - w.now))
        assert w.now < began + 11.0
    assert w.now >= began + 10.0
    assert w.finished["a"].error.code == "worker_lost"  # type: ignore[union-attr]
    assert "didn't answer" in (w.statuses[-1].reason or "")


def test_a_worker_that_answers_is_left_alone() -> None:
    w = world(one=True, step_deadline=2.0)
    for _ in range(100):
        w.pass_time(1.0)
        w.settle()
        while w.act(Rank(0)):
            pass
    assert not w.killed
