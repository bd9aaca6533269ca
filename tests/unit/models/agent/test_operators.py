"""Conversations of agents: begun, read, extended, remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.palette_twins import WrongInput, served
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.graph.conversation import Conversation, ToolCall, Turn, TurnPart
from walkgraph.models.agent.components import MOST_CHARACTERS, MOST_TURNS

TOOLS = json.dumps([{"name": "clock", "parameters": {"properties": {"zone": {"type": "string"}}}}])
CALL = '<tool_call>{"name": "clock", "arguments": {"zone": "UTC"}}</tool_call>'


def turn(role: Any, text: str = "", **more: Any) -> Turn:
    return Turn(role, (TurnPart("text", text),) if text else (), **more)


def begun(text: str = "What is the time?") -> Conversation:
    return served("agent.instruct", {"system": "Be brief.", "tools": TOOLS}, {"text": text})["messages"]


def test_an_agent_is_instructed() -> None:
    found = begun()
    assert found.turns == (turn("system", "Be brief."), turn("user", "What is the time?"))
    assert json.loads(found.tools[0])["function"]["name"] == "clock"
    earlier = Conversation((turn("user", "hi"), turn("assistant", "hello")))
    assert served("agent.instruct", {}, {"messages": earlier})["messages"] == earlier
    wrapped = json.dumps([{"type": "function", "function": {"name": "clock"}}])
    assert served("agent.instruct", {"tools": wrapped}, {})["messages"].tools == (
        '{"type": "function", "function": {"name": "clock"}}',
    )


@pytest.mark.parametrize("tools", ["", "{}", "[3]", '[{"a": 1}]', '[{"name": ""}]', '[{"name": "a"}, {"name": "a"}]',
                                   '[{"name": "a", "parameters": 3}]', "[" * 100_000])  # fmt: skip
def test_what_are_no_tools_is_refused(tools: str) -> None:
    with pytest.raises(WrongInput, match="`tools`"):
        served("agent.instruct", {"tools": tools}, {})


def test_a_call_is_read_into_the_conversation_and_answered() -> None:
    read = served("agent.read_calls", {}, {"messages": begun(), "text": f"Let me see.\n{CALL}"})
    assert {key: read[key] for key in ("name", "arguments", "text", "problem", "done")} == {
        "name": "clock",
        "arguments": '{"zone": "UTC"}',
        "text": "Let me see.",
        "problem": "",
        "done": False,
    }
    asked = ToolCall("call_0", "clock", '{"zone": "UTC"}')
    assert read["messages"].turns[-1] == turn("assistant", "Let me see.", tool_calls=(asked,))
    answered = served("agent.append", {}, {"messages": read["messages"], "text": "noon"})["messages"]
    assert answered.turns[-1] == turn("tool", "noon", tool_call_id="call_0")
    again = served("agent.read_calls", {}, {"messages": answered, "text": CALL})["messages"]
    assert again.turns[-1].tool_calls[0].id == "call_1"
    answered = served("agent.append", {}, {"messages": again, "image": b"png"})["messages"]
    assert answered.turns[-1] == Turn("tool", (TurnPart("image", b"png"),), tool_call_id="call_1")
    assert served("agent.latest_picture", {}, {"messages": answered}) == {"image": b"png"}


def test_an_answer_without_a_call_is_the_last() -> None:
    read = served("agent.read_calls", {}, {"messages": begun(), "text": "It is noon."})
    assert (read["name"], read["done"], read["text"]) == ("none", True, "It is noon.")
    assert read["messages"].turns[-1] == turn("assistant", "It is noon.")


def test_a_call_that_cannot_be_used_goes_back_to_the_model() -> None:
    read = served("agent.read_calls", {}, {"messages": begun(), "text": CALL.replace("clock", "watch")})
    assert (read["name"], read["done"], read["arguments"]) == ("invalid", False, "{}")
    assert "There is no tool `watch`" in read["problem"]
    mended = served("agent.append", {"role": "user"}, {"messages": read["messages"], "text": read["problem"]})
    assert mended["messages"].turns[-1] == turn("user", read["problem"])


def test_nothing_is_appended_without_a_text_or_a_picture() -> None:
    assert served("agent.append", {}, {"messages": begun()})["messages"] == begun()
    assert served("agent.append", {"role": "user"}, {"messages": begun(), "text": ""})["messages"] == begun()


@pytest.mark.parametrize(
    ("component", "inputs"),
    [
        ("agent.append", {"messages": begun(), "text": "noon"}),
        ("agent.append", {"messages": "text", "text": "noon"}),
        ("agent.latest_picture", {"messages": begun()}),
        ("agent.read_calls", {"messages": begun(), "text": 3}),
        ("agent.instruct", {"text": "x" * (MOST_CHARACTERS + 1)}),
        ("agent.instruct", {"messages": Conversation((turn("user", "a"),) * (MOST_TURNS + 1))}),
    ],
)
def test_what_cannot_go_on_is_a_typed_error(component: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(WrongInput):
        served(component, {}, inputs)


def test_a_script_says_its_lines() -> None:
    params = {"lines": "one\n\ntwo: {last}\n"}
    turns = [turn("user", "a")]
    assert served("agent.script", params, {"messages": Conversation(tuple(turns))}) == {"text": "one"}
    turns += [turn("assistant", "one"), turn("tool", "b", tool_call_id="c")]
    assert served("agent.script", params, {"messages": Conversation(tuple(turns))}) == {"text": "two: b"}
    turns += [turn("assistant", "two: b"), turn("user", "c")]
    assert served("agent.script", params, {"messages": Conversation(tuple(turns))}) == {"text": "two: c"}
    with pytest.raises(WrongInput, match="no line"):
        served("agent.script", {"lines": " \n"}, {"messages": Conversation(())})


MEMORY = {
    "recall": ("walkgraph.models.agent.memory_operators:Recall", {"memory": "memory"}),
    "remember": ("walkgraph.models.agent.memory_operators:Remember", {"memory": "memory"}),
}


def test_a_conversation_is_remembered() -> None:
    engine = engine_of(plan_of(MEMORY))
    states = {"memory": "memory"}

    def recalled(*new: Turn, turns: int = 64) -> tuple[Turn, ...]:
        made = call("recall", {"messages": Conversation(new, ("{}",))}, states=states, turns=turns)
        found = outputs(engine, made)[0]["messages"]
        assert found.tools == ("{}",)
        return found.turns

    def remember(*turns: Turn, most: int = 64) -> int:
        made = call("remember", {"messages": Conversation(turns)}, states=states, turns=most)
        return outputs(engine, made)[0]["turns"]

    question = turn("user", "und?")
    assert recalled(question) == (question,), "nothing yet"
    asked = turn("assistant", "let me see", tool_calls=(ToolCall("call_0", "clock", '{"ü": 1}'),))
    talk = (turn("user", "grün"), asked, turn("tool", "noon", tool_call_id="call_0"), turn("assistant", "noon"))
    assert remember(turn("system", "Be brief."), *talk) == 4
    system = turn("system", "Be kind.")
    assert recalled(system, question) == (system, *talk, question)
    assert recalled(question, turns=3) == (question,), "a tool's answer doesn't stand alone"
    assert remember(*talk, question, turn("assistant", "ja"), most=3) == 2
    assert recalled(question) == (question, turn("assistant", "ja"), question)
    picture = Turn("user", (TurnPart("image", b"png"), TurnPart("text", "see")))
    assert remember(picture) == 1
    assert recalled() == (turn("user", "see"),), "pictures are not kept"
