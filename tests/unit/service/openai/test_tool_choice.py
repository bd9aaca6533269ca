"""Answers that must call a function: the call that the prompt has begun, the check of its arguments, and its lack."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.service.openai.test_replies import TEXT, deltas, end, live, say
from walkgraph.checkpoints.chat_template import CallForm
from walkgraph.errors import RunFailed
from walkgraph.service.openai import replies
from walkgraph.service.openai.chat import Sent
from walkgraph.service.openai.tool_choice import Tools

LOOK = {
    "type": "object",
    "properties": {"at": {"type": "string"}, "far": {"type": "integer", "minimum": 0}},
    "required": ["at"],
    "additionalProperties": False,
}
OPENINGS: dict[CallForm, str] = {
    "tagged": '<tool_call>\n{"name": "look", "arguments":',
    "whole": '{"name": "look", "parameters":',
}
CLOSING: dict[CallForm, str] = {"tagged": "}\n</tool_call>", "whole": "}"}


def asked(form: CallForm = "tagged", *, call: str | None = "look", single: bool = False) -> Sent:
    tools = Tools([], {"look": LOOK, "go": None}, call, single)
    opening = OPENINGS[form] if call else '<tool_call>\n{"name": "' if call == "" else ""
    return Sent([{}], TEXT, None, "", tools=tools, calls=form, opening=opening)


async def told(sent: Sent, *texts: str, stopped: bool = True) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The choice of an answer, and the choices of its chunks."""
    run = live()
    say(run, *texts)
    end(run, len(texts), stopped=stopped)
    (choice,) = (await replies.completion([run], sent, "m"))["choices"]
    return choice, [c for chunk in await deltas(run, sent=sent) for c in chunk["choices"]]


@pytest.mark.parametrize("form", OPENINGS)
async def test_the_model_writes_the_rest_of_the_call(form: CallForm) -> None:
    choice, chunks = await told(asked(form), ' {"at": ', '"sky", "far": 2}', CLOSING[form])
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"at": "sky", "far": 2}'}
    assert [one for c in chunks for one in c["delta"].get("tool_calls", [])] == [{"index": 0, **call}]
    assert "".join(c["delta"].get("content") or "" for c in chunks) == ""
    assert chunks[-1]["finish_reason"] == "tool_calls"


async def test_of_several_functions_the_model_chooses() -> None:
    choice, _ = await told(asked(call=""), 'go", "arguments": {"anything": 1}}\n</tool_call>')
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "go", "arguments": '{"anything": 1}'}


@pytest.mark.parametrize("call", ["look", None])
async def test_without_parallel_calls_the_first_one_counts(call: str | None) -> None:
    more = '<tool_call>{"name": "look", "arguments": {"at": "sea"}}</tool_call>'
    first = ' {"at": "sky"}}\n</tool_call>' if call else f'{OPENINGS["tagged"]} {{"at": "sky"}}}}\n</tool_call>'
    several, _ = await told(asked(call=call), first, more)
    assert [one["function"]["arguments"] for one in several["message"]["tool_calls"]] == [
        '{"at": "sky"}',
        '{"at": "sea"}',
    ]
    single, chunks = await told(asked(call=call, single=True), first, more)
    assert single["message"]["tool_calls"] == several["message"]["tool_calls"][:1]
    assert len([one for c in chunks for one in c["delta"].get("tool_calls", [])]) == 1


@pytest.mark.parametrize(
    ("form", "texts", "stopped", "says"),
    [
        ("tagged", (' {"far": 2}}\n</tool_call>',), True, "`at` is missing"),
        ("tagged", (' {"at": "sky", "far": -1}}\n</tool_call>',), True, "`far` must be at least 0"),
        ("tagged", (' {"at": "sky", "near": 1}}\n</tool_call>',), True, "`near` is not known"),
        ("tagged", (" the sky}\n</tool_call>", "and more"), True, "no JSON"),
        ("tagged", (' {"at": "sky"}',), True, "no JSON"),
        ("tagged", (' {"at": "s',), False, "cut at `max_tokens`"),
        ("whole", (" the sky",), True, "no JSON"),
        ("whole", (' {"at": "s',), False, "cut at `max_tokens`"),
    ],
)
async def test_an_answer_without_the_call_fails(
    form: CallForm, texts: tuple[str, ...], stopped: bool, says: str
) -> None:
    run = live()
    say(run, *texts)
    end(run, len(texts), stopped=stopped)
    with pytest.raises(RunFailed, match=says) as found:
        await replies.completion([run], asked(form), "m")
    assert found.value.error.code == "no_call"
    *_, last = await deltas(run, sent=asked(form))
    assert last["error"]["code"] == "no_call"
    assert says in last["error"]["message"]


async def test_a_call_that_need_not_come_is_not_judged() -> None:
    choice, _ = await told(asked(call=None), '<tool_call>{"name": "look", "arguments": {}}</tool_call>')
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
