"""Empty loops inside one that ends on a flag: their absent outputs are reported as soon as they are known."""

import json
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS, RESIDENT
from tests.support.synthetic import one_walk
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan

KNOWN = {**RESIDENT, "synthetic.counter": catalogue()["synthetic.counter"]}


def plan_of(walk: dict[str, Any], counters: str = "", others: str = "", ranks: int = 1) -> Plan:
    """Nodes by their letters, dealt out to the ranks. The counters share a state of scope `walk`."""
    nodes = {n: {"component": "synthetic.counter", "states": {"count": "count"}} for n in counters}
    nodes |= {n: {"component": "test.mix"} for n in others}
    states = {"count": {"kind": "tensor", "scope": "walk"}} if counters else {}
    document = {"format": "walkgraph/graph@1", "name": "empty", "nodes": nodes, "states": states, "walks": {"w": walk}}
    placed = tuple(Group(nodes=(node,), ranks=(i % ranks,)) for i, node in enumerate(nodes))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    placement = Placement(name="some", groups=placed, ranks=devices)
    return assemble(Assignment(codec.load(json.dumps(document).encode()), placement), KNOWN, resident=False)


def run(plan: Plan, serve: Any, seed: int = 0) -> Cluster:
    cluster = Cluster(plan, {node.name: serve for node in plan.nodes}, seed)
    cluster.start("r", one_walk(plan, "w"), PARAMS, {"x": 5})
    cluster.run()
    assert not cluster.failures
    waiting = {rank: core.standing("r") for rank, core in cluster.cores.items()}
    assert cluster.done("r") == set(cluster.cores), waiting
    return cluster


def inputs(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    return [call.inputs for call in cluster.calls if call.node == node]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("inner", ["n - 2", "@loop.l"])
def test_what_carries_nothing_is_known_before_the_flag_that_waits_for_it(inner: str, ranks: int) -> None:
    nested = {"loop": "m", "times": "3", "body": [{"loop": "e", "times": inner, "body": ["b"]}]}
    walk = {
        "body": [{"loop": "l", "times": "3", "until": "a.stop", "body": ["a", nested]}],
        "edges": [["b.out", "a.a"], ["a.out", "@out.o"]],
    }
    cluster = run(plan_of(walk, others="ab", ranks=ranks), lambda call: {"out": len(call.iteration), "stop": False})
    assert inputs(cluster, "a") == ([{}] * 3 if inner == "n - 2" else [{}, {}, {"a": 3}])
    assert cluster.emitted["r", "o"] == [((), 1)]


@pytest.mark.parametrize("first", [False, True])
def test_calls_on_one_state_wait_for_no_call_that_never_comes(first: bool) -> None:
    """The use in the empty loop can't know its next iteration before the flag of the other one."""
    empty = {"loop": "e", "times": "n - 2", "body": ["b"]}
    body: list[Any] = [empty, "a"] if first else ["a", empty]
    walk = {"body": [{"loop": "l", "times": "4", "until": "a.stop", "body": body}], "edges": [["a.token", "@out.o"]]}
    cluster = run(plan_of(walk, "ab"), lambda call: {"token": call.iteration[0], "stop": call.iteration == (2,)})
    assert [call.iteration for call in cluster.calls] == [(0,), (1,), (2,)]


def test_calls_on_one_state_keep_their_order_around_a_loop_that_is_empty_at_times() -> None:
    sometimes = {"loop": "e", "times": "@loop.l % 2", "body": ["b"]}
    walk = {
        "body": [{"loop": "l", "times": "6", "until": "a.stop", "body": ["a", sometimes, "c"]}],
        "edges": [["a.token", "@out.o"]],
    }

    def serve(call: Call) -> dict[str, Any]:
        return {"token": 0, "stop": call.iteration == (4,)}

    for seed in range(8):
        cluster = run(plan_of(walk, "abc"), serve, seed)
        calls = [(call.node, call.iteration[0]) for call in cluster.calls]
        assert calls == [(n, i) for i in range(5) for n in ("abc" if i % 2 else "ac")]
