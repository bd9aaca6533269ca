"""The selected outputs leave, and nothing else: next to runs that send everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.nested_walks import nested
from tests.support.random_walks import PARAMS, followed, graphs, plain
from tests.support.synthetic import one_walk
from tests.unit.worker.test_resident import INPUTS, placed, served
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.selection import Selection
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT, Report
from walkgraph.worker.walk.edge_values import ClientValues, converted

RANKS = st.just([0] * 12) | st.lists(st.integers(0, 2), min_size=12, max_size=12)
SELECTIONS = st.builds(Selection, every=st.integers(1, 4)) | st.just(Selection(last=True))


def sent(graph: Graph, ranks: list[int], seed: int, selection: Selection | None, **how: Any) -> Cluster:
    plan = placed(graph, ranks, resident=True)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    outputs = {edge.target.port for walk in plan.walks for edge in walk.edges if edge.target.kind == "out"}
    selected = {} if selection is None else dict.fromkeys(outputs, selection)
    itinerary = one_walk(plan, "w")
    cluster.start("r", itinerary, PARAMS, INPUTS, selected=selected, **how)
    cluster.run()
    assert not cluster.failures
    assert cluster.done("r") == set(itinerary.ranks)
    return cluster


def emitted(cluster: Cluster) -> dict[str, list[Any]]:
    return {name: [(at, plain(value)) for at, value in values] for (_, name), values in cluster.emitted.items()}


@settings(max_examples=60)
@given(graphs() | followed() | nested(), RANKS, st.integers(0, 99), st.integers(2, 4), st.booleans())
def test_every_nth_iteration_leaves(graph: Graph, ranks: list[int], seed: int, every: int, stepped: bool) -> None:
    whole = emitted(sent(graph, ranks, seed, None, stepped=stepped))
    some = emitted(sent(graph, ranks, seed, Selection(every=every), stepped=stepped))
    for name, values in whole.items():
        wanted = [(at, value) for at, value in values if not at or at[-1] % every == 0]
        assert sorted(some.get(name, []), key=str) == sorted(wanted, key=str)


@settings(max_examples=60)
@given(graphs() | followed() | nested(), st.integers(0, 99), st.booleans())
def test_the_last_value_leaves(graph: Graph, seed: int, stepped: bool) -> None:
    whole = emitted(sent(graph, [0] * 12, seed, None, stepped=stepped))
    some = emitted(sent(graph, [0] * 12, seed, Selection(last=True), stepped=stepped))
    assert some.keys() == whole.keys()
    for name, values in whole.items():
        (found,) = some[name]
        assert found[0] == max(at for at, _ in values)
        assert found in values


LOOP: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "g",
    "nodes": {"a": {"component": "test.mix"}, "b": {"component": "test.mix"}},
    "walks": {
        "w": {
            "inputs": {"x": "scalar"},
            "body": [{"loop": "l", "times": "7", "body": ["a", "b"]}],
            "edges": [
                ["@in.x", "a.a"],
                ["a.out", "a.a"],
                ["a.out", "b.a"],
                {"from": "b.out", "to": "@out.o", "each": True},
            ],
        }
    },
}


def looping(*body: Any, times: str, edges: Sequence[Any]) -> Graph:
    walk = {"inputs": {"x": "scalar"}, "body": [{"loop": "l", "times": times, "body": body}], "edges": edges}
    return codec.load({**LOOP, "nodes": {"a": {"component": "test.mix"}}, "walks": {"w": walk}})


@pytest.mark.parametrize("stepped", [False, True])
def test_the_last_value_leaves_where_later_iterations_have_none(stepped: bool) -> None:
    edges = [["@loop.index", "a.a"], {"from": "a.maybe", "to": "@out.o", "each": True}]
    plan = placed(looping("a", times="4", edges=edges), [], resident=True)
    cluster = Cluster(plan, {"a": lambda call: {"maybe": 7} if call.iteration < (2,) else {}}, 0)
    cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS, selected={"o": Selection(last=True)}, stepped=stepped)
    cluster.run()
    assert bool(cluster.loops) is not stepped
    assert emitted(cluster) == {"o": [((1,), 7)]}


def test_the_last_value_leaves_where_a_loop_inside_has_no_iterations_at_the_end() -> None:
    inner = {"loop": "inner", "times": "2 - @loop.l", "body": ["a"]}
    edges = [["@loop.index", "a.a"], {"from": "a.out", "to": "@out.o", "each": True}]
    graph = looping(inner, times="4", edges=edges)
    cluster = sent(graph, [], 0, Selection(last=True), stepped=True)
    assert [at for at, _ in cluster.emitted["r", "o"]] == [(1, 0)]


def test_an_output_that_nobody_wants_stays_on_its_rank() -> None:
    body = LOOP["walks"]["w"]
    edges = [*body["edges"], {"from": "a.out", "to": "@out.other", "each": True}, ["b.out", "@out.end"]]
    plan = placed(codec.load({**LOOP, "walks": {"w": {**body, "edges": edges}}}), [], resident=True)
    itinerary = one_walk(plan, "w")
    assert itinerary.outputs == ("end", "o", "other")
    heard = []
    for outputs in (itinerary.outputs, ("o",)):
        cluster = Cluster(plan, {name: served(name) for name in "ab"}, 0)
        cluster.start("r", msgspec.structs.replace(itinerary, outputs=outputs), PARAMS, INPUTS)
        cluster.run()
        assert cluster.done("r") == set(itinerary.ranks)
        heard.append(emitted(cluster))
    whole, some = heard
    assert whole.keys() == {"end", "o", "other"}
    assert some == {"o": whole["o"]}


@pytest.mark.parametrize(("selection", "wanted"), [(Selection(every=3), (0, 3, 6)), (Selection(last=True), (6,))])
def test_a_device_loop_hands_out_what_leaves(selection: Selection, wanted: Sequence[int]) -> None:
    cluster = sent(codec.load(LOOP), [], 0, selection)
    (loop,) = cluster.loops
    assert loop.wanted == {"each b.out": tuple(i in wanted for i in range(7))}
    assert [at for at, _ in cluster.emitted["r", "o"]] == [(i,) for i in wanted]


@pytest.mark.parametrize(("selection", "wanted"), [(Selection(every=3), (0, 3, 6)), (Selection(last=True), (6,))])
def test_a_stepped_loop_does_not_compute_what_only_the_client_would_get(
    selection: Selection, wanted: Sequence[int]
) -> None:
    cluster = sent(codec.load(LOOP), [], 0, selection, stepped=True)
    assert not cluster.loops
    assert [call.iteration for call in cluster.calls if call.node == "b"] == [(i,) for i in wanted]
    assert len([call for call in cluster.calls if call.node == "a"]) == 7


def test_what_others_read_too_is_computed_and_stays_on_the_device() -> None:
    graph = {**LOOP, "walks": {"w": {**LOOP["walks"]["w"], "results": {"end": "b.out"}}}}
    graph["walks"]["w"]["edges"] = [*LOOP["walks"]["w"]["edges"][:3], {"from": "a.out", "to": "@out.o", "each": True}]
    cluster = sent(codec.load(graph), [], 0, Selection(every=3), stepped=True)
    calls = {call.iteration[0]: call for call in cluster.calls if call.node == "a"}
    assert [i for i, call in sorted(calls.items()) if "out" not in call.unread] == [0, 3, 6]


def test_the_dtype_is_told_where_only_the_client_reads() -> None:
    half = Selection(dtype="float16")
    stepped = sent(codec.load(LOOP), [], 0, half, stepped=True)
    assert {node: next(dict(c.sent_as) for c in stepped.calls if c.node == node) for node in "ab"} == {
        "a": {},
        "b": {"out": "float16"},
    }
    (loop,) = sent(codec.load(LOOP), [], 0, half).loops
    assert loop.sent_as == {"each b.out": "float16"}


def emit(name: str, step: int, *iteration: int) -> m.Emit:
    return m.Emit(rank=0, run="r", name=name, value=m.Absent(), iteration=iteration, step=step)  # type: ignore[arg-type]


def test_the_last_value_of_a_step_waits_for_its_end() -> None:
    values = ClientValues({"x": Selection(last=True, dtype="float16")})
    assert [values.sent(emit("x", 2, i), torch.tensor([i / 3])) for i in range(3)] == [ABSENT] * 3
    assert values.sent(emit("y", 2), 5) == 5
    assert values.ended(1) == []
    (found,) = values.ended(2)
    assert found == Report(emit("x", 2, 2), torch.tensor([2 / 3]).half())
    assert values.ended(2) == []


def test_passes_count_where_there_is_no_loop_inside() -> None:
    values = ClientValues({"x": Selection(every=2)})
    passed = [m.Emit(rank=0, run="r", name="x", value=m.Absent(), iteration=(), passes=(i,)) for i in range(4)]  # type: ignore[arg-type]
    assert [values.sent(one, "v") for one in passed] == ["v", ABSENT, "v", ABSENT]


def test_only_floats_are_converted() -> None:
    whole = torch.arange(3)
    given = [torch.tensor([1.5, 70000.0]), whole, "text", [torch.tensor(0.1, dtype=torch.float64)]]
    found = converted(given, "float16")
    assert found[0].tolist() == [1.5, float("inf")]
    assert found[0].dtype == found[3][0].dtype == torch.float16
    assert found[1] is whole
    assert found[2] == "text"
    assert converted(given, None) is given
