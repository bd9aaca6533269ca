"""Stepped runs next to runs with device loops: the same calls, outputs and results."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.nested_walks import nested
from tests.support.random_walks import PARAMS, followed, graphs, plain
from tests.support.synthetic import functions, lanes, one_walk
from tests.unit.worker.test_resident import INPUTS, STREAM, drawn, placed, plan_of, served, told
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.loop_decisions import stepped

QUICK = settings(max_examples=20)
RANKS = st.lists(st.integers(0, 2), min_size=12, max_size=12)


@QUICK
@given(graphs() | followed() | nested(), RANKS)
def test_a_stepped_plan_is_the_one_that_was_made_so(graph: Graph, ranks: list[int]) -> None:
    assert stepped(placed(graph, ranks, resident=True)) == placed(graph, ranks, resident=False)


@QUICK
@given(graphs() | followed() | nested(), st.just([0] * 12) | RANKS, st.integers(0, 99))
def test_stepped_runs_beside_resident_ones(graph: Graph, ranks: list[int], seed: int) -> None:
    plan = placed(graph, ranks, resident=True)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    itinerary = one_walk(plan, "w")
    for run, how in ("fast", False), ("slow", True), ("quick", False):
        cluster.start(run, itinerary, PARAMS, INPUTS, stepped=how)
    cluster.run()
    assert not cluster.failures
    assert {loop.run for loop in cluster.loops} <= {"fast", "quick"}
    for run in ("fast", "slow", "quick"):
        assert cluster.done(run) == set(itinerary.ranks), run
    for other in ("slow", "quick"):
        assert given_by(cluster, other) == given_by(cluster, "fast")
        assert called_by(cluster, other) == called_by(cluster, "fast")


def given_by(cluster: Cluster, run: str) -> dict[str, list[Any]]:
    found = {name: values for (of, name), values in cluster.emitted.items() if of == run}
    return {name: sorted((at, plain(value)) for at, value in values) for name, values in found.items()}


def called_by(cluster: Cluster, run: str) -> list[str]:
    return sorted(told(call).replace(f"'{run}'", "") for call in cluster.calls if call.run == run)


def test_a_resident_loop_is_resident_where_nobody_asks() -> None:
    plan = plan_of(drawn("synthetic_loops"))
    cluster = Cluster(plan, functions(drawn("synthetic_loops")))
    for run, how in ("fast", False), ("slow", True):
        cluster.start(run, one_walk(plan, "climb"), {"times": 20, "limit": 5, "passes": 3}, {"start": 0}, stepped=how)
    cluster.run()
    assert {loop.run for loop in cluster.loops} == {"fast"}
    assert cluster.emitted["fast", "passes"] == cluster.emitted["slow", "passes"] == [((), 3)]


@pytest.mark.parametrize("name", ["batches", "windows", "contexts"])
@pytest.mark.parametrize("seed", range(2))
def test_a_stepped_run_feeds_its_streams(name: str, seed: int) -> None:
    graph = drawn("synthetic_streams")
    plan = plan_of(graph)
    cluster = Cluster(plan, functions(graph), seed)
    for run, how in ("fast", False), ("slow", True):
        cluster.start(run, lanes(plan, [("produce", False), (name, True)]), STREAM, {}, stepped=how)
    cluster.run()
    one, other = ([value for _, value in cluster.emitted[run, name]] for run in ("fast", "slow"))
    assert one == other
    assert {loop.run for loop in cluster.loops} == {"fast"}
