"""Every problem of a placement comes back with its place; nothing that a placement may hold makes `plan` raise."""

import copy
import random
from typing import Any

import pytest

from tests.support.placing import CATALOGUE, DOCUMENT, GIB, at, duet, hardware, placement, planned, sizes
from walkgraph.graph.catalogue import Component
from walkgraph.graph.problems import Problem
from walkgraph.placement.document import decode, encode, faults
from walkgraph.placement.plan import PlanResult, plan

TWO = placement(at(1, "guide"))


def given(**changes: Any) -> PlanResult:
    """The two-rank placement as JSON, changed at its top, planned."""
    return plan(duet(), decode(encode(TWO) | changes), hardware(32 * GIB, 32 * GIB), CATALOGUE, sizes())


def coded(result: PlanResult, code: str) -> Problem:
    found = [problem for problem in result.problems if problem.code == code]
    assert len(found) == 1, result.problems
    return found[0]


def test_a_good_placement_has_no_problems() -> None:
    made = planned()
    assert made.plan is not None
    assert [p for p in made.problems if p.code != "idle_rank"] == []
    assert made.deployable


@pytest.mark.parametrize(
    ("group", "code", "pointer", "says"),
    [
        (at(1, "lm"), "unknown_node", "/groups/1/nodes/0", "did you mean `llm`"),
        (at(2, "llm"), "unknown_rank", "/groups/1/ranks/0", "take one of 0, 1"),
        (at(1, "llm", walks=("drw",)), "unknown_walk", "/groups/1/walks/0", "did you mean `draw`"),
        (at(1, "llm", host="elsewhere"), "unknown_host", "/groups/1/host", "use one of `here`"),
        (
            {"nodes": ("llm",), "ranks": (0, 1), "tensor_parallel": 2},
            "indivisible",
            "/groups/1/tensor_parallel",
            "to 1",
        ),
        ({"nodes": ("llm",), "ranks": (0, 1)}, "rank_count", "/groups/1/ranks", "2 ranks are given"),
    ],
)
def test_wrong_groups(group: dict[str, Any], code: str, pointer: str, says: str) -> None:
    made = planned(group)
    problem = coded(made, code)
    assert made.plan is None
    assert (problem.pointer, problem.severity) == (pointer, "error")
    assert says in problem.message


@pytest.mark.parametrize(
    ("ranks", "code", "pointer"),
    [
        ([{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cuda:7"}], "no_device", "/ranks/1/device"),
        ([{"rank": 0, "device": "cpu"}, {"rank": 0, "device": "cpu"}], "duplicate_rank", "/ranks/1/rank"),
        ([{"rank": 0, "device": "cpu"}, {"rank": 5, "device": "cpu"}], "rank_gap", "/ranks/1/rank"),
        ([], "no_ranks", "/ranks"),
    ],
)
def test_wrong_ranks(ranks: list[Any], code: str, pointer: str) -> None:
    made = given(ranks=ranks)
    assert made.plan is None
    assert coded(made, code).pointer == pointer


def test_every_node_needs_a_rank_in_every_walk() -> None:
    others = [name for name in duet().nodes if name not in {"voice", "llm"}]
    made = given(groups=[{"nodes": others, "ranks": [0]}, {"nodes": ["llm"], "ranks": [1], "walks": ["draw"]}])
    messages = sorted(p.message for p in made.problems if p.code == "unplaced")
    assert [m.split(";")[0] for m in messages] == [
        "node `llm` has no rank in `prefill`, `decode`",
        "node `voice` has no rank in `speak`",
    ]


def test_a_state_is_on_one_rank_in_a_walk() -> None:
    graph = duet()
    nodes = graph.nodes | {"guide": graph.nodes["guide"].model_copy(update={"states": {"kv": "main"}})}
    made = plan(graph.model_copy(update={"nodes": nodes}), placement(at(1, "guide")), hardware(), CATALOGUE, sizes())
    problem = coded(made, "split_state")
    assert made.plan is None
    assert problem.pointer == "/groups/1"
    assert "place `llm`, `guide` together" in problem.message


def test_warnings_leave_a_plan() -> None:
    made = given(graph="other")
    assert made.plan is not None
    assert {p.code for p in made.problems if p.severity == "warning"} == {"other_graph", "crossing_loop"}
    crossing = coded(made, "crossing_loop")
    assert "loop `steps` in Walk `draw` goes between ranks 0, 1" in crossing.message
    assert "`guide`, `mix`" in crossing.message


def test_a_loop_that_only_sends_on_is_no_crossing_loop() -> None:
    assert not [p for p in planned(at(1, "say")).problems if p.code == "crossing_loop"]


def test_ranks_without_work_are_warned_of() -> None:
    idle = planned(at(1, "read", "say"), devices=("cuda:0", "cuda:1", "cpu"))
    assert idle.plan is not None
    assert "rank 1 holds `cuda:1` for nodes that run on the CPU" in coded(idle, "idle_gpu").message
    assert "no node is on rank 2" in coded(idle, "idle_rank").message


def test_outputs_are_kept_where_no_input_was_computed_on_a_gpu() -> None:
    graph = duet()
    nodes = {name: node.model_copy(update={"kept": "own"}) for name, node in graph.nodes.items()}
    kept = graph.model_copy(update={"nodes": nodes})
    made = plan(kept, placement(at(1, "paint"), devices=("cuda:0", "cpu")), hardware(32 * GIB), CATALOGUE, sizes())
    assert made.plan is not None
    assert {node.kept for node in made.plan.nodes} == {"own"}
    said = {problem.message.split("`")[1] for problem in made.problems if problem.code == "not_kept"}
    assert said == {"llm", "guide", "mix"}, "the others read what a CPU gives, or are on one"


def test_unavailable_components_are_planned_and_not_deployed() -> None:
    catalogue = {
        **CATALOGUE,
        "t.paint": Component(name="t.paint", description="", outputs=CATALOGUE["t.paint"].outputs),
    }
    made = plan(duet(), placement(at(1, "paint")), hardware(), catalogue, sizes())
    assert made.plan is not None
    assert coded(made, "unavailable").pointer == "/groups/1"
    assert not made.deployable


def test_plan_survives_whatever_a_placement_holds() -> None:
    """2,000 mutations: each is refused as malformed, or planned with or without problems."""
    draw = random.Random(7)
    base = encode(placement(at(1, "guide", walks=("draw",), memory="2GiB"), at(0, "llm", memory="40%")))
    graph = duet()
    planned_ones = 0
    for _ in range(2000):
        value = copy.deepcopy(base)
        for _ in range(draw.choice((1, 1, 2))):
            mutate(value, draw)
        if faults(value):
            continue
        planned_ones += 1
        made = plan(graph, decode(value), hardware(8 * GIB), CATALOGUE, sizes())
        assert (made.plan is None) == any(p.severity == "error" for p in made.problems)
        assert all(p.message and (p.pointer == "" or p.pointer.startswith("/")) for p in made.problems)
    assert planned_ones > 300


VALUES: list[Any] = [None, 0, 1, 2, -1, 255, 2**62, 1.5, "", "llm", "keep", "*", "draw", "decode", "0%", "1GiB"]
VALUES += ["999999TiB", "cpu", "cuda:0", "cuda:9", [], ["llm"], ["voice", "mix"], [0], [0, 1], [7], {}, True]


def mutate(value: Any, draw: random.Random) -> None:
    """Change, remove, repeat or add one thing, somewhere."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw.choice(keys)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            value = inner
            continue
        if isinstance(value, list) and draw.random() < 0.3:
            value.append(copy.deepcopy(inner))
        elif draw.random() < 0.1:
            del value[key]
        else:
            alike = [v for v in VALUES if type(v) is type(inner)]
            value[key] = draw.choice(alike if alike and draw.random() < 0.9 else VALUES)
        return


def test_plan_survives_a_graph_that_check_refuses() -> None:
    for walk in DOCUMENT["walks"]:
        graph = duet()
        walks = {name: w for name, w in graph.walks.items() if name != walk}
        plan(graph.model_copy(update={"walks": walks}), TWO, hardware(), CATALOGUE, sizes())
    for node in DOCUMENT["nodes"]:
        graph = duet()
        nodes = {name: n for name, n in graph.nodes.items() if name != node}
        plan(graph.model_copy(update={"nodes": nodes}), TWO, hardware(), CATALOGUE, sizes())
    plan(duet().model_copy(update={"states": {}, "streams": (), "weights": {}}), TWO, hardware(), {}, sizes())
