"""Parameters whose texts are regular expressions or paths into JSON: `check` says what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from walkgraph.components import catalogue
from walkgraph.graph.check import check
from walkgraph.graph.language.literals import fault


def told(component: str, output: str, **params: Any) -> list[tuple[str, str]]:
    graph = {
        "format": "walkgraph/graph@1",
        "name": "g",
        "nodes": {"n": {"component": component, "params": params}},
        "walks": {"w": {"inputs": {"a": "text"}, "body": ["n"], "edges": [["@in.a", "n.text"], [output, "@out.v"]]}},
        "tasks": {
            "t": {
                "inputs": {"a": {"modality": "text"}},
                "outputs": ["v"],
                "steps": [{"walk": "w", "with": {"a": "@task.a"}}],
            }
        },
    }
    return [(problem.pointer, problem.message) for problem in check(graph, catalogue()).problems]


@pytest.mark.parametrize(
    ("component", "output", "params", "words"),
    [
        ("text.extract", "n.text", {"pattern": "(a"}, "`(a` is not a regular expression of RE2: missing )"),
        ("text.extract", "n.text", {"pattern": r"(a)\1"}, "is not a regular expression of RE2"),
        ("json.pick", "n.value", {"path": "items[0].na me"}, "can't be read at ` me`; write `items[0].name`"),
        ("json.pick", "n.value", {"path": "[0]" * 65}, "a path has at most 64 steps; this one has 65"),
        ("json.pick", "n.value", {"path": r'["\q"]'}, "is not a key; write it as JSON does"),
    ],
)
def test_a_text_that_can_not_be_read_is_a_problem(
    component: str, output: str, params: dict[str, Any], words: str
) -> None:
    ((pointer, message),) = told(component, output, **params)
    assert pointer == f"/nodes/n/params/{next(iter(params))}"
    assert words in message


def test_what_can_be_read_is_none() -> None:
    assert told("text.extract", "n.text", pattern=r"(\w+)@(\w+)") == []
    assert told("json.pick", "n.value", path='items[-1]["a b"].c') == []
    assert told("text.extract", "n.text", pattern=3) == [
        ("/nodes/n/params/pattern", "`pattern` is a string, not an integer; write a string")
    ]
    assert fault("pattern", "a|b") is None
