"""The turns and parts that a task's steps take, choices among them included."""

from __future__ import annotations

from typing import Any

from walkgraph.graph.document import Task
from walkgraph.graph.turns import SHOWN, turn_parts, walks_turns

TURNS: dict[str, Any] = {"for": "turns", "user": [{"for": "parts", "text": []}], "assistant": []}
CHOSEN: dict[str, Any] = {"choose": "@task.mode", "cases": {"short": [TURNS]}, "otherwise": []}


def task(*steps: dict[str, Any]) -> Task:
    params = {"mode": {"type": "string", "default": "short"}}
    return Task.model_validate(
        {"inputs": {"messages": {"modality": "messages"}}, "outputs": ["x"], "params": params, "steps": list(steps)}
    )


def test_turns_inside_a_choice_count() -> None:
    for steps in (TURNS, CHOSEN):
        assert walks_turns(task(steps))
        assert turn_parts(task(steps)) == {"user": {"text"}, "assistant": {"text"}}


def test_parts_inside_a_choice_inside_a_turn_count() -> None:
    parts = {"for": "parts", "text": [], "image": []}
    inside = {"for": "turns", "user": [{**CHOSEN, "cases": {"short": [parts]}}]}
    assert turn_parts(task(inside)) == {"user": {"text", "image"}}


def test_a_conversation_that_no_step_walks_may_have_any_parts() -> None:
    assert not walks_turns(task())
    assert set(turn_parts(task()).values()) == {SHOWN}
