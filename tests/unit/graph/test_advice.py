"""Messages about what people leave out by hand say what to add, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from walkgraph.components import catalogue
from walkgraph.graph.check import check


def graph() -> dict[str, Any]:
    return {
        "format": "walkgraph/graph@1",
        "name": "tidy",
        "nodes": {"a": {"component": "text.trim"}, "b": {"component": "text.trim"}},
        "walks": {
            "w": {
                "inputs": {"text": "text"},
                "body": ["a", "b"],
                "edges": [["@in.text", "a.text"], ["a.text", "b.text"], ["b.text", "@out.text"]],
            }
        },
        "tasks": {
            "t": {
                "inputs": {"text": {"modality": "text"}},
                "outputs": ["text"],
                "steps": [{"walk": "w", "with": {"text": "@task.text"}}],
            }
        },
    }


def node_left_out(found: dict[str, Any]) -> None:
    found["walks"]["w"]["body"] = ["a"]


def no_steps(found: dict[str, Any]) -> None:
    found["tasks"]["t"]["steps"] = []


def no_weights(found: dict[str, Any]) -> None:
    found["nodes"]["b"] = {"component": "bagel.vit", "weights": "shapes"}


def misspelt(found: dict[str, Any]) -> None:
    found["walks"]["w"]["edges"][2] = {"from": "b.text", "to": "@out.text", "eech": True}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (node_left_out, "unknown_use", "the node `b` is not in the body of `w`; put it there, or remove the edge"),
        (
            no_steps,
            "output_never_sent",
            "the task has no steps, so nothing sends `@out.text`; add a step with a Walk that sends it",
        ),
        (
            no_weights,
            "unknown_weights",
            "no weights `shapes` in the graph; add an entry of the graph with family `bagel`",
        ),
        (misspelt, "unknown_key", "`eech` is not a key of an edge; did you mean `each`?"),
    ],
)
def test_it_says_what_to_add(change: Callable[[dict[str, Any]], None], code: str, message: str) -> None:
    document = graph()
    assert not check(document, catalogue()).problems
    change(document)
    errors = [one for one in check(document, catalogue()).problems if one.severity == "error"]
    assert (code, message) in [(one.code, one.message) for one in errors]
    assert "input_without_steps" not in {one.code for one in errors}
