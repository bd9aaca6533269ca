"""Calls that are followed before they are over: the numbers are the same, and a run ends when all of it has."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.synthetic import functions, lanes, one_walk
from tests.unit.worker.test_core import CONSUMERS, plan_of
from walkgraph.ids import RunId
from walkgraph.wire.messages import RankDone
from walkgraph.worker.core import Core
from walkgraph.worker.events import CallBegun, CallDone, Ref, Report, RunCall, Started

WALKS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nested": ({"rows": 3, "columns": 2}, {"start": 10}),
    "climb": ({"times": 20, "limit": 5, "passes": 3}, {"start": 0}),
}


def walked(walk: str, seed: int, begun: float, ranks: int) -> Cluster:
    params, inputs = WALKS[walk]
    found, plan = plan_of("synthetic_loops", ranks)
    cluster = Cluster(plan, functions(found), seed, begun=begun)
    cluster.start("r", one_walk(plan, walk), params, inputs)
    cluster.run()
    assert cluster.done("r") == set(one_walk(plan, walk).ranks)
    return cluster


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("seed", range(4))
def test_followed_early_or_late_a_run_gives_the_same(walk: str, seed: int, ranks: int) -> None:
    early, late = walked(walk, seed, 0.7, ranks), walked(walk, seed, 0.0, ranks)
    assert early.emitted == late.emitted
    assert set(early.dropped) == set(late.dropped)


@pytest.mark.parametrize("name", CONSUMERS)
@pytest.mark.parametrize("seed", range(3))
def test_streams_too(name: str, seed: int) -> None:
    found, plan = plan_of("synthetic_streams", 2)
    cluster = Cluster(plan, functions(found), seed, begun=0.7)
    itinerary = lanes(plan, [("produce", False), (name, True)])
    cluster.start("r", itinerary, {"items": 11, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    assert cluster.done("r") == set(itinerary.ranks)
    assert [value for _, value in cluster.emitted["r", name]] == CONSUMERS[name]


@pytest.mark.parametrize("seed", range(6))
def test_what_fails_when_it_was_followed_already_fails_its_run_once(seed: int) -> None:
    found, plan = plan_of("synthetic_loops", 1)
    called = list(dict.fromkeys(call.node for call in walked("nested", 0, 0.0, 1).calls))
    faulty = called[seed % len(called)]
    cluster = Cluster(plan, functions(found), seed, begun=1.0, faulty=faulty)
    cluster.start("r", one_walk(plan, "nested"), *WALKS["nested"])
    cluster.run()
    assert [(error.code, error.node) for error in cluster.failures] == [("numeric_error", faulty)]
    assert not cluster.done("r")


def test_times_and_the_end_wait_for_what_was_followed() -> None:
    found, plan = plan_of("synthetic_loops", 1)
    core, serve = Core(plan, plan.ranks[0].rank), functions(found)
    params = {"seed": 0, "rows": 1, "columns": 1}
    commands = core.handle(Started(RunId("r"), one_walk(plan, "nested"), params, {"start": 1}))
    later: list[CallDone] = []
    while calls := [command.call for command in commands if isinstance(command, RunCall)]:
        commands = []
        for call in calls:
            ref, outputs = Ref(call.run, call.step, call.use, call.iteration), serve[call.node](call)
            later.append(CallDone(ref, outputs, busy=1.0))
            commands += core.handle(CallBegun(ref, outputs))
    ends: list[list[Any]] = [core.handle(done) for done in later]
    assert ends[:-1] == [[] for _ in later[1:]]
    told = next(one.message for one in ends[-1] if isinstance(one, Report))
    assert isinstance(told, RankDone)
    assert sum(one.busy for one in told.times) == len(later) == sum(one.calls for one in told.times)
