"""Choices that a device loop makes by computing all branches do what taking one branch does; which ones it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS, RESIDENT, graphs, mix, plain
from tests.support.synthetic import one_walk
from tests.unit.worker.test_resident import INPUTS, calm, results, told
from walkgraph.graph import codec
from walkgraph.graph.catalogue import port
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import LoopPlan, Plan
from walkgraph.simulation.reference.reference_walk import Function, run_walk

_MIX = RESIDENT["test.mix"]
_OUTPUTS = (
    port("out", "scalar: int[]"),
    port("many", "tensor: int[3]"),
    port("maybe", "scalar"),
    port("stop", "flag"),
    port("few", "scalar: int[]"),
)
SMALL = replace(_MIX, cost="launch", outputs=_OUTPUTS)
TYPED = {
    **RESIDENT,
    "test.mix": SMALL,
    "test.large": replace(SMALL, name="test.large", cost="memory"),
    "test.open": replace(SMALL, name="test.open", outputs=(port("out", "tensor: int[n]"), *_OUTPUTS[1:])),
}
"""Like `RESIDENT`, with types that are known in whole, but for `maybe`, which may be absent."""


def small(name: str) -> Function:
    """As `mix`, with a number of which there are few."""
    whole = mix(name)
    return lambda inputs, at: (found := whole(inputs, at)) | {"few": found["out"] % 3}


def served(name: str) -> Any:
    function = small(name)
    return lambda call: dict(function(call.inputs, call.iteration))


def plan_of(graph: Graph, *, resident: bool = True, **ranks: int) -> Plan:
    groups = (Group(nodes=("*",), ranks=(0,)), *(Group(nodes=(node,), ranks=(rank,)) for node, rank in ranks.items()))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    placement = Placement(name="p", groups=groups, ranks=devices)
    return assemble(Assignment(graph, placement), TYPED, resident=resident)


def walked(graph: Graph, seed: int, *, resident: bool) -> Cluster:
    plan = plan_of(graph, resident=resident)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
    cluster.run()
    assert not cluster.failures
    return cluster


def agree(graph: Graph, seed: int) -> Cluster:
    """Resident, stepped and by the book; the first of these. Branches that aren't taken are called besides."""
    expected, _ = run_walk(graph.walks["w"], {name: small(name) for name in graph.nodes}, PARAMS, INPUTS)
    fast, slow = (walked(graph, seed, resident=resident) for resident in (True, False))
    emitted = {n: sorted((at, plain(v)) for at, v in values) for (_, n), values in fast.emitted.items()}
    assert emitted == {name: sorted(values) for name, values in expected.items() if values}
    assert results(fast) == results(slow)
    called = {told(call) for call in fast.calls}
    assert {told(call) for call in slow.calls} <= called
    made = any(loop.choices for loop in fast.plan.walks[0].loops)
    assert made or called == {told(call) for call in slow.calls}
    return fast


def walk_of(
    cases: Mapping[str, list[str]],
    otherwise: list[str],
    *,
    by: str = "u.stop",
    merges: Mapping[str, list[str]],
    edges: list[Any],
    after: list[Any] | None = None,
    times: str = "6",
    **nodes: str,
) -> Graph:
    """`u`, a choice, then `x`, in a loop."""
    choice = {"choose": by, "cases": cases, "otherwise": otherwise}
    body = ["u", choice, "x"] if after is None else ["u", choice, *after]
    every = [["@in.x", "u.a"], {"from": "x.out", "to": "@out.all", "each": True}, *edges]
    walk = {
        "inputs": {"x": "scalar", "xs": "tensor"},
        "body": [{"loop": "l", "times": times, "body": body}],
        "merges": merges,
        "edges": every,
        "results": {"last": "x.out"},
    }
    names = {*"uvwxyz"} & {word[0] for word in str(walk).replace("'", " ").split()} | {"x"}
    made = {name: {"component": nodes.get(name, "test.mix")} for name in sorted(names)}
    return codec.load({"format": "walkgraph/graph@1", "name": "g", "nodes": made, "walks": {"w": walk}})


@st.composite
def chosen(draw: st.DrawFn) -> Graph:
    flag = draw(st.booleans())
    both = flag and draw(st.booleans())
    values = (["true", "false"] if both else [draw(st.sampled_from(["true", "false"]))]) if flag else ["2", "0"]
    longer = draw(st.booleans())
    ports = draw(st.sampled_from(["out", "many"]))
    branches = [["v", "z"] if longer else ["v"], ["w"], ["y"]][: len(values) + (not both)]
    ends = [f"{branch[-1]}.{ports}" for branch in branches]
    edges: list[Any] = [["u.out", f"{branch[0]}.a"] for branch in branches]
    edges += [["v.out", "z.b"]] if longer else []
    edges += [["@merge.m", "x.a"]] if draw(st.booleans()) or ports == "many" else []
    edges += [["@merge.m", "u.b"], ["@in.x", "u.b"]] if draw(st.booleans()) else []
    edges += [["x.out", "u.c"], ["@in.x", "u.c"]] if draw(st.booleans()) else []
    by = "u.stop" if flag else "u.few"
    *cases, last = branches if not both else [*branches, []]
    return walk_of(dict(zip(values, cases, strict=True)), last, by=by, merges={"m": ends}, edges=edges)


def loop_of(graph: Graph, **ranks: int) -> LoopPlan:
    return plan_of(graph, **ranks).walks[0].loops[0]


@settings(max_examples=60)
@given(chosen(), st.integers(0, 99))
def test_computing_all_branches_does_what_taking_one_does(graph: Graph, seed: int) -> None:
    fast = agree(graph, seed)
    (loop,) = fast.plan.walks[0].loops
    assert loop.choices == (0,), loop.why
    assert fast.loops, "the loop ran on the device"
    branches = {name for name in graph.nodes if name in "vwyz"}
    assert {call.node for call in fast.calls} >= branches, "all branches were computed"


@settings(max_examples=60)
@given(graphs(), st.booleans(), st.integers(0, 99))
def test_any_walk_does_the_same_whichever_choices_are_made(graph: Graph, calmed: bool, seed: int) -> None:
    if calmed:
        walk = graph.walks["w"]
        graph = graph.model_copy(update={"walks": {"w": walk.model_copy(update={"body": calm(walk.body)})}})
    agree(graph, seed)


MERGES = {"m": ["v.out", "w.out"]}
EDGES: list[Any] = [["u.out", "v.a"], ["u.out", "w.a"], ["@merge.m", "x.a"]]
PLAIN: dict[str, Any] = {"cases": {"true": ["v"]}, "otherwise": ["w"], "merges": MERGES, "edges": EDGES}


def test_the_plan_says_that_all_branches_are_computed() -> None:
    loop = loop_of(walk_of(**PLAIN))
    assert (loop.resident, loop.choices) == (True, (0,))
    assert "all branches of the choice by `u.stop` are computed, as they are small" in loop.why
    stepped = plan_of(walk_of(**PLAIN), resident=False).walks[0].loops[0]
    assert (stepped.resident, stepped.choices) == (False, ())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"v": "test.large"}, "`v` is too much work to be done in vain"),
        ({"v": "test.host"}, "`v` can't be iterated on the device"),
        ({"u": "test.host"}, "`u` runs on the host"),
        ({"v": "test.open"}, "the values of `@merge.m` may differ in type or shape"),
        ({"merges": {"m": ["v.out", "w.many"]}}, "the values of `@merge.m` may differ in type or shape"),
        ({"merges": {"m": ["v.maybe", "w.maybe"]}}, "the values of `@merge.m` may differ in type or shape"),
        ({"merges": {"m": ["v.out"]}}, "not every branch has a value for `@merge.m`"),
        ({"otherwise": []}, "not every branch has a value for `@merge.m`"),
        ({"by": "@in.x", "cases": {"5": ["v"]}}, "its value isn't made on the same rank in the same iteration"),
        ({"by": "u.maybe", "cases": {"5": ["v"]}}, "its value is no flag and no whole number"),
        ({"edges": [*EDGES, ["v.out", "x.b"]]}, "`v.out` is read where it may be absent"),
        ({"edges": [*EDGES, ["v.out", "v.b"]]}, "`v.out` is read where it may be absent"),
        ({"edges": [*EDGES, {"from": "@merge.m", "to": "@out.m", "each": True}]}, "`@merge.m` leaves it"),
        ({"cases": {"true": [{"use": "v", "when": "on"}]}}, "it has conditions"),
        ({"cases": {"true": [{"loop": "k", "times": "2", "body": ["v"]}]}}, "`v` is in a loop inside it"),
    ],
)
def test_a_choice_that_is_not_made_says_why(changes: dict[str, Any], why: str) -> None:
    asked = {**PLAIN, **changes}
    if asked["otherwise"] == [] or len(asked["merges"]["m"]) == 1:
        asked["merges"] = {"m": ["v.out"]}
    loop = loop_of(walk_of(**asked))
    by = asked.get("by", "u.stop")
    assert (loop.resident, loop.choices) == (False, ())
    assert loop.why == f"stepped: a choice by `{by}` takes branches inside it, and {why}"


def test_branches_on_another_rank_are_taken() -> None:
    assert loop_of(walk_of(**PLAIN), v=1).why.endswith("and its uses lie on several ranks")
