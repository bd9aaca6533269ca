"""Conversations from clients' JSON: their schema, their turns as messages, and every fault at its place."""

import base64
from typing import Any

import jsonschema
import pytest

from tests.support.placing import DOCUMENT
from walkgraph.graph import codec
from walkgraph.graph.document import Task
from walkgraph.ids import RunId
from walkgraph.service.http import frames, limits
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.kserve.protocol import InferRequest, native
from walkgraph.service.runs.tasks import read_request, request_schema
from walkgraph.service.values import values
from walkgraph.wire import messages as m

PNG = b"\x89PNG\r\n\x1a\n"
TURNS = {
    "for": "turns",
    "user": [{"for": "parts", "text": [], "image": []}],
    "system": [{"for": "parts", "text": []}],
    "assistant": [{"walk": "prefill", "with": {"text": "@turn.calls"}}],
    "tool": [{"for": "parts", "text": []}],
}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}


def task(steps: list[Any]) -> Task:
    talk = DOCUMENT["tasks"]["talk"]
    chat = {**talk, "inputs": {"chat": {"modality": "messages"}}, "steps": {"writer": steps}}
    return codec.load({**DOCUMENT, "tasks": {"chat": chat}}).tasks["chat"]


CHAT = task([TURNS])


def read(turns: Any, declared: Task = CHAT) -> m.Submit:
    return read_request(RunId("r"), "chat", declared, {"inputs": {"chat": turns}}, 5.0)


def conversation(turns: Any) -> m.Conversation:
    (found,) = read(turns).inputs["chat"]
    assert isinstance(found, m.Conversation)
    return found


def test_turns_become_messages_and_back() -> None:
    data = base64.b64encode(PNG).decode()
    given = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "image", "data": data}, {"type": "text", "text": "what?"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "a cat"},
    ]
    jsonschema.validate({"inputs": {"chat": given}}, request_schema("chat", CHAT))
    found = conversation(given)
    assert [(turn.role, [part.modality for part in turn.parts]) for turn in found.turns] == [
        ("system", ["text"]),
        ("user", ["image", "text"]),
        ("assistant", []),
        ("tool", ["text"]),
    ]
    assert found.turns[1].parts[0].value == m.Blob(data=PNG)
    assert found.turns[2].tool_calls == (m.ToolCall(id="1", name="look", arguments='{"at": "sky"}'),)
    assert found.turns[3].tool_call_id == "1"
    written = values.write(found, "messages")["turns"]
    assert conversation([{**turn, "content": [_bare(part) for part in turn["content"]]} for turn in written]) == found
    assert values.size_of(found) == len(PNG) + len("be kindwhat?a cat")


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_the_schema_has_the_parts_of_each_role(role: str) -> None:
    picture = {"type": "image", "data": base64.b64encode(PNG).decode()}
    turn = {"role": role, "content": [{"type": "text", "text": "a"}, picture]}
    schema = request_schema("chat", CHAT)
    if role == "user":
        jsonschema.validate({"inputs": {"chat": [turn]}}, schema)
        return
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"inputs": {"chat": [turn]}}, schema)
    jsonschema.validate({"inputs": {"chat": [{**turn, "content": turn["content"][:1]}]}}, schema)


def _bare(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "mime"}


FAULTS: list[tuple[Any, str, str]] = [
    ("hello", "", "list of turns"),
    ([], "", "1 to 1024 turns"),
    ([{"role": "user", "content": "a"}] * (limits.TURNS + 1), "", "1 to 1024 turns"),
    (["a"], "/0", "a turn is an object"),
    ([{"role": "user", "content": "a", "name": "x"}], "/0/name", "no such key"),
    ([{"role": "narrator", "content": "a"}], "/0/role", "no turns of this role"),
    ([{"content": "a"}], "/0/role", "no turns of this role"),
    ([{"role": "user"}], "/0", "`content` is missing"),
    ([{"role": "user", "content": 5}], "/0/content", "a text or a list"),
    ([{"role": "user", "content": ["a"]}], "/0/content/0", "needs a `type`"),
    ([{"role": "system", "content": [{"type": "image", "data": "aaaa"}]}], "/0/content/0", "`text`"),
    ([{"role": "user", "content": [{"type": "image", "data": "?"}]}], "/0/content/0/data", "base64"),
    ([{"role": "user", "content": [{"type": "text", "text": "a"}] * 257}], "/0/content", "256 parts"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "a"}] * 256}] * 17,
        "",
        "4096 parts",
    ),
    ([{"role": "user", "content": "a", "tool_calls": [CALL]}], "/0/tool_calls", "only turns of role `assistant`"),
    ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "/0/tool_calls/0", "a tool call is"),
    ([{"role": "assistant", "tool_calls": [CALL] * 129}], "/0/tool_calls", "128 tool calls"),
    ([{"role": "user", "content": "a", "tool_call_id": "1"}], "/0/tool_call_id", "only turns of role `tool`"),
    ([{"role": "tool", "content": "a", "tool_call_id": ""}], "/0/tool_call_id", "1 to 256"),
    ([{"role": "user", "content": "a" * (limits.TEXT_CHARACTERS + 1)}], "/0/content", "characters"),
]


@pytest.mark.parametrize(("turns", "at", "words"), FAULTS, ids=[str(i) for i in range(len(FAULTS))])
def test_every_fault_is_at_its_place(turns: Any, at: str, words: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        read(turns)
    (fault,) = refusal.value.faults
    assert fault.pointer == f"/inputs/chat{at}"
    assert words in fault.message


def test_a_conversation_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONVERSATION_BYTES", 5)
    with pytest.raises(Unprocessable) as refusal:
        read([{"role": "user", "content": "abc"}] * 2)
    assert [(fault.pointer, fault.message) for fault in refusal.value.faults] == [
        ("/inputs/chat/1", "a conversation may have 5 bytes; leave out earlier turns")
    ]


def test_too_many_pictures_are_refused() -> None:
    picture = {"role": "user", "content": [{"type": "image", "data": PNG}]}
    read([picture] * limits.MEDIA)
    with pytest.raises(Unprocessable) as refusal:
        read([picture] * (limits.MEDIA + 1))
    assert [fault.message for fault in refusal.value.faults] == [
        "these are 129 pictures, sounds or videos; send at most 128"
    ]


def test_frames_are_placed_in_turns() -> None:
    turn = {"role": "user", "content": [{"type": "image", "frame": 0}, {"type": "text", "text": "a"}]}
    body = frames.placed({"inputs": {"chat": [turn]}}, [PNG])
    assert conversation(body["inputs"]["chat"]).turns[0].parts[0].value == m.Blob(data=PNG)


def test_kserve_takes_a_conversation_as_one_text_of_json() -> None:
    asked = InferRequest.model_validate(
        {
            "inputs": [
                {"name": "chat", "shape": [1], "datatype": "BYTES", "data": ['[{"role": "user", "content": "a"}]']}
            ]
        }
    )
    assert native(CHAT, asked, memoryview(b""))["inputs"] == {"chat": [{"role": "user", "content": "a"}]}


def test_a_task_that_takes_a_conversation_has_no_parts() -> None:
    with pytest.raises(Unprocessable) as refusal:
        read_request(RunId("r"), "chat", CHAT, {"inputs": {"parts": [{"type": "text", "text": "a"}]}}, 5.0)
    assert refusal.value.faults
    assert "parts" not in str(request_schema("chat", CHAT)["properties"]["inputs"]["properties"].keys())


# ── tools ───────────────────────────────────────────────────────────────────────────────────────

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"b": 1, "a": [2]}}}
WHOLE = codec.load(
    {
        **DOCUMENT,
        "tasks": {
            "chat": {
                **DOCUMENT["tasks"]["talk"],
                "inputs": {"chat": {"modality": "messages"}},
                "steps": {"writer": [{"walk": "prefill", "with": {"text": "@task.chat"}}]},
            }
        },
    }
).tasks["chat"]


def test_tools_beside_the_turns_are_kept_as_they_are() -> None:
    given = {"turns": [{"role": "user", "content": "a"}], "tools": [TOOL]}
    jsonschema.validate({"inputs": {"chat": given}}, request_schema("chat", WHOLE))
    (found,) = read(given, WHOLE).inputs["chat"]
    assert isinstance(found, m.Conversation)
    assert found.tools == ('{"type":"function","function":{"name":"look","parameters":{"b":1,"a":[2]}}}',)
    assert values.write(found, "messages")["tools"] == [TOOL]
    assert (found.call, "call" in values.write(found, "messages")) == (None, False)


@pytest.mark.parametrize(("given", "kept"), [(True, ""), ("look", "look")])
def test_an_answer_may_have_to_call_a_function(given: bool | str, kept: str) -> None:
    asked = {"turns": [{"role": "user", "content": "a"}], "tools": [TOOL], "call": given}
    jsonschema.validate({"inputs": {"chat": asked}}, request_schema("chat", WHOLE))
    (found,) = read(asked, WHOLE).inputs["chat"]
    assert isinstance(found, m.Conversation)
    assert found.call == kept
    assert values.write(found, "messages")["call"] == given


@pytest.mark.parametrize(
    ("given", "declared", "at", "words"),
    [
        ({"turns": [], "tools": [TOOL]}, WHOLE, "", "1 to 1024 turns"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": [{}]}, WHOLE, "/tools/0", "a tool is"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": 5}, WHOLE, "/tools/0", "a tool is"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": [TOOL] * 129}, WHOLE, "/tools", "at most 128"),
        ({"turns": [{"role": "user", "content": "a"}], "more": 1}, WHOLE, "/more", "`turns`, `tools` and `call`"),
        ({"turns": [{"role": "user", "content": "a"}], "call": True}, WHOLE, "/call", "there are none"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": [TOOL], "call": "go"}, WHOLE, "/call", "are `look`"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": [TOOL], "call": 1}, WHOLE, "/call", "are `look`"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": [TOOL], "call": []}, WHOLE, "/call", "are `look`"),
        ({"turns": [{"role": "user", "content": "a"}], "tools": [TOOL]}, CHAT, "/tools", "no step of the task"),
    ],
)
def test_every_fault_of_tools_is_at_its_place(given: Any, declared: Task, at: str, words: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        read(given, declared)
    (fault,) = refusal.value.faults
    assert fault.pointer == f"/inputs/chat{at}"
    assert words in fault.message
