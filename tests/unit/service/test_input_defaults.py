"""Inputs of tasks that have a default: a request may leave them out, and they are never absent."""

from __future__ import annotations

from typing import Any

import pytest

from walkgraph.graph.document import Task
from walkgraph.ids import RunId
from walkgraph.placement.request import name_inputs
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.runs.tasks import read_request, request_schema
from walkgraph.wire import messages as m

TASK = Task.model_validate(
    {
        "inputs": {
            "subject": {"modality": "text"},
            "style": {"modality": "text", "default": "in oil"},
            "state": {"modality": "state", "default": [0.5, -1]},
            "most": {"modality": "scalar", "default": 3},
        },
        "outputs": ["text"],
        "steps": [],
    }
)


def asked(inputs: dict[str, Any]) -> m.Submit:
    return read_request(RunId("r"), "go", TASK, {"inputs": inputs}, 60.0)


def text(words: str) -> tuple[m.Small]:
    return (m.Small(value=words),)


def test_what_is_left_out_is_the_default() -> None:
    found = asked({"subject": "a cat"}).inputs
    assert (found["subject"], found["style"]) == (text("a cat"), text("in oil"))
    [state], [most] = found["state"], found["most"]
    assert isinstance(state, m.InlineTensor)
    assert (state.dtype, state.shape) == ("float32", (2,))
    assert isinstance(most, m.InlineTensor)
    assert most.shape == (1,), "as a client's number would be"


def test_what_is_given_is_taken() -> None:
    found = asked({"subject": "a cat", "style": "", "state": [1.0, 2.0]})
    assert found.inputs["style"] == text("")
    assert asked({"subject": "a cat", "style": None}).inputs["style"] == text("in oil"), "null is nothing"


def test_a_part_counts_as_given() -> None:
    both = asked({"parts": [{"type": "text", "text": "a cat"}, {"type": "text", "text": "in ink"}]})
    assert "style" not in both.inputs
    assert [one.value for one in name_inputs(TASK, both.inputs, both.parts) if one.input == "style"] == [
        *text("in ink")
    ]
    one = asked({"parts": [{"type": "text", "text": "a cat"}]})
    assert one.inputs["style"] == text("in oil")
    named = {given.input: given.value for given in name_inputs(TASK, one.inputs, one.parts)}
    assert (named["subject"], named["style"]) == (*text("a cat"), *text("in oil"))


def test_an_input_without_a_default_is_needed() -> None:
    with pytest.raises(Unprocessable) as refused:
        asked({"style": "in ink"})
    assert [fault.pointer for fault in refused.value.faults] == ["/inputs/subject"]


def test_the_schema_tells_the_defaults() -> None:
    schema = request_schema("go", TASK)
    named = schema["properties"]["inputs"]["anyOf"][0]
    assert named["required"] == ["subject"]
    assert named["properties"]["style"]["default"] == "in oil"
    assert list(named["properties"]["state"]["default"]) == [0.5, -1]
    assert "default" not in named["properties"]["subject"]
