"""Calls of tools in a model's text, and their arguments against a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.graph.reading.fitting import MOST_DEEP, problems
from walkgraph.models.agent.tool_calls import MOST_PROBLEMS, Read, Tool, read_answer

CAPTION = {"type": "object", "properties": {"caption": {"type": "string"}}, "required": ["caption"]}
TOOLS = (Tool("draw", CAPTION), Tool("look", {}))
CALL = '{"name": "draw", "arguments": {"caption": "a cat"}}'


def tagged(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (tagged(CALL), ""),
        (f"I draw.\n{tagged(CALL)}", "I draw."),
        (f"{tagged(CALL)}\nA cat, as you see.", ""),
        (f"{tagged(CALL)}\n{tagged(CALL)}", ""),
        (f"<tool_call>{CALL}", ""),
        (CALL, ""),
        (f"  {CALL}\n", ""),
        (f"Sure:\n```json\n{CALL}\n```", "Sure:"),
        (f"```\n{CALL}\n```", ""),
        ('{"name": "draw", "parameters": {"caption": "a cat"}}', ""),
        ('{"name": "draw", "arguments": "{\\"caption\\": \\"a cat\\"}"}', ""),
    ],
)
def test_a_call_is_found(answer: str, text: str) -> None:
    assert read_answer(answer, TOOLS) == Read(text, "draw", '{"caption": "a cat"}')


def test_a_call_may_have_no_arguments() -> None:
    assert read_answer(tagged('{"name": "look"}'), TOOLS) == Read("", "look", "{}")


@pytest.mark.parametrize("answer", ["", "A cat.", '{"a": 1}', "```python\nprint()\n```", "< tool_call>", "[1]"])
def test_other_text_is_an_answer(answer: str) -> None:
    assert read_answer(answer, TOOLS) == Read(answer)


def test_without_tools_json_is_an_answer() -> None:
    assert read_answer(CALL, ()) == Read(CALL)
    assert "The tools are: none" in read_answer(tagged(CALL), ()).problem


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ('{"name": "draw", "arguments": {"caption": "a cat"}', "not valid JSON at line 1"),
        ("draw a cat", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"name": "paint"}', "no tool `paint`. The tools are: draw, look"),
        ("[]", "needs the tool's `name`"),
        ('{"name": 3}', "needs the tool's `name`"),
        ('{"name": "draw"}', "`caption` is missing"),
        ('{"name": "draw", "arguments": {"caption": 3}}', "`caption` must be a text"),
        ('{"name": "draw", "arguments": []}', "they must be an object"),
        ('{"name": "draw", "arguments": "{"}', "arguments of `draw` are not valid JSON"),
    ],
)
def test_what_is_wrong_is_told_to_the_model(call: str, says: str) -> None:
    read = read_answer(tagged(call), TOOLS)
    assert says in read.problem
    assert (read.name, read.text) == ("", tagged(call)), "the model sees what it wrote"


@given(st.text(alphabet='{}[]<>/`"\n_abcdeflmnortw: ', max_size=80))
@settings(max_examples=200)
def test_any_text_is_read(text: str) -> None:
    read = read_answer(text, TOOLS)
    assert not (read.name and read.problem)
    assert not read.name or isinstance(json.loads(read.arguments), dict)


def test_long_answers_are_read_in_time_that_grows_with_their_length() -> None:
    for piece in (" ", "`", "<tool_call>", "{", "\n```\n", '"name"'):
        read_answer(piece * (1_000_000 // len(piece)), TOOLS)


FITS: list[tuple[Any, Any]] = [
    (1, {"type": "integer"}),
    (1.0, {"type": "integer"}),
    (1.5, {"type": ["integer", "number"]}),
    (None, {"type": ["string", "null"]}),
    ([1, 2], {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
    ("ab", {"minLength": 2, "maxLength": 2}),
    (2, {"minimum": 2, "maximum": 2}),
    ("b", {"enum": ["a", "b"]}),
    ({"x": 1}, {"const": {"x": 1}}),
    ({"a": 1}, {"properties": {}}),
    ({"a": {"b": [True]}}, {"properties": {"a": {"properties": {"b": {"items": {"type": "boolean"}}}}}}),
    (7, {"type": "a type of later"}),
    (7, True),
    (7, {"anyOf": [{"type": "string"}]}),
]
UNFIT: list[tuple[Any, Any, str]] = [
    (True, {"type": "integer"}, "must be a whole number"),
    (1.5, {"type": "integer"}, "must be a whole number"),
    ("1", {"type": ["number", "null"]}, "must be a number or null"),
    ({"a": [1, "x"]}, {"properties": {"a": {"items": {"type": "integer"}}}}, "`a[1]` must be a whole number"),
    ("c", {"enum": ["a", "b"]}, 'must be one of ["a", "b"]'),
    (True, {"enum": [1]}, "must be one of [1]"),
    (1, {"minimum": 2}, "at least 2"),
    (3, {"maximum": 2}, "at most 2"),
    ("abc", {"maxLength": 2}, "at most 2 characters"),
    ([], {"minItems": 1}, "at least 1 items"),
    ({"b": 1}, {"required": ["a"], "additionalProperties": False}, "`a` is missing"),
    ({"b": 1}, {"additionalProperties": False}, "`b` is not known"),
    ({"a": {"b": 1}}, {"properties": {"a": {"required": ["c"]}}}, "`a.c` is missing"),
]


@pytest.mark.parametrize(("value", "schema"), FITS)
def test_a_value_fits_its_schema(value: Any, schema: Any) -> None:
    assert list(problems(value, schema)) == []


@pytest.mark.parametrize(("value", "schema", "says"), UNFIT)
def test_a_value_that_does_not_fit_is_told(value: Any, schema: Any, says: str) -> None:
    assert says in next(problems(value, schema))


def test_problems_and_depth_are_bounded() -> None:
    wide = Tool("wide", {"required": [str(i) for i in range(1000)]})
    told = read_answer(tagged('{"name": "wide", "arguments": {}}'), (wide,)).problem
    assert told.count("is missing") == MOST_PROBLEMS
    value: Any = 1
    schema: Any = {}
    for _ in range(MOST_DEEP + 2):
        value, schema = [value], {"items": schema}
    assert any("too deep" in one for one in problems(value, schema))
