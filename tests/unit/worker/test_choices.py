"""Choices in Walks and among steps: one branch is called, on one rank and across ranks, and the others give nothing."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.cluster import Cluster
from tests.support.random_walks import CATALOGUE, PARAMS
from tests.support.synthetic import one_walk
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.conductor.runs.watching import Places
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.compiler.send_order import send_orders
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expand
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Tap, Watch

KNOWN = {**CATALOGUE, "synthetic.counter": catalogue()["synthetic.counter"]}
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3])
Values = Mapping[str, Any]
"""Node -> the outputs of each of its calls, None for an absent one; a list has one for each call, in turn."""


def graph_of(nodes: str, walks: dict[str, Any], **more: Any) -> Graph:
    made = {name: {"component": "test.mix"} for name in nodes.split()}
    document = {"format": "walkgraph/graph@1", "name": "choices", "nodes": made, "walks": walks, **more}
    return codec.load(json.dumps(document).encode())


def plan_of(graph: Graph, ranks: int) -> Plan:
    placed = tuple(Group(nodes=(node,), ranks=(i % ranks,)) for i, node in enumerate(graph.nodes))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    placement = Placement(name="some", groups=placed, ranks=devices)
    return assemble(Assignment(graph, placement), KNOWN)


def run(graph: Graph, ranks: int, values: Values, *, seed: int = 0, task: str = "", **inputs: Any) -> Cluster:
    plan = plan_of(graph, ranks)
    counts: dict[str, int] = {}

    def serve(call: Call) -> dict[str, Any]:
        counts[call.node] = counts.get(call.node, 0) + 1
        found = values.get(call.node, {})
        outputs = found[counts[call.node] - 1] if isinstance(found, list) else found
        return {port: value for port, value in {"out": call.node, **outputs}.items() if value is not None}

    cluster = Cluster(plan, {node.name: serve for node in plan.nodes}, seed)
    itinerary = expand(graph, plan, task, {"seed": 1}, {}) if task else one_walk(plan, "w")
    if not task:
        outputs = [e.target.port for e in plan.walks[0].edges if e.target.kind == "out"]
        itinerary = replace(itinerary, send_orders=send_orders(plan, itinerary.steps, outputs))
    cluster.start("r", itinerary, {**PARAMS, "seed": 1}, inputs)
    cluster.run()
    assert not cluster.failures
    waiting = {rank: core.standing("r") for rank, core in cluster.cores.items()}
    assert cluster.done("r") == set(itinerary.ranks), waiting
    return cluster


def called(cluster: Cluster) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((call.node, call.iteration) for call in cluster.calls)


def outputs(cluster: Cluster, name: str) -> list[tuple[tuple[int, ...], Any]]:
    return cluster.outputs["r", name]


SIMPLE: dict[str, Any] = {
    "inputs": {"x": "text"},
    "body": [
        "judge",
        {"choose": "judge.out", "cases": {"draw": ["draw"], "photo": ["photo"]}, "otherwise": ["none"]},
        "show",
    ],
    "merges": {"picture": ["draw.out", "photo.out", "none.out"]},
    "edges": [["@in.x", "judge.a"], ["@merge.picture", "show.a"], ["@merge.picture", "@out.o"]],
}


@RANKS
@pytest.mark.parametrize(
    ("value", "taken"),
    [("draw", "draw"), ("photo", "photo"), ("Draw", "none"), ("", "none"), (None, "none")],
)
def test_one_branch_is_called(ranks: int, value: str | None, taken: str) -> None:
    graph = graph_of("judge draw photo none show", {"w": SIMPLE})
    cluster = run(graph, ranks, {"judge": {"out": value}}, x="hi")
    assert [name for name, _ in called(cluster)] == sorted(("judge", taken, "show"))
    assert [call.inputs for call in cluster.calls if call.node == "show"] == [{"a": taken}]
    assert outputs(cluster, "o") == [((), taken)]


@pytest.mark.parametrize(
    ("value", "cases", "taken"),
    [
        (True, ("true", "false"), 0),
        (False, ("true", "false"), 1),
        (3, ("0", "3"), 1),
        (-3, ("3", "-3"), 1),
        (30, ("3", "0"), 2),
    ],
)
def test_flags_and_numbers_are_matched_as_text(value: Any, cases: tuple[str, str], taken: int) -> None:
    choice = {"choose": "judge.out", "cases": {cases[0]: ["a0"], cases[1]: ["a1"]}, "otherwise": ["a2"]}
    cluster = run(graph_of("judge a0 a1 a2", {"w": {"body": ["judge", choice]}}), 1, {"judge": {"out": value}})
    assert called(cluster) == [(f"a{taken}", ()), ("judge", ())]


@RANKS
def test_an_input_chooses(ranks: int) -> None:
    choice = {"choose": "@in.x", "cases": {"a": ["a"], "b": ["b"]}}
    graph = graph_of("a b", {"w": {"inputs": {"x": "text"}, "body": [choice], "edges": []}})
    assert called(run(graph, ranks, {}, x="b")) == [("b", ())]
    assert called(run(graph, ranks, {}, x="c")) == []
    assert called(run(graph, ranks, {})) == []


@RANKS
def test_a_choice_is_made_in_each_iteration(ranks: int) -> None:
    """A branch with a loop of its own, one without, and values that leave as they come."""
    inner = {"loop": "m", "times": "@loop.l + 1", "body": ["many"]}
    choice = {"choose": "judge.out", "cases": {"many": [inner], "one": ["one"]}}
    walk = {
        "body": [{"loop": "l", "times": "5", "body": ["judge", choice]}, "end"],
        "merges": {"v": ["many.out", "one.out"]},
        "edges": [
            {"from": "@merge.v", "to": "@out.each", "each": True},
            ["@merge.v", "@out.last"],
            {"from": "many.out", "to": "end.a", "collect": True},
            ["one.out", "end.b"],
        ],
    }
    kinds = ["many", "one", "none", "many", "one"]
    graph = graph_of("judge many one end", {"w": walk})
    for seed in range(10):
        cluster = run(graph, ranks, {"judge": [{"out": kind} for kind in kinds]}, seed=seed)
        assert outputs(cluster, "each") == [
            ((0, 0), "many"),
            ((1,), "one"),
            *[((3, i), "many") for i in range(4)],
            ((4,), "one"),
        ]
        assert outputs(cluster, "last") == [((), "one")]
        assert [call.inputs for call in cluster.calls if call.node == "end"] == [{"a": "many" * 5, "b": "one"}]


@RANKS
def test_the_last_value_is_absent_where_the_last_iteration_took_another_branch(ranks: int) -> None:
    inner = {"loop": "m", "times": "2", "body": ["a"]}
    walk = {
        "body": [
            {"loop": "l", "times": "2", "body": ["judge", {"choose": "judge.stop", "cases": {"true": [inner]}}]},
            "end",
        ],
        "edges": [["a.out", "end.a"]],
    }
    graph = graph_of("judge a end", {"w": walk})
    cluster = run(graph, ranks, {"judge": [{"stop": True}, {"stop": False}]})
    assert [call.inputs for call in cluster.calls if call.node == "end"] == [{}]


@RANKS
def test_a_value_is_carried_from_the_branch_taken_before(ranks: int) -> None:
    choice = {"choose": "judge.stop", "cases": {"true": ["a"], "false": ["b"]}}
    walk = {
        "body": [{"loop": "l", "times": "3", "body": ["judge", choice]}],
        "merges": {"v": ["a.out", "b.out"]},
        "edges": [["@merge.v", "judge.a"]],
    }
    graph = graph_of("judge a b", {"w": walk})
    cluster = run(graph, ranks, {"judge": [{"stop": True}, {"stop": False}, {"stop": True}]})
    assert [call.inputs for call in cluster.calls if call.node == "judge"] == [{}, {"a": "a"}, {"a": "b"}]


@RANKS
def test_an_earlier_iteration_chooses(ranks: int) -> None:
    """The value comes from after the choice, so that the first iteration has none."""
    choice = {"choose": "judge.stop", "cases": {"true": ["a"]}, "otherwise": ["b"]}
    walk = {"body": [{"loop": "l", "times": "3", "body": [choice, "judge"]}], "edges": []}
    cluster = run(
        graph_of("judge a b", {"w": walk}), ranks, {"judge": [{"stop": True}, {"stop": False}, {"stop": True}]}
    )
    assert [one for one in called(cluster) if one[0] != "judge"] == [("a", (1,)), ("b", (0,)), ("b", (2,))]


@RANKS
def test_a_merge_ends_a_loop(ranks: int) -> None:
    choice = {"choose": "judge.out", "cases": {"a": ["a"]}, "otherwise": ["b"]}
    loop = {"loop": "l", "times": "5", "until": "@merge.stop", "body": ["judge", choice]}
    walk = {"body": [loop], "merges": {"stop": ["a.stop", "b.stop"]}, "edges": []}
    graph = graph_of("judge a b", {"w": walk})
    cluster = run(
        graph,
        ranks,
        {"judge": [{"out": "a"}, {"out": "b"}, {"out": "a"}], "a": {"stop": False}, "b": [{"stop": True}]},
    )
    assert called(cluster) == [("a", (0,)), ("b", (1,)), ("judge", (0,)), ("judge", (1,))]


@RANKS
def test_a_loop_goes_on_where_the_use_that_may_end_it_is_not_taken(ranks: int) -> None:
    inner = {"loop": "m", "times": "1", "body": ["a"]}
    choice = {"choose": "judge.out", "cases": {"a": [inner]}}
    walk = {"body": [{"loop": "l", "times": "4", "until": "a.stop", "body": ["judge", choice]}], "edges": []}
    graph = graph_of("judge a", {"w": walk})
    cluster = run(graph, ranks, {"judge": [{"out": "b"}, {"out": "a"}], "a": {"stop": True}})
    assert called(cluster) == [("a", (1, 0)), ("judge", (0,)), ("judge", (1,))]


@RANKS
def test_a_choice_inside_a_branch(ranks: int) -> None:
    inner = {"choose": "second.out", "cases": {"x": ["x"]}, "otherwise": ["y"]}
    outer = {"choose": "first.out", "cases": {"in": ["second", inner]}, "otherwise": ["z"]}
    walk = {
        "body": ["first", outer, "end"],
        "merges": {"v": ["x.out", "y.out", "z.out"]},
        "edges": [["@merge.v", "end.a"]],
    }
    graph = graph_of("first second x y z end", {"w": walk})
    for first, second, taken in (("in", "x", "x"), ("in", "?", "y"), ("?", "x", "z")):
        cluster = run(graph, ranks, {"first": {"out": first}, "second": {"out": second}})
        assert [call.inputs for call in cluster.calls if call.node == "end"] == [{"a": taken}]


def test_no_branch_is_taken_where_the_choice_has_a_condition() -> None:
    choice = {"choose": "judge.out", "cases": {"a": ["a"]}, "otherwise": ["b"], "when": "off"}
    cluster = run(graph_of("judge a b", {"w": {"body": ["judge", choice], "edges": []}}), 1, {"judge": {"out": "a"}})
    assert called(cluster) == [("judge", ())]


def test_branches_may_write_one_state() -> None:
    nodes = {name: {"component": "synthetic.counter", "states": {"count": "count"}} for name in "ab"}
    document = {
        "format": "walkgraph/graph@1",
        "name": "choices",
        "nodes": {"judge": {"component": "test.mix"}, **nodes},
        "states": {"count": {"kind": "tensor"}},
        "walks": {
            "w": {
                "body": ["judge", {"choose": "judge.out", "cases": {"a": ["a"]}, "otherwise": ["b"]}],
                "edges": [],
            }
        },
    }
    graph = codec.load(json.dumps(document).encode())
    assert called(run(graph, 1, {"judge": {"out": "?"}})) == [("b", ()), ("judge", ())]


def test_verdicts_travel_and_are_few() -> None:
    """A rank tells the others which branch is taken; what isn't taken sends nothing but that it has no value."""
    inner = {"loop": "m", "times": "100", "body": ["a"]}
    walk = {
        "body": ["judge", {"choose": "judge.out", "cases": {"a": [inner]}}, "end"],
        "edges": [["a.out", "end.a"]],
    }
    cluster = run(graph_of("judge a end", {"w": walk}), 3, {"judge": {"out": "b"}})
    assert [type(one) for one in cluster.sent] == [m.Chosen, m.Deliver]


@RANKS
def test_a_tap_on_a_merge_sees_the_value_that_is_there(ranks: int) -> None:
    plan = plan_of(graph_of("judge draw photo none show", {"w": SIMPLE}), ranks)
    tap = Tap(id="t", walk="w", source="@merge.picture", to="show.a", interval=0)
    assert not Places(plan).inside(tap)
    cluster = Cluster(plan, {node.name: lambda call: {"out": call.node} for node in plan.nodes})
    cluster.watch(Watch(taps=(tap,)))
    cluster.start("r", one_walk(plan, "w"), {**PARAMS, "seed": 1}, {"x": "hi"})
    cluster.run()
    assert [(seen.source, seen.value) for _, seen in cluster.observed] == [("@merge.picture", "none")]


# ── steps ──────────────────────────────────────────────────────────────────────────────────────


def task_of(steps: list[Any], out: str = "end") -> dict[str, Any]:
    return {"outputs": [out], "steps": steps}


def walk_of(use: str, *inputs: str, out: bool = False) -> dict[str, Any]:
    edges = [[f"@in.{name}", f"{use}.{name}"] for name in inputs] + ([[f"{use}.out", "@out.end"]] if out else [])
    return {
        "inputs": dict.fromkeys(inputs, "scalar"),
        "body": [use],
        "edges": edges,
        "results": {"out": f"{use}.out", "stop": f"{use}.stop"},
    }


WALKS = {
    "judge": walk_of("judge"),
    "draw": walk_of("draw"),
    "photo": walk_of("photo"),
    "other": walk_of("other"),
    "end": walk_of("end", "a", out=True),
}


@RANKS
@pytest.mark.parametrize(("value", "taken"), [("draw", "draw"), ("photo", "photo"), ("?", None), (None, None)])
def test_steps_of_one_branch_run(ranks: int, value: str | None, taken: str | None) -> None:
    steps = [
        {"walk": "judge"},
        {
            "choose": "judge.out",
            "cases": {
                "draw": [{"walk": "draw", "as": "made"}, {"walk": "other"}],
                "photo": [{"walk": "photo", "as": "made"}],
            },
        },
        {"walk": "end", "with": {"a": "made.out"}},
    ]
    graph = graph_of("judge draw photo other end", WALKS, tasks={"t": task_of(steps)})
    for seed in range(5):
        cluster = run(graph, ranks, {"judge": {"out": value}}, task="t", seed=seed)
        names = {name for name, _ in called(cluster)}
        assert names == {"judge", "end"} | ({taken} if taken else set())
        assert [call.inputs for call in cluster.calls if call.node == "end"] == [{"a": taken} if taken else {}]


@RANKS
def test_the_latest_step_that_was_taken_is_meant(ranks: int) -> None:
    """A name that a step before the choice has too, and a choice by a result of a branch."""
    inner = [{"walk": "draw", "as": "made"}]
    steps = [
        {"walk": "photo", "as": "made"},
        {"walk": "judge"},
        {"choose": "judge.out", "cases": {"draw": inner}},
        {"choose": "made.stop", "cases": {"true": [{"walk": "other", "as": "made"}]}},
        {"walk": "end", "with": {"a": "made.out"}},
    ]
    graph = graph_of("judge draw photo other end", WALKS, tasks={"t": task_of(steps)})
    for value, photo, draw, meant in (
        ("?", False, True, "photo"),
        ("?", True, False, "other"),
        ("draw", True, False, "draw"),
        ("draw", False, True, "other"),
    ):
        values = {"judge": {"out": value}, "photo": {"stop": photo}, "draw": {"stop": draw}}
        cluster = run(graph, ranks, values, task="t")
        assert [call.inputs for call in cluster.calls if call.node == "end"] == [{"a": meant}]


@RANKS
def test_a_step_may_choose_by_a_merge(ranks: int) -> None:
    choice = {"choose": "judge.out", "cases": {"a": ["draw"]}, "otherwise": ["photo"]}
    first = {"body": ["judge", choice], "merges": {"m": ["draw.out", "photo.out"]}, "results": {"m": "@merge.m"}}
    steps = [
        {"walk": "first"},
        {"choose": "first.m", "cases": {"photo": [{"walk": "other", "as": "made"}]}},
        {"walk": "end", "with": {"a": "made.out"}},
    ]
    graph = graph_of("end other judge draw photo", {**WALKS, "first": first}, tasks={"t": task_of(steps)})
    for value, meant in (("a", {}), ("b", {"a": "other"})):
        cluster = run(graph, ranks, {"judge": {"out": value}}, task="t")
        assert [call.inputs for call in cluster.calls if call.node == "end"] == [meant]


@RANKS
def test_outputs_of_branches_come_in_the_order_of_the_steps(ranks: int) -> None:
    walks = {**WALKS, "draw": walk_of("draw", out=True), "photo": walk_of("photo", out=True)}
    steps = [
        {"walk": "judge"},
        {"choose": "judge.out", "cases": {"a": [{"walk": "draw"}]}, "otherwise": [{"walk": "photo"}]},
        {"walk": "end"},
    ]
    graph = graph_of("judge draw photo other end", walks, tasks={"t": task_of(steps)})
    for value, first in (("a", "draw"), ("b", "photo")):
        cluster = run(graph, ranks, {"judge": {"out": value}}, task="t")
        assert [found for _, found in outputs(cluster, "end")] == [first, "end"]
