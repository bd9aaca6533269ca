"""Random Walks: the compiled tables, and the workers that run by them, agree with the Walk run by the book."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.cluster import Cluster
from tests.support.naive_tables import run_tables
from tests.support.random_walks import CATALOGUE, PARAMS, graphs, mix, plain
from tests.support.synthetic import one_walk
from walkgraph.abi.calls import Call
from walkgraph.graph.document import Edge, Graph, Loop
from walkgraph.graph.structure import Entry, structure
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.compiler.compile import chunked, compile_walk
from walkgraph.placement.compiler.context import Context
from walkgraph.placement.compiler.send_order import send_orders
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.simulation.reference.reference_walk import run_walk

ONE = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
INPUTS = {"x": 5, "xs": [7, 8]}
QUICK = settings(max_examples=60)


def placed(graph: Graph, ranks: list[int]) -> Plan:
    groups = tuple(Group(nodes=(node,), ranks=(rank,)) for node, rank in zip(graph.nodes, ranks, strict=False))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    placement = Placement(name="random", groups=(Group(nodes=("*",), ranks=(0,)), *groups), ranks=devices)
    return assemble(Assignment(graph, placement), CATALOGUE)


@QUICK
@given(graphs())
def test_tables_say_what_the_document_says(graph: Graph) -> None:
    plan = placed(graph, [])
    functions = {name: mix(name) for name in graph.nodes}
    expected = run_walk(graph.walks["w"], functions, PARAMS, INPUTS)
    assert run_tables(plan, plan.walks[0], functions, PARAMS, INPUTS) == expected


@QUICK
@given(graphs(), st.lists(st.integers(0, 2), min_size=12, max_size=12), st.integers(0, 99))
def test_workers_do_what_the_document_says(graph: Graph, ranks: list[int], seed: int) -> None:
    plan = placed(graph, ranks)
    functions = {name: mix(name) for name in graph.nodes}
    expected, _ = run_walk(graph.walks["w"], functions, PARAMS, INPUTS)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    itinerary = one_walk(plan, "w")
    itinerary = replace(itinerary, send_orders=send_orders(plan, itinerary.steps, list(expected)))
    cluster.start("r", itinerary, PARAMS, INPUTS)
    cluster.run()
    assert not cluster.failures
    assert cluster.done("r") == set(itinerary.ranks)
    emitted = {n: sorted((at, plain(v)) for at, v in values) for (_, n), values in cluster.emitted.items()}
    assert emitted == {name: sorted(values) for name, values in expected.items() if values}
    ordered = {n: [(at, plain(v)) for at, v in values] for (_, n), values in cluster.outputs.items()}
    assert ordered == {name: values for name, values in expected.items() if values}


def served(name: str) -> Any:
    function = mix(name)

    def serve(call: Call) -> dict[str, Any]:
        return dict(function(call.inputs, call.iteration))

    return serve


@QUICK
@given(graphs())
def test_the_twin_is_the_walk_inside_one_more_loop(graph: Graph) -> None:
    walk = graph.walks["w"]
    # A value can't leave a loop of its own as the last one where chunks send every one.
    kept = tuple(edge for edge in walk.edges if not _apart(edge, {at.name: at for at in structure(walk).entries}))
    walk = walk.model_copy(update={"edges": kept, "results": {}})
    graph = graph.model_copy(update={"walks": {"w": walk}})
    context = Context(Assignment(graph, ONE), CATALOGUE)
    plain = compile_walk(context, structure(walk, "w"), 0)
    sent = tuple(e.model_copy(update={"each": True}) if e.to.startswith("@out.") else e for e in kept)
    wrapped = walk.model_copy(update={"edges": sent, "body": (Loop(loop="chunk", times="9", body=walk.body),)})
    expected = compile_walk(context, structure(wrapped, "w"), 0)
    twin = chunked(context, plain, 0)
    assert twin.uses == expected.uses
    assert twin.edges == expected.edges
    assert [(loop.index, loop.name, loop.parent, loop.until) for loop in twin.loops] == [
        (loop.index, loop.name, loop.parent, loop.until) for loop in expected.loops
    ]


def _apart(edge: Edge, entries: dict[str, Entry]) -> bool:
    if edge.from_.startswith("@in."):
        return edge.each
    source = entries.get(edge.from_.split(".")[0])
    return edge.to.startswith("@out.") and source is not None and bool(source.loops) and not edge.each
