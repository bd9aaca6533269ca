"""Resident loops do what stepped ones do: the same calls, outputs, results and failures, with far fewer events."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS, RESIDENT, graphs, mix, plain
from tests.support.reference_walk import run_walk
from tests.support.synthetic import one_walk
from walkgraph.graph.document import Graph
from walkgraph.networks.base import Call
from walkgraph.placement.assemble import assemble
from walkgraph.placement.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan

INPUTS = {"x": 5, "xs": [7, 8]}
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def placed(graph: Graph, ranks: list[int], *, resident: bool) -> Plan:
    groups = tuple(Group(nodes=(node,), ranks=(rank,)) for node, rank in zip(graph.nodes, ranks, strict=False))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    placement = Placement(name="random", groups=(Group(nodes=("*",), ranks=(0,)), *groups), ranks=devices)
    return assemble(Assignment(graph, placement), RESIDENT, resident=resident)


def walked(graph: Graph, ranks: list[int], seed: int, *, resident: bool) -> Cluster:
    plan = placed(graph, ranks, resident=resident)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    itinerary = one_walk(plan, "w")
    cluster.start("r", itinerary, PARAMS, INPUTS)
    cluster.run()
    assert not cluster.failures
    assert cluster.done("r") == set(itinerary.ranks)
    return cluster


def served(name: str) -> Any:
    function = mix(name)
    return lambda call: dict(function(call.inputs, call.iteration))


def told(call: Call) -> str:
    inputs = sorted((port, plain(value)) for port, value in call.inputs.items())
    return repr((call.node, call.iteration, inputs, dict(call.params), call.states, call.seed))


def results(cluster: Cluster) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for core in cluster.cores.values():
        for run in core._runs.values():  # type: ignore[attr-defined]
            found |= {name: plain(value) for name, value in run._results.items()}
    return found


@QUICK
@given(graphs(), st.lists(st.integers(0, 2), min_size=12, max_size=12) | st.just([]), st.integers(0, 99))
def test_resident_loops_do_what_stepped_ones_do(graph: Graph, ranks: list[int], seed: int) -> None:
    expected, _ = run_walk(graph.walks["w"], {name: mix(name) for name in graph.nodes}, PARAMS, INPUTS)
    fast, slow = (walked(graph, ranks, seed, resident=resident) for resident in (True, False))
    emitted = {n: sorted((at, plain(v)) for at, v in values) for (_, n), values in fast.emitted.items()}
    assert emitted == {name: sorted(values) for name, values in expected.items() if values}
    assert sorted(map(told, fast.calls)) == sorted(map(told, slow.calls))
    assert repr(results(fast)) == repr(results(slow))
    assert not slow.loops
