"""A chat's messages as the turns of a task that takes a conversation."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from walkgraph.graph import codec
from walkgraph.ids import RunId
from walkgraph.resources import bundled
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai import chat, serving
from walkgraph.service.openai.chat_schemas import ChatRequest
from walkgraph.service.openai.realtime import items, turn
from walkgraph.service.runs.tasks import read_request

PNG = "data:image/png;base64,iVBORw0KGgo="
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
WITH_TOOLS: dict[str, Any] = {
    "assistant": [{"walk": "read_text", "with": {"text": "@turn.calls"}, "when": "@turn.calls != ''"}],
    "tool": [{"for": "parts", "text": [{"walk": "read_text", "with": {"text": "@part"}}]}],
    "system": [{"for": "parts", "text": [{"walk": "read_text", "with": {"text": "@part"}}]}],
}


def resolved(**roles: Any) -> serving.Resolved:
    document = json.loads(bundled("graphs")["shapes"].read_text())
    document["tasks"]["chat"]["steps"][0] |= roles
    found = serving.servings(codec.load(document))["chat"]
    return serving.Resolved(cast(Any, SimpleNamespace(id="shapes")), found)


SHAPES, TOOLS = resolved(), resolved(**WITH_TOOLS)


def sent(*messages: dict[str, Any], to: serving.Resolved = SHAPES) -> chat.Sent:
    return chat.send(ChatRequest.model_validate({"model": "m", "messages": list(messages)}), to)


@pytest.mark.parametrize(
    "told",
    [
        {"content": None, "audio": {"id": "audio_1", "data": "AAAA", "expires_at": 9, "transcript": "a cat"}},
        {"content": "a cat", "audio": {"id": "audio_1"}},
        {"audio": {"transcript": "a cat"}},
    ],
)
def test_an_earlier_answer_in_audio_is_read_by_its_transcript(told: dict[str, Any]) -> None:
    found = body({"role": "user", "content": "what?"}, {"role": "assistant", **told}, {"role": "user", "content": "b"})
    assert found["inputs"]["messages"][1] == {"role": "assistant", "content": "a cat"}


def body(*messages: dict[str, Any], to: serving.Resolved = SHAPES) -> Any:
    (only,) = sent(*messages, to=to).bodies
    read_request(RunId("r"), "chat", to.serving.task, only, 5.0)
    return only


def test_such_a_task_serves_chat_and_nothing_else() -> None:
    assert SHAPES.serving.routes == ("chat.completions", "realtime")
    assert SHAPES.serving.conversation == "messages"
    assert SHAPES.serving.heard == {"text", "image"}


def test_every_message_is_a_turn_in_order() -> None:
    picture = {"type": "image_url", "image_url": {"url": PNG}}
    found = body(
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [picture, {"type": "text", "text": "what?"}]},
        {"role": "assistant", "content": "a cat", "refusal": None, "tool_calls": None, "annotations": []},
        {"role": "user", "content": "and now?"},
    )
    assert found["inputs"]["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "image", "data": PNG}, {"type": "text", "text": "what?"}]},
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": "and now?"},
    ]


def test_tool_calls_and_their_answers_are_turns() -> None:
    found = body(
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        to=TOOLS,
    )
    assert found["inputs"]["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "a cat", "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize(
    ("message", "pointer", "words"),
    [
        ({"role": "tool", "content": "a", "tool_call_id": "1"}, "/messages/1/role", "messages of role `tool`"),
        ({"role": "function", "content": "a", "name": "f"}, "/messages/1/role", "messages of role `function`"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "/messages/1/tool_calls", "no such key"),
        ({"role": "assistant"}, "/messages/1/content", "is missing"),
        ({"role": "assistant", "audio": {"id": "audio_1"}}, "/messages/1/audio", "isn't kept by its id"),
        ({"role": "assistant", "audio": "audio_1"}, "/messages/1/audio", "isn't kept by its id"),
        ({"role": "user", "content": "a", "audio": {"transcript": "a"}}, "/messages/1/audio", "no such key"),
        (
            {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}]},
            "/messages/1/content/0",
            "no `video`",
        ),
        (
            {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
            "/messages/1/content/0",
            "no `image`",
        ),
    ],
)
def test_what_the_task_cannot_take_is_refused(message: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(Unprocessable, match=words) as refusal:
        sent({"role": "user", "content": "a"}, message)
    assert refusal.value.faults[0].pointer == pointer


def test_faults_of_the_turns_point_into_the_messages() -> None:
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}
    asked = sent({"role": "user", "content": "a"}, {"role": "user", "content": [bad]})
    with pytest.raises(Unprocessable) as refusal:
        read_request(RunId("r"), "chat", SHAPES.serving.task, asked.bodies[0], 5.0)
    assert [fault.pointer for fault in chat.refused(refusal.value, asked).faults] == ["/messages/1/content/0"]


def test_tool_calls_that_no_step_reads_are_refused_at_their_place() -> None:
    asked = sent({"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [CALL]})
    with pytest.raises(Unprocessable) as refusal:
        read_request(RunId("r"), "chat", SHAPES.serving.task, asked.bodies[0], 5.0)
    (fault,) = chat.refused(refusal.value, asked).faults
    assert fault.pointer == "/messages/1/tool_calls"
    assert "reads tool calls" in fault.message


def test_a_realtime_conversation_is_sent_whole() -> None:
    setting = turn.Setting("be brief", "text", None)
    said = items.Conversation()
    for number, (role, text) in enumerate([("user", "a"), ("assistant", "b"), ("user", "c")]):
        said.add(items.Item(str(number), cast(Any, role), "completed", [items.Part("text", text)]))
    found = turn.body_of(turn.taken(said, TOOLS.serving), setting, TOOLS.serving, "s")
    assert found["inputs"]["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}]},
    ]
    read_request(RunId("r"), "chat", TOOLS.serving.task, found, 5.0)
