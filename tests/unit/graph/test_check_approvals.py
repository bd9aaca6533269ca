"""Approvals among steps: each problem has a document that triggers exactly it, at the right place."""

import copy
from typing import Any

import pytest

from tests.unit.graph.changes import Case, Change, both, cases, drops, sets
from tests.unit.graph.test_build import rebuilt
from tests.unit.graph.test_check_loops import CATALOGUE as LOOPS
from tests.unit.graph.test_check_loops import DOCUMENT as OTHER
from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.check import check
from walkgraph.graph.checks.called import WithTasks
from walkgraph.graph.codec import dump, load

CATALOGUE = {
    **LOOPS,
    "c.write": Component(
        name="c.write",
        description="Writes on.",
        inputs=(port("text", "text: str", optional=True),),
        outputs=(port("text", "text: str"),),
        states=(StateUse(slot="kv", kind="paged_kv", token_bytes=8),),
        network="x.operators:X",
    ),
}
APPROVE: dict[str, Any] = {"approve": ["look.text"], "label": "Fit to show?", "within": 60, "as": "said"}
DOCUMENT: dict[str, Any] = copy.deepcopy(OTHER)
DOCUMENT["name"] = "approvals"
DOCUMENT["nodes"]["write"] = {"component": "c.write", "states": {"kv": "kept"}}
DOCUMENT["states"] = {"kept": {"kind": "paged_kv", "capacity": "4"}}
DOCUMENT["walks"]["write"] = {
    "inputs": {"text": "text: str"},
    "body": ["write"],
    "edges": [["@in.text", "write.text"], ["write.text", "@out.text"]],
    "results": {"text": "write.text"},
}
DOCUMENT["tasks"]["go"]["steps"] = [
    {
        "loop": [
            {"walk": "draw", "with": {"text": "look.text", "hint": "said.note"}},
            {"walk": "look", "with": {"picture": "draw.picture", "number": "@loop.index"}},
            APPROVE,
        ],
        "times": "times",
        "until": "said.approved",
        "start": {"look.text": "@task.prompt", "said.note": ""},
    },
    {"choose": "said.approved", "cases": {"true": [{"walk": "write", "with": {"text": "said.note"}}]}},
    {"approve": ["look.text"]},
    {"walk": "draw", "as": "last", "with": {"text": "look.text"}},
]
STEPS = "tasks/go/steps"
LOOP = f"{STEPS}/0"


def _found(document: object, catalogue: Any = CATALOGUE) -> set[tuple[str, str]]:
    return {(p.code, p.pointer) for p in check(document, catalogue).problems if p.code != "unused_parameter"}


def test_the_document_is_accepted_and_kept_and_written_in_python() -> None:
    assert _found(DOCUMENT) == set()
    graph = load(DOCUMENT)
    assert dump(graph) == DOCUMENT
    assert rebuilt(graph) == graph


def _step(step: Any, at: str = f"{STEPS}/3") -> Change:
    return sets(at, step)


_WRITE = {"walk": "write", "with": {"text": "look.text"}}
_LANES = {"main": [{"walk": "look", "with": {"picture": "draw.picture"}}, APPROVE], "other": [{"walk": "draw"}]}
MANY = [{"approve": ["look.text"]}] * 65
PROBLEMS: list[Case] = [
    ("bad_value", sets(f"{LOOP}/loop/2/approve", []), f"/{LOOP}/loop/2/approve"),
    ("bad_reference", sets(f"{LOOP}/loop/2/approve/0", "look"), f"/{LOOP}/loop/2/approve/0"),
    ("unknown_key", sets(f"{LOOP}/loop/2/when", "on"), f"/{LOOP}/loop/2/when"),
    ("bad_value", sets(f"{LOOP}/loop/2/within", 0), f"/{LOOP}/loop/2/within"),
    ("bad_value", sets(f"{LOOP}/loop/2/within", 2_592_001), f"/{LOOP}/loop/2/within"),
    ("unknown_result", sets(f"{STEPS}/2/approve/0", "look.pictures"), f"/{STEPS}/2/approve/0"),
    ("unknown_result", sets(f"{STEPS}/2/approve/0", "looks.text"), f"/{STEPS}/2/approve/0"),
    ("used_before_produced", sets(f"{STEPS}/2/approve/0", "last.picture"), f"/{STEPS}/2/approve/0"),
    ("absent_value", sets(f"{STEPS}/2/approve/0", "write.text"), f"/{STEPS}/2/approve/0"),
    ("duplicate_name", sets(f"{STEPS}/2/as", "draw"), f"/{STEPS}/2/as"),
    ("duplicate_name", sets(f"{STEPS}/2/as", "last"), f"/{STEPS}/2/as"),
    ("bad_until", sets(f"{LOOP}/until", "said.note"), f"/{LOOP}/until"),
    ("unknown_result", sets(f"{STEPS}/1/choose", "said.verdict"), f"/{STEPS}/1/choose"),
    ("unknown_result", sets(f"{LOOP}/loop/0/with/hint", "said.text"), f"/{LOOP}/loop/0/with/hint"),
    ("wrong_modality", sets(f"{LOOP}/loop/0/with/hint", "said.approved"), f"/{LOOP}/loop/0/with/hint"),
    (
        "too_many_approvals",
        sets(f"{STEPS}/2", {"choose": "@task.on", "cases": {"true": MANY}}),
        f"/{STEPS}/2/cases/true/63",
    ),
    ("session_with_approve", sets("tasks/go/session", {}), "/tasks/go/session"),
    ("state_across_approve", _step(_WRITE), f"/{STEPS}/3/walk"),
    (
        "state_across_approve",
        both(sets("states/kept/scope", "session"), sets(f"{STEPS}/1/cases/true/0", _WRITE)),
        f"/{STEPS}/1/cases/true/0/walk",
    ),
    (
        "approve_in_for",
        _step({"for": "parts", "text": [{"approve": ["look.text"]}]}, f"{STEPS}/2"),
        f"/{STEPS}/2/text/0",
    ),
]


@pytest.mark.parametrize(("code", "change", "pointer"), cases(PROBLEMS))
def test_a_problem_is_found_at_its_place(code: str, change: Change, pointer: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    change(document)
    assert (code, pointer) in _found(document)


def test_a_state_in_a_loop_around_an_approval_lasts_over_it() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["tasks"]["go"]["steps"][0]["loop"].append(_WRITE)
    drops(f"{STEPS}/1")
    assert ("state_across_approve", f"/{LOOP}/loop/3/walk") in _found(document)
    document["states"]["kept"]["scope"] = "walk"
    assert "state_across_approve" not in {code for code, _ in _found(document)}


def test_lists_of_steps_and_streams_are_refused() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["tasks"]["go"]["steps"] = _LANES
    assert ("approve_in_lanes", "/tasks/go/steps/main/1") in _found(document)
    document = copy.deepcopy(DOCUMENT)
    document["streams"] = [
        {"name": "texts", "from": "write.text", "walks": ["write"], "chunks": {"policy": "whole"}},
    ]
    assert ("stream_with_approve", f"/{STEPS}/1/cases/true/0/walk") in _found(document)


def test_a_task_that_waits_can_not_be_called() -> None:
    caller = {
        "format": "walkgraph/graph@1",
        "name": "caller",
        "nodes": {"call": {"component": "approvals/go"}},
        "walks": {
            "w": {
                "inputs": {"prompt": "text: str"},
                "body": ["call"],
                "edges": [["@in.prompt", "call.prompt"], ["call.text", "@out.text"]],
            }
        },
        "tasks": {
            "t": {
                "inputs": {"prompt": {"modality": "text"}},
                "outputs": ["text"],
                "steps": [{"walk": "w", "with": {"prompt": "@task.prompt"}}],
            }
        },
    }
    assert ("call_asks", "/nodes/call/component") in _found(caller, WithTasks(CATALOGUE, {"approvals": DOCUMENT}))
    free = copy.deepcopy(DOCUMENT)
    free["tasks"]["go"]["steps"] = [{"walk": "draw", "with": {"text": "@task.prompt"}}]
    assert "call_asks" not in {code for code, _ in _found(caller, WithTasks(CATALOGUE, {"approvals": free}))}
