"""Loops of steps: each problem has a document that triggers exactly it, at the right place."""

import copy
from typing import Any

import pytest

from tests.unit.graph.changes import Case, Change, both, cases, drops, sets
from tests.unit.graph.test_build import rebuilt
from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.check import check
from walkgraph.graph.codec import dump, load
from walkgraph.graph.document import Task
from walkgraph.graph.steps import loops_of

CATALOGUE = {
    c.name: c
    for c in (
        Component(
            name="c.draw",
            description="Draws.",
            inputs=(port("text", "text: str"), port("hint", "text: str", optional=True)),
            outputs=(port("picture", "pixels: float[3, h, w]"), port("image", "image: bytes")),
            network="x.operators:X",
        ),
        Component(
            name="c.look",
            description="Describes a picture.",
            inputs=(port("picture", "pixels: float[3, h, w]"), port("number", "scalar: int", optional=True)),
            outputs=(port("text", "text: str"), port("good", "flag: bool")),
            network="x.operators:X",
        ),
    )
}
DRAW: dict[str, Any] = {"walk": "draw", "with": {"text": "look.text"}}
LOOK: dict[str, Any] = {"walk": "look", "with": {"picture": "draw.picture", "number": "@loop.index"}}
DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "loops",
    "nodes": {"draw": {"component": "c.draw"}, "look": {"component": "c.look"}},
    "walks": {
        "draw": {
            "inputs": {"text": "text: str", "hint": "text: str"},
            "body": ["draw"],
            "edges": [["@in.text", "draw.text"], ["@in.hint", "draw.hint"], ["draw.image", "@out.image"]],
            "results": {"picture": "draw.picture"},
        },
        "look": {
            "inputs": {"picture": "pixels: float[3, h, w]", "number": "scalar: int"},
            "body": ["look"],
            "edges": [["@in.picture", "look.picture"], ["@in.number", "look.number"], ["look.text", "@out.text"]],
            "results": {"text": "look.text", "good": "look.good"},
        },
    },
    "tasks": {
        "go": {
            "inputs": {"prompt": {"modality": "text"}},
            "outputs": ["image", "text"],
            "params": {
                "times": {"type": "integer", "default": 3, "min": 1, "max": 8},
                "most": {"type": "integer", "default": 3, "min": 0, "max": 8},
                "rate": {"type": "number", "default": 3.0, "min": 1, "max": 8},
                "open": {"type": "integer", "default": 3, "min": 1},
                "on": {"type": "boolean", "default": True},
            },
            "steps": [
                {
                    "loop": [DRAW, LOOK],
                    "times": "times",
                    "until": "look.good",
                    "start": {"look.text": "@task.prompt"},
                    "as": "redraw",
                },
                {"walk": "draw", "as": "last", "with": {"text": "look.text"}},
            ],
        }
    },
}
LOOP = "tasks/go/steps/0"
TIMED = {"times": "times", "until": "look.good", "as": "redraw", "start": {"look.text": "@task.prompt"}}


def _document() -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT)


def _found(document: object) -> set[tuple[str, str]]:
    return {(p.code, p.pointer) for p in check(document, CATALOGUE).problems if p.code != "unused_parameter"}


def test_the_document_is_accepted_and_kept_and_written_in_python() -> None:
    assert _found(DOCUMENT) == set()
    graph = load(DOCUMENT)
    assert dump(graph) == DOCUMENT
    assert rebuilt(graph) == graph


def test_a_step_of_an_unknown_walk_takes_no_value_that_a_loop_starts_with() -> None:
    document = _document()
    document["tasks"]["go"]["steps"][0]["loop"][0]["walk"] = "drow"
    assert ("unknown_walk", f"/{LOOP}/loop/0/walk") in _found(document)


@pytest.mark.parametrize(
    ("loops", "names"),
    [
        ([{"until": "look.good"}], ["look"]),
        ([{"until": "look.good", "as": "redraw"}, {"until": "look.good"}], ["redraw", "look"]),
        ([{"until": "look.good"}, {"until": "look.good"}, {"until": "look.good"}], ["look", "look_2", "look_3"]),
        ([{"until": "look.good"}, {"until": "draw.good", "as": "look"}], ["look_2", "look"]),
        ([{}, {"as": "all"}, {"until": "look.good"}], ["", "", "look"]),
    ],
)
def test_each_loop_that_a_flag_can_end_has_a_name_of_its_own(loops: list[dict[str, str]], names: list[str]) -> None:
    """Side by side, and each in the one before."""
    steps: list[Any] = [{"loop": [DRAW, LOOK], "times": "2", **loop} for loop in loops]
    nested: list[Any] = [DRAW, LOOK]
    for loop in reversed(loops):
        nested = [{"loop": nested, "times": "2", **loop}]
    for task_steps in (steps, [{"choose": "@task.on", "cases": {"true": steps}}], nested):
        task = Task.model_validate({"outputs": ["picture"], "steps": task_steps})
        assert [loop.name for loop in loops_of(task)] == names


PROBLEMS: list[Case] = [
    ("bad_times", sets(f"{LOOP}/times", "most"), f"/{LOOP}/times"),
    ("bad_times", sets(f"{LOOP}/times", "rate"), f"/{LOOP}/times"),
    ("bad_times", sets(f"{LOOP}/times", "0"), f"/{LOOP}/times"),
    ("unbounded_loop", sets(f"{LOOP}/times", "open"), f"/{LOOP}/times"),
    ("unknown_parameter", sets(f"{LOOP}/times", "time"), f"/{LOOP}/times"),
    ("unknown_loop", sets(f"{LOOP}/times", "@loop.index + 1"), f"/{LOOP}/times"),
    ("bad_expression", sets(f"{LOOP}/times", "3 +"), f"/{LOOP}/times"),
    ("loop_without_bound", drops(f"{LOOP}/times"), f"/{LOOP}"),
    ("unknown_key", sets(f"{LOOP}/name", "x"), f"/{LOOP}/name"),
    ("bad_value", sets(f"{LOOP}/loop", []), f"/{LOOP}/loop"),
    ("bad_name", sets(f"{LOOP}/as", "a.b"), f"/{LOOP}/as"),
    (
        "duplicate_name",
        sets(f"{LOOP}", {"loop": [{"loop": [DRAW, LOOK], **TIMED}, LOOK], **TIMED}),
        f"/{LOOP}/loop/0/as",
    ),
    ("bad_until", sets(f"{LOOP}/until", "look.text"), f"/{LOOP}/until"),
    ("unknown_result", sets(f"{LOOP}/until", "look.god"), f"/{LOOP}/until"),
    ("unknown_result", sets(f"{LOOP}/until", "last.good"), f"/{LOOP}/until"),
    ("bad_reference", sets(f"{LOOP}/until", "look"), f"/{LOOP}/until"),
    (
        "absent_value",
        sets(f"{LOOP}/loop/1", {"choose": "@task.on", "cases": {"true": [LOOK]}}),
        f"/{LOOP}/until",
    ),
    ("used_before_produced", drops(f"{LOOP}/start"), f"/{LOOP}/loop/0/with/text"),
    ("unknown_result", sets(f"{LOOP}/start/last.picture", "@task.prompt"), f"/{LOOP}/start/last.picture"),
    ("unused_start", sets(f"{LOOP}/start/look.good", "@task.on"), f"/{LOOP}/start/look.good"),
    ("wrong_modality", sets(f"{LOOP}/start/look.text", "@task.times"), f"/{LOOP}/start/look.text"),
    ("wrong_modality", sets(f"{LOOP}/start/look.text", 3), f"/{LOOP}/start/look.text"),
    ("unknown_input", sets(f"{LOOP}/start/look.text", "@task.promt"), f"/{LOOP}/start/look.text"),
    ("used_before_produced", sets(f"{LOOP}/start/look.text", "last.picture"), f"/{LOOP}/start/look.text"),
    ("wrong_modality", sets(f"{LOOP}/loop/0/with/text", "@loop.index"), f"/{LOOP}/loop/0/with/text"),
    ("unknown_loop", sets("tasks/go/steps/1/with/text", "@loop.index"), "/tasks/go/steps/1/with/text"),
    ("unknown_loop", sets("tasks/go/steps/1/when", "@loop.index > 0"), "/tasks/go/steps/1/when"),
    ("unknown_loop", sets(f"{LOOP}/loop/0/when", "@loop.tokens > 0"), f"/{LOOP}/loop/0/when"),
    ("unknown_walk", sets(f"{LOOP}/loop/-", {"walk": "lok"}), f"/{LOOP}/loop/2/walk"),
    ("bad_item", sets(f"{LOOP}/loop/-", {}), f"/{LOOP}/loop/2"),
]
CONSEQUENCES = {
    "unknown_input": {"input_without_steps"},
    "bad_value": {"unknown_result", "used_before_produced", "output_never_sent", "input_without_steps"},
    "wrong_modality": {"input_without_steps", "unused_start"},
    "used_before_produced": {"input_without_steps"},
    "absent_value": {"absent_value"},
    "unknown_loop": {"absent_value"},
}
"""Code -> what else is then true of the document."""


@pytest.mark.parametrize(("code", "change", "place"), cases(PROBLEMS))
def test_a_problem(code: str, change: Change, place: str) -> None:
    document = _document()
    change(document)
    found = _found(document)
    assert (code, place) in found, found
    assert {other for other, where in found - {(code, place)}} <= CONSEQUENCES.get(code, set())


def test_a_first_pass_may_take_another_way() -> None:
    """A step whose input comes from the pass before needs no start if it doesn't run in the first pass."""
    document = _document()
    del document["tasks"]["go"]["steps"][0]["start"]
    other = {"walk": "draw", "with": {"text": "@task.prompt"}, "when": "@loop.index == 0"}
    loop = document["tasks"]["go"]["steps"][0]["loop"]
    loop[0] = {"first": [other, DRAW]}
    assert _found(document) == set()
    loop[0] = {"first": [{**other, "when": "@loop.index == 1"}, DRAW]}
    assert ("used_before_produced", f"/{LOOP}/loop/0/first/1/with/text") in _found(document)
    loop[0] = {**DRAW, "when": "@loop.index > 0"}
    assert {code for code, _ in _found(document)} == {"absent_value", "input_without_steps"}, "of what follows it"


def test_an_optional_input_needs_no_start() -> None:
    document = _document()
    both(drops(f"{LOOP}/start"), sets(f"{LOOP}/loop/0/with", {"text": "@task.prompt", "hint": "look.text"}))(document)
    assert _found(document) == set()


def test_what_was_there_before_the_loop_is_a_start() -> None:
    document = _document()
    steps = document["tasks"]["go"]["steps"]
    del steps[0]["start"]
    steps[0:0] = [
        {"walk": "draw", "as": "first", "with": {"text": "@task.prompt"}},
        {"walk": "look", "with": {"picture": "first.picture"}},
    ]
    assert _found(document) == set()


def test_a_pass_may_take_a_branch_of_the_one_before() -> None:
    document = _document()
    loop = document["tasks"]["go"]["steps"][0]
    loop["loop"].append({"choose": "look.good", "cases": {"true": [{**DRAW, "as": "more"}], "false": []}})
    loop["loop"].append({"choose": "look.good", "cases": {"false": [{**DRAW, "as": "less"}], "true": []}})
    loop["loop"][0] = {"walk": "draw", "with": {"text": "look.text"}}
    loop["loop"][1] = {"walk": "look", "with": {"picture": "draw.picture"}}
    assert _found(document) == set()


def test_lists_side_by_side_do_not_loop() -> None:
    document = _document()
    task = document["tasks"]["go"]
    task["steps"] = {"a": task["steps"], "b": []}
    assert ("loop_in_lanes", "/tasks/go/steps/a/0") in _found(document)


def test_steps_that_loop_use_no_streams() -> None:
    document = _document()
    document["streams"] = [
        {"name": "s", "from": "look.text", "walks": ["look"], "chunks": {"policy": "fixed", "size": 1}}
    ]
    found = {(code, place) for code, place in _found(document) if code == "stream_in_step_loop"}
    assert found == {("stream_in_step_loop", f"/{LOOP}/loop/1/walk")}


def test_loops_nest() -> None:
    document = _document()
    loop = document["tasks"]["go"]["steps"][0]
    loop["loop"] = [{"loop": [DRAW, LOOK], "times": "2", "start": {"look.text": "look.text"}}]
    loop["start"] = {"look.text": "@task.prompt"}
    assert _found(document) == set()
