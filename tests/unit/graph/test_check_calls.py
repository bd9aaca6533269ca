"""Nodes that call tasks: their ports come from the called task, and each problem is found at the right place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.build import GraphBuilder
from walkgraph.graph.catalogue import Component, is_task
from walkgraph.graph.check import check
from walkgraph.graph.checks.called import MOST_DEEP, WithTasks, called_graphs, with_own
from walkgraph.graph.export import to_python
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.resources import bundled

CALLED: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "called",
    "nodes": {"add": {"component": "synthetic.add"}, "judge": {"component": "synthetic.compare", "params": {"at": 3}}},
    "walks": {
        "go": {
            "inputs": {"a": "scalar: int", "b": "scalar: int"},
            "body": ["add", "judge"],
            "edges": [
                ["@in.a", "add.a"],
                ["@in.b", "add.b"],
                ["add.sum", "judge.value"],
                ["judge.value", "@out.sum"],
                ["judge.reached", "@out.large"],
            ],
        }
    },
    "tasks": {
        "add": {
            "label": "Add two numbers",
            "inputs": {"a": {"modality": "scalar"}, "b": {"modality": "scalar", "optional": True}},
            "outputs": ["sum", "large"],
            "params": {
                "times": {"type": "integer", "default": 2, "min": 1, "max": 9},
                "kind": {"type": "string"},
                "seed": {"type": "integer", "default": 5},
            },
            "steps": [{"walk": "go", "with": {"a": "@task.a", "b": "@task.b"}}],
        }
    },
}
CALLING: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "calling",
    "nodes": {"plus": {"component": "called/add", "params": {"kind": "x"}}, "show": {"component": "synthetic.add"}},
    "walks": {
        "go": {
            "inputs": {"a": "scalar: int"},
            "body": ["plus", "show"],
            "edges": [["@in.a", "plus.a"], ["plus.sum", "show.a"], ["show.sum", "@out.sum"]],
        }
    },
    "tasks": {
        "go": {
            "inputs": {"a": {"modality": "scalar"}},
            "outputs": ["sum"],
            "steps": [{"walk": "go", "with": {"a": "@task.a"}}],
        }
    },
}
KNOWN = WithTasks(catalogue(), {"called": CALLED})


def changed(**nodes: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(CALLING)
    made["nodes"] |= nodes
    return made


def codes(document: dict[str, Any], known: WithTasks = KNOWN) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in check(document, known).problems]


def test_a_task_has_ports_for_its_inputs_and_parameters_and_outputs() -> None:
    found = KNOWN["called/add"]
    assert isinstance(found, Component)
    assert [(port.name, str(port.type), port.optional) for port in found.inputs] == [
        ("a", "scalar", False),
        ("b", "scalar", True),
        ("times", "scalar: int", True),
        ("kind", "text", True),
        ("seed", "scalar: int", True),
    ]
    assert [(port.name, str(port.type)) for port in found.outputs] == [("sum", "scalar"), ("large", "flag")]
    assert {name: (param.type, param.default, param.max) for name, param in found.params.items()} == {
        "times": ("integer", 2, 9),
        "kind": ("string", None, None),
    }
    assert (found.description, found.host, found.task, found.available) == ("Add two numbers", True, True, True)


def test_a_catalogue_lists_tasks_after_components_and_derives_those_that_are_asked_for() -> None:
    assert [name for name in KNOWN if is_task(name)] == ["called/add"]
    assert len(KNOWN) == len(catalogue()) + 1
    assert "called/other" not in KNOWN
    assert "nowhere/add" not in KNOWN
    assert WithTasks(catalogue(), {"called": "no graph"}).get("called/add") is None
    assert called_graphs(CALLING) == {"called"}
    assert called_graphs(["no graph"]) == frozenset()


def test_a_graph_that_calls_a_task_has_no_problem() -> None:
    assert check(CALLING, KNOWN).problems == ()
    fed = changed()
    fed["walks"]["go"]["edges"] += [["@in.a", "plus.times"], ["@in.a", "plus.seed"]]
    assert check(fed, KNOWN).problems == ()


@pytest.mark.parametrize(
    ("node", "code", "at", "says"),
    [
        ({"component": "called/ad", "params": {}}, "unknown_component", "component", "did you mean `called/add`?"),
        ({"component": "call/add", "params": {}}, "unknown_component", "component", "did you mean `called/add`?"),
        ({"component": "called/add", "params": {}}, "missing_param", "params", "needs a `kind`"),
        ({"component": "called/add", "params": {"kind": "x", "times": 10}}, "bad_param", "params/times", "at most 9"),
        ({"component": "called/add", "params": {"kind": "x", "tims": 1}}, "unknown_param", "params/tims", "`times`"),
    ],
)
def test_a_node_is_judged_by_the_task_that_it_calls(node: dict[str, Any], code: str, at: str, says: str) -> None:
    (problem,) = check(changed(plus=node), KNOWN).errors
    assert (problem.code, problem.pointer) == (code, f"/nodes/plus/{at}")
    assert says in problem.message


def test_types_of_a_called_task_are_checked_along_edges() -> None:
    wrong = changed()
    wrong["walks"]["go"]["edges"][1] = ["plus.large", "show.a"]
    assert codes(wrong) == [("type_mismatch", "/walks/go/edges/1")]
    missing = changed()
    del missing["walks"]["go"]["edges"][0]
    assert ("unconnected_input", "/walks/go/body/0") in codes(missing)


def test_outputs_of_a_task_may_leave_piece_by_piece_to_the_client_only() -> None:
    pieces = changed()
    pieces["walks"]["go"]["edges"].append({"from": "plus.large", "to": "@out.large", "each": True})
    pieces["tasks"]["go"]["outputs"].append("large")
    assert check(pieces, KNOWN).problems == ()
    one = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
    plan = assemble(Assignment(codec.load(pieces), one), KNOWN)
    assert [edge.leave for edge in plan.walks[0].edges] == ["none", "none", "none", "pieces"]
    pieces["walks"]["go"]["edges"][1] = {"from": "plus.sum", "to": "show.a", "each": True}
    assert ("each_without_loop", "/walks/go/edges/1/each") in codes(pieces)
    plain = changed()
    plain["walks"]["go"]["edges"][2] = {"from": "show.sum", "to": "@out.sum", "each": True}
    assert codes(plain) == [("each_without_loop", "/walks/go/edges/2/each")], "`show` is no task"


def chain(length: int) -> dict[str, Any]:
    """Graph -> document, each calling the next: `g0/go` calls `g1/go`, which ..., and the last one calls nothing."""
    found: dict[str, Any] = {}
    for i in range(length):
        made = copy.deepcopy(CALLING)
        made["name"] = f"g{i}"
        last = i == length - 1
        made["nodes"]["plus"] = {"component": "synthetic.add"} if last else {"component": f"g{i + 1}/go"}
        found[f"g{i}"] = made
    return found


def test_calls_may_be_four_deep() -> None:
    most = chain(MOST_DEEP + 1)
    assert check(most["g0"], WithTasks(catalogue(), most)).problems == ()
    more = chain(MOST_DEEP + 2)
    known = WithTasks(catalogue(), more)
    assert codes(more["g0"], known) == [("call_too_deep", "/nodes/plus/component")]
    assert codes(more["g1"], known) == []


def test_tasks_that_call_each_other_in_a_circle_are_refused() -> None:
    circle = chain(3)
    circle["g2"]["nodes"]["plus"] = {"component": "g0/go"}
    for name, document in circle.items():
        (problem,) = [one for one in check(document, WithTasks(catalogue(), circle)).errors if one.code == "call_cycle"]
        assert problem.pointer == "/nodes/plus/component"
        assert f"back to `{name}/go`" in problem.message


def test_a_graph_calls_its_own_tasks_as_they_are_in_the_document() -> None:
    own = changed(plus={"component": "calling/help"})
    own["nodes"]["more"] = {"component": "synthetic.add"}
    own["walks"]["help"] = {
        "inputs": {"a": "scalar: int"},
        "body": ["more"],
        "edges": [["@in.a", "more.a"], ["more.sum", "@out.sum"]],
    }
    own["tasks"]["help"] = {**own["tasks"]["go"], "steps": [{"walk": "help", "with": {"a": "@task.a"}}]}
    old = WithTasks(catalogue(), {"calling": CALLING})
    assert codes(own, old) == []
    assert check(own, catalogue()).problems == (), "it needs no other graph"
    assert with_own(catalogue(), codec.load(CALLING)) is catalogue()
    own["nodes"]["more"] = {"component": "calling/go"}
    assert [code for code, _ in codes(own, old)] == ["call_cycle", "call_cycle"]


def test_a_call_survives_python_and_its_document() -> None:
    graph = codec.load(CALLING)
    assert codec.load(codec.dump(graph)) == graph
    space: dict[str, Any] = {}
    exec(to_python(graph), space)
    assert any(isinstance(value, GraphBuilder) and value.build() == graph for value in space.values())


def test_a_plan_names_the_task_and_keeps_only_what_the_node_sets() -> None:
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in (0, 1))
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("plus",), ranks=(1,)))
    plan = assemble(Assignment(codec.load(CALLING), Placement(name="two", groups=groups, ranks=ranks)), KNOWN)
    called, shown = plan.nodes
    assert (called.task, called.network, called.host, called.params) == ("called/add", "", True, {"kind": "x"})
    assert (shown.task, bool(shown.network)) == ("", True)
    assert called.required == ("a",)
    assert {
        edge.transport for edge in plan.walks[0].edges if edge.source.kind == "use" and edge.target.kind == "use"
    } == {"inline"}


def listed(taken: str, many: bool) -> dict[str, Any]:
    """A graph that goes through the texts of a request in a loop, and draws each."""
    each = {"from": "@in.texts", "to": "draw.prompt", "each": True}
    return {
        "format": "walkgraph/graph@1",
        "name": "listed",
        "nodes": {"draw": {"component": "shapes/text_to_image"}},
        "walks": {
            "draw": {
                "inputs": {"texts": taken},
                "body": [{"loop": "l", "times": "2", "body": ["draw"]}],
                "edges": [
                    each if taken.startswith("list") else ["@in.texts", "draw.prompt"],
                    {"from": "draw.image", "to": "@out.image", "each": True},
                ],
            }
        },
        "tasks": {
            "go": {
                "inputs": {"texts": {"modality": "text", "many": many}},
                "outputs": ["image"],
                "steps": [{"walk": "draw", "with": {"texts": "@task.texts"}}],
            }
        },
    }


@pytest.mark.parametrize(
    ("taken", "many", "found"),
    [
        ("list of text", True, []),
        ("text", False, []),
        ("text", True, ["many_outside_for"]),
        ("list of text", False, ["wrong_modality"]),
    ],
)
def test_many_values_of_a_request_are_a_list(taken: str, many: bool, found: list[str]) -> None:
    known = WithTasks(catalogue(), {"shapes": json.loads(bundled("graphs")["shapes"].read_bytes())})
    assert [code for code, _ in codes(listed(taken, many), known)] == found
