"""Maps over lists: items run side by side within the width, on one rank and across ranks, each as if it were alone."""

import json
import weakref
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.random_walks import CATALOGUE, PARAMS
from tests.support.synthetic import one_walk
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.worker.events import RunCall, Started

KNOWN = {**CATALOGUE, "synthetic.counter": catalogue()["synthetic.counter"]}
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3])


def graph_of(body: list[Any], edges: list[Any], nodes: str = "a b c d", **more: Any) -> Graph:
    walk = {"inputs": {"xs": "list of scalar"}, "body": body, "edges": edges}
    made = {name: {"component": "test.mix"} for name in nodes.split()}
    document = {"format": "walkgraph/graph@1", "name": "maps", "nodes": made, "walks": {"w": walk}}
    document["nodes"] |= more.pop("nodes_too", {})
    return codec.load(json.dumps(document | more).encode())


def mapped(*body: Any, source: str = "@in.xs", bound: int = 2000, width: int = 3, name: str = "") -> dict[str, Any]:
    named = {"as": name} if name else {}
    return {"map": source, "bound": str(bound), "width": str(width), "body": list(body)} | named


def cluster_of(graph: Graph, ranks: int, serve: Any, seed: int = 0, lagging: Rank | None = None) -> Cluster:
    placed = tuple(Group(nodes=(node,), ranks=(i % ranks,)) for i, node in enumerate(graph.nodes))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    plan = assemble(Assignment(graph, Placement(name="some", groups=placed, ranks=devices)), KNOWN)
    return Cluster(plan, dict.fromkeys(graph.nodes, serve), seed, lagging=lagging)


def run(graph: Graph, ranks: int, serve: Any, items: Any, seed: int = 0) -> Cluster:
    cluster = cluster_of(graph, ranks, serve, seed)
    itinerary = one_walk(cluster.plan, "w")
    cluster.start("r", itinerary, {**PARAMS, "seed": 1}, {"xs": items})
    cluster.run()
    if not cluster.failures:
        waiting = {rank: core.standing("r") for rank, core in cluster.cores.items()}
        assert cluster.done("r") == set(itinerary.ranks), waiting
    return cluster


def tell(call: Call) -> dict[str, Any]:
    """The node and all that it was given."""
    return {"out": f"{call.node}({', '.join(str(value) for _, value in sorted(call.inputs.items()))})"}


CHAIN = [
    {"from": "@in.xs", "to": "a.a", "each": True},
    ["a.out", "b.a"],
    {"from": "b.out", "to": "c.a", "collect": "list"},
    {"from": "b.out", "to": "@out.each", "each": True},
    ["c.out", "@out.all"],
]


@RANKS
@pytest.mark.parametrize("width", [1, 2, 3, 99])
@pytest.mark.parametrize("seed", range(5))
def test_values_leave_in_the_order_of_the_items(ranks: int, width: int, seed: int) -> None:
    graph = graph_of([mapped("a", "b", width=width), "c"], CHAIN, "a b c")
    cluster = run(graph, ranks, tell, list(range(7)), seed)
    each = [f"b(a({i}))" for i in range(7)]
    assert [value for _, value in cluster.emitted["r", "each"]] == each
    assert [value for _, value in cluster.emitted["r", "all"]] == [f"c({each})"]


@RANKS
@pytest.mark.parametrize("width", [1, 3, 8])
def test_as_many_items_as_the_width_are_in_work(ranks: int, width: int) -> None:
    """An item is in work from its first call until its last, whichever the ranks; no more than the width ever are."""
    graph = graph_of([mapped("a", "b", width=width), "c"], CHAIN, "a b c")
    begun: set[int] = set()
    ended: set[int] = set()
    most = 0

    def serve(call: Call) -> dict[str, Any]:
        nonlocal most
        if call.node == "a":
            begun.add(call.iteration[0])
            most = max(most, len(begun - ended))
        elif call.node == "b":
            ended.add(call.iteration[0])
        return tell(call)

    for seed in range(6):
        begun.clear()
        ended.clear()
        run(graph, ranks, serve, list(range(40)), seed)
    assert most == width


def test_calls_of_different_items_wait_side_by_side() -> None:
    graph = graph_of([mapped("a", "b", width=4), "c"], CHAIN, "a b c")
    cluster = cluster_of(graph, 1, tell)
    core = next(iter(cluster.cores.values()))
    event = Started(RunId("r"), one_walk(cluster.plan, "w"), {"seed": 0, **PARAMS}, {"xs": list(range(9))})
    asked = [command.call.iteration for command in core.handle(event) if isinstance(command, RunCall)]
    assert asked == [(0,), (1,), (2,), (3,)]


@RANKS
@pytest.mark.parametrize("how", [True, "join", "list"])
def test_an_empty_list_is_gone_through(ranks: int, how: Any) -> None:
    edges = [*CHAIN[:2], {"from": "b.out", "to": "c.a", "collect": how}, *CHAIN[3:]]
    cluster = run(graph_of([mapped("a", "b"), "c"], edges, "a b c"), ranks, tell, [])
    assert [value for _, value in cluster.emitted["r", "all"]] == ["c([])" if how == "list" else "c()"]
    assert not cluster.emitted["r", "each"]


@RANKS
def test_a_longer_list_than_the_bound_fails_the_run(ranks: int) -> None:
    cluster = run(graph_of([mapped("a", "b", bound=3), "c"], CHAIN, "a b c"), ranks, tell, [1, 2, 3, 4])
    (error,) = cluster.failures
    assert error.message == "`@in.xs` has 4 items, and the map takes 3 at most; raise its `bound`"
    assert not cluster.calls


@RANKS
@pytest.mark.parametrize("seed", range(4))
def test_maps_stand_in_maps_loops_and_branches(ranks: int, seed: int) -> None:
    """A map over the items of an item, beside a loop, in a branch of a choice by an item, in a loop."""
    inner = mapped("b", source="a.many", width=2, name="inner")
    choice = {"choose": "a.out", "cases": {"a1": [inner]}, "otherwise": ["c"]}
    loop = {"loop": "l", "times": "2", "body": [mapped("a", choice, width=2, name="outer")]}
    edges = [
        {"from": "@in.xs", "to": "a.a", "each": True},  # of the map, not of the loop around it
        ["@loop.l", "a.b"],
        {"from": "a.many", "to": "b.a", "each": True},
        {"from": "b.out", "to": "d.a", "collect": "list"},
        {"from": "c.out", "to": "d.b", "collect": "list"},
        ["d.out", "@out.o"],
    ]

    def serve(call: Call) -> dict[str, Any]:
        if call.node == "a":
            item, turn = call.inputs["a"], call.inputs["b"]
            return {"out": f"a{item % 2}", "many": [10 * item + turn, 10 * item + turn + 5]}
        return tell(call)

    cluster = run(graph_of([loop, "d"], edges), ranks, serve, [1, 2, 3], seed)
    b = [f"b({10 * item + turn + more})" for turn in (0, 1) for item in (1, 3) for more in (0, 5)]
    assert [value for _, value in cluster.emitted["r", "o"]] == [f"d({b}, {['c()', 'c()']})"]


@pytest.mark.parametrize("seed", range(6))
def test_a_state_of_an_iteration_is_each_items_own(seed: int) -> None:
    """A loop inside counts in a state: every item begins anew, and its state is dropped when it is done."""
    counter = {"count": {"component": "synthetic.counter", "states": {"count": "n"}, "params": {"stop_at": 99}}}
    states = {"n": {"kind": "tensor", "scope": "iteration"}}
    edges = [["@loop.l", "count.token"], {"from": "count.token", "to": "@out.each", "each": True}]
    body = [mapped({"loop": "l", "times": "3", "body": ["count", "a"]}, "b", width=2)]
    more = {"a": {"component": "test.mix"}, "b": {"component": "synthetic.counter", "states": {"count": "n"}}}
    graph = graph_of(body, edges, "d", nodes_too=counter | more, states=states)
    kept: dict[Any, int] = {}

    def serve(call: Call) -> dict[str, Any]:
        if call.states:
            key = call.states["count"]
            kept[key] = kept.get(key, 0) + 1
            return {"token": kept[key], "stop": False}
        return {}

    cluster = run(graph, 1, serve, list(range(5)), seed)
    assert [value for _, value in cluster.emitted["r", "each"]] == [1, 2, 3] * 5
    assert sorted(kept.values()) == [4] * 5
    assert sorted(cluster.dropped, key=str) == sorted(kept, key=str)


class Value:
    """A value that can be watched."""

    def __init__(self, alive: "weakref.WeakSet[Value]") -> None:
        alive.add(self)


@pytest.mark.parametrize("lagging", [0, 1])
def test_a_long_map_keeps_what_its_width_needs(lagging: int) -> None:
    """1,000 items, 8 at once, on two ranks of which one lags: neither keeps the values of more items than the width."""
    edges = [
        {"from": "@in.xs", "to": "a.a", "each": True},
        ["a.out", "b.a"],
        {"from": "b.out", "to": "@out.each", "each": True},
    ]
    graph = graph_of([mapped("a", "b", width=8)], edges, "a b")
    alive: weakref.WeakSet[Value] = weakref.WeakSet()

    def serve(call: Call) -> dict[str, Any]:
        return {"out": Value(alive) if call.node == "a" else call.iteration[0]}

    cluster = cluster_of(graph, 2, serve, 3, Rank(lagging))
    itinerary = one_walk(cluster.plan, "w")
    cluster.start("r", itinerary, {**PARAMS, "seed": 1}, {"xs": list(range(1000))})
    most = calls = sent = 0
    while cluster.turn():
        calls, sent = calls + len(cluster.calls), sent + len(cluster.emitted["r", "each"])
        for kept in (cluster.calls, cluster.sent, cluster.emitted["r", "each"]):
            kept.clear()
        most = max(most, len(alive))
    assert (calls, sent) == (2000, 1000)
    assert most <= 8
    assert [value for _, value in cluster.outputs["r", "each"]] == list(range(1000))
    assert cluster.done("r") == set(itinerary.ranks)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"map": "a.out"}, "bad_map"),
        ({"map": "@loop.index"}, "bad_map"),
        ({"bound": "0"}, "bad_times"),
        ({"width": "1.5"}, "bad_times"),
        ({"width": "nothing"}, "unknown_parameter"),
        ({"as": "index"}, "bad_name"),
    ],
)
def test_check_refuses_maps_that_can_not_be_run(change: dict[str, str], code: str) -> None:
    graph = {"nodes": {n: {"component": "test.mix"} for n in "abc"}}
    walk = {"inputs": {"xs": "list of scalar"}, "body": ["a", mapped("b") | change, "c"], "edges": []}
    task = {
        "inputs": {"xs": {"modality": "scalar", "many": True}},
        "outputs": ["o"],
        "steps": [{"walk": "w", "with": {}}],
    }
    document = {"format": "walkgraph/graph@1", "name": "g", **graph, "walks": {"w": walk}, "tasks": {"t": task}}
    assert code in {problem.code for problem in check(document, CATALOGUE).problems}


@pytest.mark.parametrize(
    ("edge", "code"),
    [
        (["b.out", "c.a"], "uncollected_map"),
        (["b.out", "@out.o"], "uncollected_map"),
        (["b.out", "b.b"], "carried_in_map"),
        ({"from": "b.out", "to": "c.a", "collect": True}, ""),
        ({"from": "b.out", "to": "@out.o", "each": True}, ""),
    ],
)
def test_check_wants_what_leaves_a_map_to_be_collected(edge: Any, code: str) -> None:
    walk = {"inputs": {"xs": "list of scalar"}, "body": [mapped("b"), "c"], "edges": [edge]}
    nodes = {n: {"component": "test.mix"} for n in "bc"}
    found = check({"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}}, CATALOGUE)
    codes = {problem.code for problem in found.problems if problem.severity == "error"}
    assert codes == ({code} if code else set())


@pytest.mark.parametrize(("scope", "outside", "code"), [("run", [], 1), ("iteration", ["k"], 1), ("iteration", [], 0)])
def test_check_refuses_a_state_that_items_share(scope: str, outside: list[str], code: int) -> None:
    node = {"component": "synthetic.counter", "states": {"count": "n"}, "params": {"stop_at": 3}}
    body = [{"loop": "l", "times": "2", "body": [mapped("c", "e"), *outside]}]
    document = {
        "format": "walkgraph/graph@1",
        "name": "g",
        "states": {"n": {"kind": "tensor", "scope": scope}},
        "nodes": {"c": node, "e": node, "k": node},
        "walks": {"w": {"inputs": {"xs": "list of scalar"}, "body": body, "edges": [["@loop.l", "c.token"]]}},
    }
    codes = [problem.code for problem in check(document, KNOWN).problems]
    assert ("shared_in_map" in codes) == bool(code)
