"""Choices in plans: their tables, itineraries, demand and simulation, and what loops do about them."""

import copy
import json
from collections import Counter
from typing import Any

from tests.support.random_walks import RESIDENT
from walkgraph.components import catalogue
from walkgraph.conductor.runs.page_budget import PageBudget
from walkgraph.engine.calls.readback import chained, host_ports
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.ids import Rank
from walkgraph.placement.capacity.demand import Kept, PageDemand, page_demand
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expand
from walkgraph.placement.judge import judge_plan
from walkgraph.placement.routes import routes
from walkgraph.placement.show import render
from walkgraph.placement.simulate import simulate
from walkgraph.placement.tables import FromStep, Plan, StepChoice
from walkgraph.wire.messages import PoolSize

KNOWN = {**RESIDENT, **{name: catalogue()[name] for name in ("synthetic.attend", "synthetic.compare")}}
DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "choices",
    "nodes": {
        "judge": {"component": "synthetic.compare"},
        "a": {"component": "synthetic.attend", "states": {"kv": "small"}},
        "b": {"component": "synthetic.attend", "states": {"kv": "large"}},
        "c": {"component": "synthetic.attend", "states": {"kv": "both"}},
        "end": {"component": "test.mix"},
    },
    "states": {
        "small": {"kind": "paged_kv", "capacity": "16"},
        "large": {"kind": "paged_kv", "capacity": "64"},
        "both": {"kind": "paged_kv", "capacity": "32"},
    },
    "walks": {
        "judge": {
            "inputs": {"x": "scalar: int"},
            "body": ["judge"],
            "edges": [["@in.x", "judge.value"]],
            "results": {"big": "judge.reached", "value": "judge.value"},
        },
        "small": {"inputs": {"t": "tokens"}, "body": ["a", "c"], "edges": [["@in.t", "a.ids"], ["@in.t", "c.ids"]]},
        "large": {"inputs": {"t": "tokens"}, "body": ["b", "c"], "edges": [["@in.t", "b.ids"], ["@in.t", "c.ids"]]},
    },
    "tasks": {
        "t": {
            "params": {"x": {"type": "integer", "default": 1}, "mode": {"type": "string", "default": "none"}},
            "inputs": {"t": {"modality": "tokens"}},
            "outputs": ["o"],
            "steps": [
                {"walk": "judge", "with": {"x": "@task.x"}},
                {
                    "choose": "judge.big",
                    "cases": {"true": [{"walk": "large", "as": "made", "with": {"t": "@task.t"}}]},
                    "otherwise": [{"walk": "small", "as": "made", "with": {"t": "@task.t"}}],
                },
            ],
        }
    },
}
for _walk, _use in (("small", "a"), ("large", "b")):
    DOCUMENT["walks"][_walk]["edges"].append([f"{_use}.token", "@out.o"])


def plan_of(document: dict[str, Any], *placed: tuple[str, int]) -> Plan:
    graph = codec.load(json.dumps(document).encode())
    groups = (Group(nodes=("*",), ranks=(0,)), *(Group(nodes=(node,), ranks=(rank,)) for node, rank in placed))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(1 + max((r for _, r in placed), default=0)))
    return assemble(Assignment(graph, Placement(name="p", groups=groups, ranks=devices)), KNOWN)


def with_walk(walk: dict[str, Any], nodes: str = "u v w x") -> dict[str, Any]:
    made = {name: {"component": "test.mix"} for name in nodes.split()}
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}, **walk}
    return {"format": "walkgraph/graph@1", "name": "g", "nodes": made, "walks": {"w": walk}}


CHOICE = {"choose": "u.stop", "cases": {"true": ["v"], "false": ["w"]}}


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def test_a_choice_is_a_use_where_its_value_is_made() -> None:
    walk = {"body": ["u", CHOICE, "x"], "merges": {"m": ["v.out", "w.out"]}, "edges": [["@merge.m", "x.a"]]}
    document = with_walk(walk)
    plan = plan_of(document, ("v", 1), ("w", 2))
    table = plan.walks[0]
    assert [(use.name, use.op, use.rank, use.cases) for use in table.uses] == [
        ("u", "call", 0, ()),
        ("choose:u.stop", "choose", 0, ()),
        ("v", "call", 1, ((0, 0),)),
        ("w", "call", 2, ((0, 1),)),
        ("x", "call", 0, ()),
    ]
    (choice,) = table.choices
    assert (choice.use, choice.by, choice.cases, choice.ranks) == (1, "u.stop", ("true", "false"), (1, 2))
    ends = [(e.source.use, e.target.use, e.target.port, e.merged) for e in table.edges]
    assert ends == [(2, 4, "a", "m"), (3, 4, "a", "m"), (0, 1, "value", "")]
    travel = routes(codec.load(document), plan)
    assert [(one.pointer, one.source, one.target) for one in travel] == [
        ("/walks/w/edges/0", 1, 0),
        ("/walks/w/edges/0", 2, 0),
    ]
    assert "choose u.stop  true, false · decided on rank 0" in render(plan)


def test_values_that_choose_are_read_back() -> None:
    plan = plan_of(with_walk({"body": ["u", CHOICE], "edges": []}))
    assert host_ports(plan, plan.ranks[0])["w", "u"] == {"stop"}
    assert ("w", "u") not in chained(plan, plan.ranks[0])
    plan = plan_of(DOCUMENT)
    assert any(name == "judge" and "reached" in ports for (_, name), ports in host_ports(plan, plan.ranks[0]).items())


def test_branches_of_one_stream_are_on_one_rank() -> None:
    document = with_walk({"body": ["u", CHOICE], "merges": {"m": ["v.out", "w.out"]}, "edges": []})
    document["walks"]["read"] = {"body": ["x"], "edges": [["@stream.s", "x.a"]]}
    document["streams"] = [{"name": "s", "from": "@merge.m", "walks": ["w"], "chunks": {"policy": "whole"}}]
    apart = judge_plan(plan_of(document, ("w", 1)))
    assert [(p.code, p.severity) for p in apart if p.severity == "error"] == [("unsupported", "error")]
    assert not [p for p in judge_plan(plan_of(document, ("v", 1), ("w", 1))) if p.severity == "error"]


# ── loops ───────────────────────────────────────────────────────────────────────────────────────


def test_a_loop_with_a_choice_is_stepped_and_one_in_a_branch_is_not() -> None:
    inner = {"loop": "m", "times": "3", "body": ["v"]}
    choice = {"choose": "u.stop", "cases": {"true": [inner]}}
    plan = plan_of(with_walk({"body": [{"loop": "l", "times": "5", "body": ["u", choice]}], "edges": []}))
    outer, deep = plan.walks[0].loops
    why = "stepped: a choice by `u.stop` takes branches inside it, and `v` is in a loop inside it"
    assert (outer.resident, outer.why) == (False, why)
    assert deep.resident


def test_a_merge_enters_a_loop_on_the_device() -> None:
    walk = {
        "body": ["u", CHOICE, {"loop": "l", "times": "5", "body": ["x"]}],
        "merges": {"m": ["v.out", "w.out"]},
        "edges": [["@merge.m", "x.a"], ["x.out", "x.a"]],
    }
    assert plan_of(with_walk(walk)).walks[0].loops[0].resident


# ── steps ───────────────────────────────────────────────────────────────────────────────────────


def test_the_document_is_accepted() -> None:
    assert check(DOCUMENT, KNOWN).ok, check(DOCUMENT, KNOWN).errors


def expanded(document: dict[str, Any], *placed: tuple[str, int], **params: Any) -> tuple[Plan, Any]:
    plan = plan_of(document, *placed)
    return plan, expand(codec.load(document), plan, "t", {"seed": 1, **params}, {"t": ["x"]})


def test_all_branches_are_in_the_itinerary_until_a_result_is_known() -> None:
    plan, found = expanded(DOCUMENT)
    names = [(plan.walks[step.walk].name, step.cases) for step in found.steps]
    assert names == [("judge", ()), ("large", ((0, 0),)), ("small", ((0, 1),))]
    assert found.choices == (StepChoice(index=0, sources=(FromStep(0, "big"),), cases=("true",)),)


def test_a_parameter_chooses_at_once() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["tasks"]["t"]["steps"][1] |= {"choose": "@task.mode", "cases": {"full": []}}
    document["tasks"]["t"]["steps"][1]["cases"]["full"] = [{"walk": "large", "with": {"t": "@task.t"}}]
    for mode, taken in (("full", "large"), ("none", "small")):
        plan, found = expanded(document, mode=mode)
        assert [plan.walks[step.walk].name for step in found.steps] == [taken]
        assert found.choices == ()
    seen = simulate(codec.load(document), KNOWN, "t", {"mode": "full"}, {"t": 1}).lanes[0].steps
    assert [(s.walk, s.taken, s.why) for s in seen] == [
        ("judge", False, "no output of the task needs it"),
        ("large", True, "always"),
        ("small", False, "another branch is taken: `@task.mode` is `full`"),
    ]


def test_states_return_at_the_end_of_a_branch() -> None:
    """`c` reads the same state in both branches, on the rank of the first one's Walk, and after them."""
    document = copy.deepcopy(DOCUMENT)
    document["tasks"]["t"]["steps"].insert(1, {"walk": "first", "with": {"t": "@task.t"}})
    document["tasks"]["t"]["steps"].append({"walk": "last", "with": {"t": "@task.t"}})
    for name in ("first", "last"):
        edges = [["@in.t", "c.ids"], ["c.token", "@out.o"]]
        document["walks"][name] = {"inputs": {"t": "tokens"}, "body": ["c"], "edges": edges}
    graph = codec.load(document)
    groups = (
        Group(nodes=("*",), ranks=(0,)),
        Group(nodes=("c", "b"), ranks=(1,), walks=("large",)),
    )
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    plan = assemble(Assignment(graph, Placement(name="p", groups=groups, ranks=devices)), KNOWN)
    found = expand(graph, plan, "t", {"seed": 1}, {"t": ["x"]})
    assert [(plan.walks[step.walk].name, step.cases) for step in found.steps] == [
        ("judge", ()),
        ("first", ()),
        ("move:both:0>1", ((0, 0),)),
        ("large", ((0, 0),)),
        ("move:both:1>0", ((0, 0),)),
        ("small", ((0, 1),)),
        ("last", ()),
    ]


def test_the_larger_branch_is_reserved() -> None:
    plan, found = expanded(DOCUMENT)
    demand = page_demand(plan, found, {})
    both, large, small = ({Rank(0): {state: Kept(tokens, 1)}} for state, tokens in ((2, 32), (1, 64), (0, 16)))
    assert demand == PageDemand(both, ((PageDemand(large), PageDemand(small)),))
    budget = PageBudget(plan)
    pool = PoolSize(states=("small", "large", "both"), pages=100, page_tokens=16, page_bytes=1)
    budget.set_pools(Rank(0), (pool,))
    own, lasting = budget.demand(demand, session=False)
    assert own == Counter({(0, 0): 2 + 4})
    assert not lasting


def test_the_larger_branch_of_a_walk_is_reserved_where_it_is_chosen_once() -> None:
    document = copy.deepcopy(DOCUMENT)
    choice = {"choose": "judge.reached", "cases": {"true": ["b", "c"]}, "otherwise": ["a"]}
    edges = [["@in.x", "judge.value"], *(["@in.t", f"{use}.ids"] for use in "abc"), ["@merge.m", "@out.o"]]
    walk = {"body": ["judge", choice], "merges": {"m": ["b.token", "a.token"]}, "edges": edges}
    document["walks"] = {"both": {"inputs": {"x": "scalar: int", "t": "tokens"}, **walk}}
    step = {"walk": "both", "with": {"x": "@task.x", "t": "@task.t"}}
    document["tasks"]["t"]["steps"] = [step]
    plan, found = expanded(document)
    large, small = PageDemand({Rank(0): {1: Kept(64, 1), 2: Kept(32, 1)}}), PageDemand({Rank(0): {0: Kept(16, 1)}})
    assert page_demand(plan, found, {}) == PageDemand({}, ((large, small),))
    # Each of two runs of the Walk may take another branch.
    document["tasks"]["t"]["steps"] = [step, step]
    assert page_demand(*expanded(document), {}) == PageDemand(
        {Rank(0): {0: Kept(16, 1), 1: Kept(64, 1), 2: Kept(32, 1)}}
    )
    document["tasks"]["t"]["steps"] = [{"loop": [step], "times": "2"}]
    assert page_demand(*expanded(document), {}) == PageDemand(
        {Rank(0): {0: Kept(16, 1), 1: Kept(64, 1), 2: Kept(32, 1)}}
    )
    # So may each iteration of a loop.
    document["tasks"]["t"]["steps"] = [step]
    walk["body"] = [{"loop": "l", "times": "2", "body": walk["body"]}]
    document["walks"]["both"] |= walk
    assert page_demand(*expanded(document), {}) == PageDemand(
        {Rank(0): {0: Kept(16, 1), 1: Kept(64, 1), 2: Kept(32, 1)}}
    )
    # A loop inside a branch doesn't choose.
    walk["body"] = ["judge", {**choice, "cases": {"true": [{"loop": "l", "times": "2", "body": ["b", "c"]}]}}]
    document["walks"]["both"] |= walk
    assert page_demand(*expanded(document), {}) == PageDemand({}, ((large, small),))


def test_a_simulation_shows_all_branches() -> None:
    steps = simulate(codec.load(DOCUMENT), KNOWN, "t", {}, {"t": 1}).lanes[0].steps
    assert [(step.walk, step.taken, step.why) for step in steps] == [
        ("judge", True, "always"),
        ("large", None, "only if `judge.big` is `true`"),
        ("small", None, "only if `judge.big` is another value"),
    ]
    document = copy.deepcopy(DOCUMENT)
    inner = {"choose": "judge.reached", "cases": {"true": [{"use": "a", "when": "x > 5"}]}, "otherwise": ["b"]}
    document["walks"]["judge"] |= {"body": ["judge", inner], "merges": {"m": ["a.token", "b.token"]}}
    document["walks"]["judge"]["edges"] += [["@merge.m", "@out.o"], ["@in.y", "a.ids"], ["@in.y", "b.ids"]]
    document["walks"]["judge"]["inputs"]["y"] = "tokens"
    document["tasks"]["t"]["steps"][0]["with"]["y"] = "@task.t"
    uses = simulate(codec.load(document), KNOWN, "t", {}, {"t": 1}).lanes[0].steps[0].uses
    assert [(use.use, use.taken, use.why, use.iterations) for use in uses] == [
        ("judge", True, "always", 1),
        ("a", False, "x > 5 is false: x = 1", 0),
        ("b", None, "only if `judge.reached` is another value", 1),
    ]
