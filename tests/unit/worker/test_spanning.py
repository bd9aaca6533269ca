"""Device loops over several GPUs: which loops these are, and that their parts do the same as on one GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.random_walks import OUTPUTS, PARAMS, RESIDENT, mix
from tests.support.synthetic import one_walk
from tests.unit.worker.test_resident import INPUTS, plain, results, served, told
from walkgraph.graph import codec
from walkgraph.graph.document import Edge, Graph, Loop, Node, Parallel, Use, Walk
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.host.topology import Link, Topology
from walkgraph.placement.tables import Plan
from walkgraph.simulation.reference.reference_walk import run_walk

QUICK = settings(max_examples=60)
WHENS = (None, "off", "n > 1", "@loop.index > 1", "@loop.index % 3 == 0", "@loop.index == 0 and on", "@loop.index < 3")
RANKS = {"u0": 1, "u1": 2, "u2": 1, "host": 1}


def placed(
    graph: Graph,
    ranks: dict[str, int],
    *,
    resident: bool = True,
    devices: str = "ggg",
    topology: Topology | None = None,
) -> Plan:
    groups = tuple(Group(nodes=(node,), ranks=(ranks[node],)) for node in graph.nodes if node in ranks)
    named = {"g": "cuda:{}", "c": "cpu"}
    listed = tuple(RankDevice(rank=rank, device=named[kind].format(rank)) for rank, kind in enumerate(devices))
    placement = Placement(name="random", groups=(Group(nodes=("*",), ranks=(0,)), *groups), ranks=listed)
    return assemble(
        Assignment(graph, placement), RESIDENT, resident=resident, topologies={"here": topology or Topology()}
    )


@st.composite
def stars(draw: st.DrawFn) -> Graph:
    """Branches `u` on other ranks, between `a` and `c` on the leader's; `host` follows."""
    count = draw(st.integers(1, 3))
    names = [f"u{i}" for i in range(count)]
    branches = tuple(Use(use=name, when=draw(st.sampled_from(WHENS))) for name in names)
    plain = 0
    own = count < 3 and draw(st.booleans())
    edges = [Edge(from_="c.out", to="c.c"), Edge(from_="@in.x", to="c.c")] if own else []
    for i, name in enumerate(names):
        way = draw(st.sampled_from(["carried", "plain", "both"]))
        if way != "plain":
            edges += [Edge(from_="@in.x", to=f"{name}.a"), Edge(from_="c.out", to=f"{name}.a")]
        if way != "carried":
            plain += way == "plain"
            edges.append(Edge(from_="a.out", to=f"{name}.b"))
        if draw(st.booleans()):
            edges.append(Edge(from_="@loop.index", to=f"{name}.c"))
        edges.append(Edge(from_=f"{name}.out", to=f"c.{'abc'[i]}"))
    if draw(st.booleans()):
        edges += [Edge(from_="c.out", to="a.a"), Edge(from_="@in.x", to="a.a")]
    givers = ["a", "c", *names]
    if draw(st.booleans()):
        edges.append(Edge(from_=f"{draw(st.sampled_from(givers))}.many", to="host.a"))
    for i, to in enumerate(("@out.o0", "@out.o1", "end.a", "end.b")):
        how = draw(st.sampled_from(["last", "each", "collect"] if i < 2 else ["last", "collect"]))
        source = f"{draw(st.sampled_from([*givers, 'host']))}.{draw(st.sampled_from(OUTPUTS))}"
        edges.append(Edge(from_=source, to=to, each=how == "each", collect=how == "collect"))
    edges.append(Edge(from_="end.out", to="@out.end"))
    first = Use(use="a", when=None if plain else draw(st.sampled_from(WHENS)))
    body = (first, Parallel(parallel=branches), Use(use="c"), Use(use="host", when=draw(st.sampled_from(WHENS))))
    inner = Loop(
        loop="l", times=draw(st.sampled_from(["5", "8", "n", "1"])), when=draw(st.sampled_from([None, "on"])), body=body
    )
    around = Loop(loop="around", times="3", body=(inner,)) if draw(st.booleans()) else inner
    nodes = {name: Node(component="test.mix") for name in (*givers, "end")} | {"host": Node(component="test.host")}
    walk = Walk(inputs={"x": "scalar", "xs": "tensor"}, body=(around, Use(use="end")), edges=tuple(edges), results={})
    return Graph(name="star", nodes=nodes, walks={"w": walk})


@QUICK
@given(stars(), st.integers(0, 99))
def test_parts_on_several_ranks_do_what_the_loop_does_stepped(graph: Graph, seed: int) -> None:
    expected, _ = run_walk(graph.walks["w"], {name: mix(name) for name in graph.nodes}, PARAMS, INPUTS)
    found: list[Cluster] = []
    for resident in (True, False):
        plan = placed(graph, RANKS, resident=resident)
        loop = next(loop for loop in plan.walks[0].loops if loop.name == "l")
        assert loop.resident == resident, loop.why
        cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
        itinerary = one_walk(plan, "w")
        cluster.start("r", itinerary, PARAMS, INPUTS)
        cluster.run()
        assert not cluster.failures
        assert cluster.done("r") == set(itinerary.ranks)
        found.append(cluster)
    fast, slow = found
    emitted = {n: sorted((at, plain(v)) for at, v in values) for (_, n), values in fast.emitted.items()}
    assert emitted == {name: sorted(values) for name, values in expected.items() if values}
    assert sorted(map(told, fast.calls)) == sorted(map(told, slow.calls))
    assert results(fast) == results(slow)


LOOP: dict[str, Any] = {"loop": "l", "times": "5", "body": ["a", "u0", "c"]}
ROUND = [["@in.x", "u0.a"], ["c.out", "u0.a"], ["u0.out", "c.a"]]


def planned(
    loop: dict[str, Any],
    edges: list[Any],
    ranks: dict[str, int],
    devices: str = "ggg",
    topology: Topology | None = None,
) -> str:
    nodes = {name: {"component": "test.mix"} for name in ("a", "c", "u0", "u1")}
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}, "body": [loop], "edges": edges}
    document = {"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}}
    graph = codec.load(json.dumps(document).encode())
    return placed(graph, ranks, devices=devices, topology=topology).walks[0].loops[0].why


def test_a_star_of_gpus_runs_on_them() -> None:
    why = planned(LOOP, ROUND, {"u0": 1})
    assert why == (
        "`l` runs on the devices, which hand each other the values: `a` and `c` on rank 0, `u0` on rank 1, static: "
        "several iterations a launch"
    )


def test_gpus_that_cannot_read_each_other_are_not_spanned() -> None:
    links = [Link(first="cuda:0", second=f"cuda:{other}", kind="system", peers=other == 2) for other in (1, 2)]
    topology = Topology(links=tuple(links))
    assert planned(LOOP, ROUND, {"u0": 1}, topology=topology) == (
        "stepped: its uses lie on ranks 0 and 1, and their GPUs can't read each other's memory"
    )
    assert planned(LOOP, ROUND, {"u0": 2}, topology=topology).startswith("`l` runs on the devices")


TOLD = "`u0` does not get a value from the leading rank in every iteration"
AGAINST: list[tuple[str, dict[str, Any], list[Any], dict[str, int], str]] = [
    ("", {}, ROUND, {"u0": 1}, "gcg"),
    ("what spans GPUs is led from rank 0", {}, ROUND, {"a": 1, "c": 1, "u0": 2}, "ggg"),
    ("a value ends it", {"until": "c.stop"}, ROUND, {"u0": 1}, "ggg"),
    (
        "`u0` and `u1` meet without rank 0, which leads",
        {"body": ["a", "u0", "u1", "c"]},
        [*ROUND, ["u0.out", "u1.a"], ["u1.out", "c.b"], ["a.out", "u1.b"]],
        {"u0": 1, "u1": 2},
        "ggg",
    ),
    (TOLD, {}, ROUND[::2], {"u0": 1}, "ggg"),
    (
        TOLD,
        {"body": [{"use": "a", "when": "@loop.index > 1"}, "u0", "c"]},
        [["a.out", "u0.b"], ["u0.out", "c.a"]],
        {"u0": 1},
        "ggg",
    ),
    ("nothing waits for `u0` in all iterations", {}, ROUND[:2], {"u0": 1}, "ggg"),
    (
        "nothing waits for `u0` in all iterations",
        {"body": ["a", "u0", {"use": "c", "when": "@loop.index > 1"}]},
        [["a.out", "u0.a"], ["u0.out", "c.a"]],
        {"u0": 1},
        "ggg",
    ),
    (
        "`a` may be ahead of `u0`",
        {"body": ["u1", "u0", "a", "c"]},
        [["@in.x", "u0.a"], ["a.out", "u0.a"], ["u0.out", "c.a"], ["a.out", "u1.a"], ["@in.x", "u1.a"]],
        {"u0": 1},
        "ggg",
    ),
    (
        "`u0.a` is fed from another rank and in another way",
        {},
        [{"from": "@in.xs", "to": "u0.a", "each": True}, *ROUND[1:]],
        {"u0": 1},
        "ggg",
    ),
]


@pytest.mark.parametrize(("why", "change", "edges", "ranks", "devices"), AGAINST)
def test_what_does_not_span(
    why: str, change: dict[str, Any], edges: list[Any], ranks: dict[str, int], devices: str
) -> None:
    found = planned(LOOP | change, edges, ranks, devices)
    assert found.startswith("stepped: its uses lie on ranks ")
    assert found.endswith(f", and {why}" if why else "ranks 0 and 1")
