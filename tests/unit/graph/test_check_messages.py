"""Conversations in tasks: `for: turns`, what its steps can bind and read, and what `check` says about them."""

import copy
from typing import Any

import pytest

from tests.unit.graph.changes import Case, Change, Doc, cases, sets
from tests.unit.graph.documents import CATALOGUE, document
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.export import to_python
from walkgraph.graph.steps import steps_of
from walkgraph.graph.turns import turn_parts, walks_turns

TASK: dict[str, Any] = {
    "inputs": {"chat": {"modality": "messages"}},
    "outputs": ["image"],
    "params": {
        "steps": {"type": "integer", "default": 50, "min": 2, "max": 200},
        "scale": {"type": "number", "default": 4.0, "min": 1, "max": 20},
        "context": {"type": "integer", "default": 512, "min": 16, "max": 4096},
    },
    "steps": [
        {
            "for": "turns",
            "system": [{"for": "parts", "text": [{"walk": "read", "with": {"text": "@part"}}]}],
            "user": [
                {
                    "for": "parts",
                    "text": [{"walk": "read", "with": {"text": "@part"}, "when": "not @turn.last or steps > 3"}],
                    "image": [{"walk": "look", "with": {"image": "@part"}}],
                }
            ],
            "assistant": [
                {"walk": "read", "with": {"text": "@turn.role"}},
                {"walk": "read", "with": {"text": "@turn.calls"}, "when": "@turn.calls != '' and @turn.index > 0"},
            ],
        },
        {"walk": "draw"},
    ],
}
ROLES = "tasks/chat/steps/0"


def talking(change: Change = lambda doc: None) -> Doc:
    made = {**document(), "tasks": {**document()["tasks"], "chat": copy.deepcopy(TASK)}}
    change(made)
    return made


def test_a_task_that_walks_turns_has_no_problem() -> None:
    assert check(talking(), CATALOGUE).problems == ()


def test_the_document_and_its_python_form_keep_the_steps() -> None:
    graph = codec.load(talking())
    assert codec.dump(graph)["tasks"]["chat"]["steps"] == TASK["steps"]
    made: dict[str, Any] = {}
    exec(to_python(graph), made)
    assert made["graph"] == graph


def test_steps_know_their_turn_and_part() -> None:
    task = codec.load(talking()).tasks["chat"]
    assert walks_turns(task)
    assert [(at.step.walk, at.turn, at.part, at.pointer) for at in steps_of(task)] == [
        ("read", "system", "text", "/steps/0/system/0/text/0"),
        ("read", "user", "text", "/steps/0/user/0/text/0"),
        ("look", "user", "image", "/steps/0/user/0/image/0"),
        ("read", "assistant", None, "/steps/0/assistant/0"),
        ("read", "assistant", None, "/steps/0/assistant/1"),
        ("draw", None, None, "/steps/1"),
    ]
    assert turn_parts(task) == {"system": {"text"}, "user": {"text", "image"}, "assistant": {"text"}}


PROBLEMS: list[Case] = [
    ("many_conversations", sets("tasks/chat/inputs/chat/many", True), "/tasks/chat/inputs/chat/many"),
    ("many_conversations", sets("tasks/chat/inputs/other", {"modality": "messages"}), "/tasks/chat/inputs/other"),
    ("input_without_steps", sets("tasks/speak/inputs/chat", {"modality": "messages"}), "/tasks/speak/inputs/chat"),
    ("turn_outside_for", sets("tasks/chat/steps/1/when", "@turn.last"), "/tasks/chat/steps/1/when"),
    (
        "turn_outside_for",
        sets("tasks/speak/steps/thinker/0/with/text", "@turn.role"),
        "/tasks/speak/steps/thinker/0/with/text",
    ),
    ("part_outside_for", sets(f"{ROLES}/assistant/0/with/text", "@part"), f"/{ROLES}/assistant/0/with/text"),
    ("bad_binding", sets(f"{ROLES}/assistant/0/with/text", "@turn.name"), f"/{ROLES}/assistant/0/with/text"),
    ("wrong_modality", sets(f"{ROLES}/assistant/0/with/text", "@turn.index"), f"/{ROLES}/assistant/0/with/text"),
    ("wrong_modality", sets(f"{ROLES}/user/0/image/0/with/image", "@turn.role"), f"/{ROLES}/user/0/image/0/with/image"),
    ("bad_when", sets(f"{ROLES}/assistant/1/when", "@turn.index"), f"/{ROLES}/assistant/1/when"),
    ("bad_expression", sets(f"{ROLES}/assistant/1/when", "@turn.last > 1"), f"/{ROLES}/assistant/1/when"),
    ("bad_expression", sets(f"{ROLES}/assistant/1/when", "@turn.lost"), f"/{ROLES}/assistant/1/when"),
    ("nested_turns", sets(f"{ROLES}/user/-", {"for": "turns", "user": []}), f"/{ROLES}/user/1"),
    ("unknown_key", sets(f"{ROLES}/usr", []), f"/{ROLES}/usr"),
    ("bad_value", sets(f"{ROLES}/for", "turn"), f"/{ROLES}/for"),
]


@pytest.mark.parametrize(("code", "change", "pointer"), cases(PROBLEMS))
def test_every_problem_is_reported_at_its_place(code: str, change: Change, pointer: str) -> None:
    found = check(talking(change), CATALOGUE).problems
    assert (code, pointer) in [(problem.code, problem.pointer) for problem in found], found


def test_turns_without_a_conversation_are_never_reached() -> None:
    found = [(p.code, p.severity) for p in check(talking(sets("tasks/chat/inputs", {})), CATALOGUE).problems]
    assert found == [("unreachable_step", "warning")]


def test_a_conversation_bound_whole_needs_no_turns() -> None:
    whole = {
        **TASK,
        "steps": [{"walk": "take", "with": {"chat": "@task.chat"}}, {"walk": "draw"}],
    }
    taking = {"inputs": {"chat": "messages"}, "body": [], "edges": []}
    given = talking()
    given["tasks"]["chat"] = whole
    given["walks"]["take"] = taking
    codes = {p.code for p in check(given, CATALOGUE).problems}
    assert not codes & {"wrong_modality", "input_without_steps", "bad_type"}, codes
    assert turn_parts(codec.load(given).tasks["chat"])["tool"] == {"text", "image", "audio", "video"}
