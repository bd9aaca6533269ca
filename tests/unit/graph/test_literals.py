"""Parameters that are read when a node is loaded: `check` says what is wrong with them."""

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
    assert fault("pattern", "a|b", {}) is None


def source(component: str, output: str = "value", **params: Any) -> list[tuple[str, str]]:
    """The problems of a node that reads nothing, or lists."""
    graph = {
        "format": "walkgraph/graph@1",
        "name": "g",
        "nodes": {"n": {"component": component, "params": params}},
        "walks": {"w": {"body": ["n"], "edges": [[f"n.{output}", "@out.v"]]}},
        "tasks": {
            "t": {"outputs": ["v"], "params": {"p": {"type": "string", "default": "1"}}, "steps": [{"walk": "w"}]},
        },
    }
    return [(one.pointer, one.message) for one in check(graph, catalogue()).problems if one.code == "bad_param"]


HERE = "/nodes/n/params"
TENSOR = "the value isn't a tensor; write nested lists of equal length, `[[1, 2], [3, 4]]`"


@pytest.mark.parametrize(
    ("component", "params", "at", "words"),
    [
        ("numbers.constant", {"value": "a"}, "/value", "`a` is not a scalar as JSON"),
        ("numbers.constant", {"value": "true"}, "/value", "can't be a constant of type `scalar`"),
        ("numbers.constant", {"value": "NaN"}, "/value", "`NaN` is not a scalar as JSON"),
        ("numbers.constant", {"value": "1" * 20}, "/value", "can't be a constant of type `scalar`"),
        ("numbers.constant", {"type": "flag"}, "", "`value`: `0` can't be a constant of type `flag`"),
        ("numbers.constant", {"type": "image", "value": '"a"'}, "/value", "can't be a constant of type `image`"),
        ("numbers.constant", {"type": "list of text", "value": '"a"'}, "/value", "is not a list"),
        ("numbers.constant", {"type": "list of text", "value": "[1]"}, "/value", "can't be a constant of type `text`"),
        ("numbers.constant", {"type": "tensor", "value": "[[1], [2, 3]]"}, "/value", TENSOR),
        ("numbers.constant", {"type": "tensor", "value": '[1, "a"]'}, "/value", TENSOR),
        ("numbers.constant", {"type": "tensor: float[2]", "value": "[1]"}, "/value", "the shape [1], which `tensor: "),
        ("numbers.constant", {"type": "scalar: float[n]", "value": "1"}, "/value", "the shape [], which `scalar: "),
        ("numbers.constant", {"value": "=p"}, "/value", "must be a literal; remove the `=`"),
        ("numbers.random", {"shape": "3, x"}, "/shape", "is not a shape; write sizes with commas between"),
        ("numbers.random", {"shape": "3, -1"}, "/shape", "at most 8 sizes, none of them negative"),
        ("numbers.random", {"shape": "=p"}, "/shape", "must be a literal"),
        ("numbers.reshape", {"shape": "-1, -1"}, "/shape", "at most 8 sizes, one of which may be -1"),
        ("text.extract", {"pattern": "(a)", "group": 2}, "/group", "the pattern has 1 groups; `group` is 2"),
        ("text.replace", {"find": ""}, "/find", "`find` is empty"),
        ("text.replace", {"find": "(", "regex": True}, "/find", "is not a regular expression"),
        ("text.replace", {"find": "(a)", "regex": True, "replacement": r"\2"}, "/replacement", r"has `\2`"),
        ("control.collect", {"ports": "a: image"}, "/ports", "a list of `text` can't hold `a`; write `a: text`"),
        ("snac.decoder", {"tf32": "=p"}, "/tf32", "must be a literal"),
    ],
)
def test_what_a_load_would_refuse_is_a_problem(component: str, params: dict[str, Any], at: str, words: str) -> None:
    ((pointer, message),) = source(component, **params)
    assert pointer == HERE + at
    assert words in message


@pytest.mark.parametrize(
    ("component", "params"),
    [
        ("numbers.constant", {"type": "text", "value": "{"}),
        ("numbers.constant", {"type": "tensor: float[n, 2]", "value": "[[1, 2.5]]"}),
        ("numbers.constant", {"type": "tensor", "value": "[[], []]"}),
        ("numbers.constant", {"type": "scalar: int[n]", "value": "[1, 2]"}),
        ("numbers.constant", {"type": "list of flag", "value": "[true]"}),
        ("numbers.random", {"shape": "3, 64"}),
        ("numbers.reshape", {"shape": "2, -1"}),
        ("text.replace", {"find": "(", "replacement": r"\2"}),
        ("control.collect", {"ports": "a, b: image", "type": "image"}),
    ],
)
def test_what_a_load_takes_is_none(component: str, params: dict[str, Any]) -> None:
    assert source(component, **params) == []


def test_a_parameter_beside_that_is_wrong_is_told_alone() -> None:
    assert [at for at, _ in source("numbers.constant", type="nothing", value="x")] == [f"{HERE}/type"]
    assert [at for at, _ in source("text.extract", pattern="(", group=3)] == [f"{HERE}/pattern"]
