"""A deployment's processes take up another plan: its runs end first, and a plan that can't be loaded leaves the old."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.conductor_world import World
from tests.support.deployment import plan_named
from tests.unit.conductor.test_core import GRAPH, ONE_GRAPH, ONE_PLAN, PLAN, starts, world
from walkgraph.conductor.events import FromRank, FromService
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

OTHER_GRAPH, OTHER_PLAN = plan_named("synthetic_loops", ranks=1)


def take_up(w: World, plan: Plan, graph: Any, number: int = 1) -> None:
    document = codec.dump(graph)
    w.handle(FromService(m.TakeUp(number=number, graph=document, plan=plan, telemetry_name=f"v{number}")))


def other(plan: Plan, digest: str = "other") -> Plan:
    return replace(plan, digest=digest)


def test_other_tasks_are_served_by_the_same_process() -> None:
    w = world(one=True)
    pid = w.core.ranks.status()[0].pid
    w.submit("none", "spin")
    assert w.rejected["none"].error.code == "not_found"
    take_up(w, OTHER_PLAN, OTHER_GRAPH)
    w.settle()
    assert [(taken.number, taken.error) for taken in w.taken] == [(1, None)]
    assert (w.core.ranks.status()[0].pid, len(w.spawned), w.name, w.state) == (pid, 1, "v1", "ready")
    w.submit("spun", "spin")
    w.settle()
    assert "spun" in w.finished
    w.submit("gone", "write")
    assert w.rejected["gone"].error.code == "not_found"


@pytest.mark.parametrize("seed", range(10))
def test_runs_end_before_the_ranks_load_and_later_ones_wait_until_they_have(seed: int) -> None:
    w = world(seed)
    for run in "abc":
        w.submit(run, "part_ways")
    for _ in range(seed):
        w.act(w.chance.choice(list(w.workers)))
    take_up(w, other(PLAN), GRAPH)
    if not w.taken and any(run not in w.finished for run in "abc"):
        w.submit("early", "part_ways")
        assert w.rejected["early"].error.retryable
    w.settle()
    assert set("abc") <= set(w.finished)
    assert all(worker.loads[-1].plan.digest == "other" for worker in w.workers.values())
    assert [taken.error for taken in w.taken] == [None]
    w.submit("late", "part_ways")
    w.settle()
    assert "late" in w.finished
    assert all(pages == 0 for pages in w.core.pages.promised.values())


def test_a_plan_that_one_rank_cannot_load_leaves_the_former_one() -> None:
    w = world()
    w.workers[Rank(1)].bad.add("other")
    take_up(w, other(PLAN), GRAPH)
    w.settle()
    (taken,) = w.taken
    assert taken.error is not None
    assert "a tensor is missing" in taken.error.message
    assert [worker.loads[-1].plan.digest for worker in w.workers.values()] == [PLAN.digest] * 2
    assert (w.state, w.killed, w.name) == ("ready", [], "")
    w.submit("a", "part_ways")
    w.settle()
    assert w.finished["a"]
    take_up(w, other(PLAN, "good"), GRAPH, 2)
    w.settle()
    assert [taken.number for taken in w.taken if taken.error is None] == [2]


def test_a_worker_that_can_load_neither_plan_is_told_to_end() -> None:
    """It has served before, so by itself it would wait for an order that never comes."""
    w = world()
    w.workers[Rank(0)].bad.add("other")
    w.workers[Rank(1)].bad.add(PLAN.digest)
    take_up(w, other(PLAN), GRAPH)
    w.settle()
    assert [taken.error is None for taken in w.taken] == [False]
    assert Rank(1) not in w.workers
    assert w.state == "failed"
    assert "a tensor is missing" in str(w.core.ranks.failure)


def test_a_worker_that_dies_while_it_loads_comes_back_with_the_former_plan() -> None:
    w = world()
    take_up(w, other(PLAN), GRAPH)
    w.kill(Rank(0))
    (taken,) = w.taken
    assert taken.error is not None
    assert taken.error.code == "worker_lost"
    w.settle()
    w.pass_time(1)
    w.settle()
    assert w.state == "ready"
    assert all(worker.loads[-1].plan.digest == PLAN.digest for worker in w.workers.values())


def test_news_of_an_earlier_load_does_not_count() -> None:
    w = World(ONE_GRAPH, ONE_PLAN, Limits(), 0)
    take_up(w, other(ONE_PLAN), ONE_GRAPH)
    start = w.workers[Rank(0)].start
    w.handle(FromRank(Rank(0), start, m.Hello(rank=Rank(0), peer=m.Peer(address="", start=start))))
    w.handle(FromRank(Rank(0), start, m.Ready(rank=Rank(0), seconds=0.1, number=0)))
    assert not w.taken
    w.handle(FromRank(Rank(0), start, m.Ready(rank=Rank(0), seconds=0.1, number=1)))
    assert [taken.error for taken in w.taken] == [None]


def test_a_plan_of_other_ranks_is_refused() -> None:
    w = world(one=True)
    take_up(w, PLAN, GRAPH)
    (taken,) = w.taken
    assert taken.error is not None
    assert taken.error.code == "refused"
    w.submit("a")
    assert starts(w)


def test_a_failed_deployment_takes_up_nothing_and_says_why() -> None:
    w = world(one=True, restarts=0)
    w.kill(Rank(0))
    assert w.state == "failed"
    take_up(w, other(ONE_PLAN), ONE_GRAPH)
    (taken,) = w.taken
    assert taken.error is not None
    assert taken.error.code == "refused"


def test_a_deployment_that_fails_while_runs_end_says_so() -> None:
    w = world(one=True, restarts=0)
    w.submit("a")
    w.workers[Rank(0)].stopped = True
    take_up(w, other(ONE_PLAN), ONE_GRAPH)
    assert not w.taken
    w.kill(Rank(0))
    (taken,) = w.taken
    assert taken.error is not None
    assert w.state == "failed"
