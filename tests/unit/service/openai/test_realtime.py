"""Events that a realtime session accepts and refuses, by its task's declaration; errors name the event and leave the
socket open."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.service.conftest import TOKEN, Running
from tests.unit.service.openai.talking import LOOK, PCM, PICTURE, SPEAK, TALK, talking, text
from tests.unit.service.sockets import Refused, connect
from walkgraph.service.openai.realtime import turn
from walkgraph.service.openai.serving import Serving

# ── what a model can do ─────────────────────────────────────────────────────────────────────────


def shown(found: Serving) -> dict[str, Any]:
    return turn.session_shown("sess_1", "m", turn.Setting.of(found), found)


def test_a_session_begins_with_what_the_task_declares() -> None:
    talk, speak, look = shown(TALK), shown(SPEAK), shown(LOOK)
    assert talk["output_modalities"] == speak["output_modalities"] == ["audio"]
    assert look["output_modalities"] == ["text"]
    assert talk["instructions"] == "Answer in short spoken sentences."
    assert talk["audio"]["output"]["voice"] == "ethan"
    assert talk["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
    assert talk["audio"]["input"]["turn_detection"] is None
    assert set(speak["audio"]) == {"output"}
    assert look["audio"] == {}


async def test_settings_are_kept_and_told() -> None:
    async with talking() as peer:
        audio = {"output": {"voice": {"id": "aiden"}, "format": {"type": "audio/pcm", "rate": 24000}}}
        told = await peer.asked(
            "session.update",
            session={
                "type": "realtime",
                "audio": {**audio, "input": {"turn_detection": None}},
                "instructions": "Be brief.",
                "output_modalities": ["text"],
                "max_output_tokens": 64,
                "temperature": 0.1,
                "tools": [],
            },
        )
        assert told["type"] == "session.updated"
        session = told["session"]
        assert (session["instructions"], session["output_modalities"]) == ("Be brief.", ["text"])
        assert (session["max_output_tokens"], session["temperature"]) == (64, 0.1)
        assert session["audio"]["output"]["voice"] == "aiden"
        told = await peer.asked("session.update", session={"modalities": ["text", "audio"], "voice": "ethan"})
        assert told["session"]["output_modalities"] == ["audio"]
        assert told["session"]["instructions"] == "Be brief."
        await peer.say(text("Hello"))
        run = await peer.respond(max_output_tokens="inf", top_p=0.5)
        assert run.body["params"] == {
            "temperature": 0.1,
            "top_p": 0.5,
            "system_prompt": "Be brief.",
            "speaker": "ethan",
        }
        assert run.body["outputs"] == ["audio", "text"]
        run.end()
        await peer.until("response.done")


WRONG: dict[str, tuple[Serving, dict[str, Any], str | None, str, str]] = {
    "turns of the server's": (
        TALK,
        {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}},
        "session.audio.input.turn_detection",
        "invalid_value",
        "turns are not detected here",
    ),
    "turns as the beta had them": (
        TALK,
        {"type": "session.update", "session": {"turn_detection": {"type": "server_vad"}}},
        "session.turn_detection",
        "invalid_value",
        "turns are not detected here",
    ),
    "another sound": (
        TALK,
        {"type": "session.update", "session": {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}},
        "session.audio.output.format.type",
        "invalid_value",
        "24000 Hz",
    ),
    "tools": (
        TALK,
        {"type": "session.update", "session": {"tools": [{"type": "function", "name": "f"}]}},
        "session.tools",
        "invalid_value",
        "tools are not supported",
    ),
    "a voice": (
        TALK,
        {"type": "session.update", "session": {"audio": {"output": {"voice": "alloy"}}}},
        "session.audio.output.voice",
        "invalid_value",
        "`chelsie`",
    ),
    "no parameter": (
        TALK,
        {"type": "session.update", "session": {"tempo": 3}},
        "session.tempo",
        "unknown_parameter",
        "no such parameter",
    ),
    "a bound that there is not": (
        Serving("chat", TALK.task.model_copy(update={"params": {}}), TALK.outputs),
        {"type": "session.update", "session": {"max_output_tokens": 5}},
        "session.max_output_tokens",
        "invalid_value",
        "no such limit",
    ),
    "instructions": (
        SPEAK,
        {"type": "session.update", "session": {"instructions": "sadly"}},
        "session.instructions",
        "invalid_value",
        "takes no instructions",
    ),
    "writing of a speaker": (
        SPEAK,
        {"type": "session.update", "session": {"output_modalities": ["text"]}},
        "session.output_modalities",
        "invalid_value",
        '`["audio"]`',
    ),
    "sound of a writer": (
        LOOK,
        {"type": "response.create", "response": {"output_modalities": ["audio"]}},
        "response.output_modalities",
        "invalid_value",
        '`["text"]`',
    ),
    "sound for one that is deaf": (SPEAK, {"type": "input_audio_buffer.commit"}, None, "invalid_value", "no audio"),
    "a picture for one that is blind": (
        SPEAK,
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]},
        },
        "item.content[0].type",
        "invalid_value",
        "it takes `input_text`",
    ),
    "an address of a picture": (
        LOOK,
        {
            "type": "conversation.item.create",
            "item": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": "https://x.example/a.png"}],
            },
        },
        "item.content[0].image_url",
        "invalid_value",
        "fetches no addresses",
    ),
    "a system item for one without": (
        SPEAK,
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "x"}]},
        },
        "item.role",
        "invalid_value",
        "no instructions",
    ),
    "a call of a tool": (
        TALK,
        {"type": "conversation.item.create", "item": {"type": "function_call", "name": "f", "content": []}},
        None,
        "",
        "",
    ),
    "an empty part": (
        TALK,
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text"}]},
        },
        "item.content[0].text",
        "missing_required_parameter",
        "required",
    ),
    "an answer heard": (
        TALK,
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "assistant", "content": [{"type": "input_audio", "audio": PCM}]},
        },
        "item.content[0].type",
        "invalid_value",
        "`output_text`",
    ),
    "behind nothing": (
        TALK,
        {
            "type": "conversation.item.create",
            "previous_item_id": "item_x",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        },
        "previous_item_id",
        "invalid_value",
        "no item",
    ),
    "no base64": (TALK, {"type": "input_audio_buffer.append", "audio": "!!"}, "audio", "invalid_value", "base64"),
    "no sound": (TALK, {"type": "input_audio_buffer.commit"}, None, "input_audio_buffer_commit_empty", "append"),
    "nothing to delete": (
        TALK,
        {"type": "conversation.item.delete", "item_id": "x"},
        "item_id",
        "item_delete_invalid_item_id",
        "no item",
    ),
    "nothing to show": (
        TALK,
        {"type": "conversation.item.retrieve", "item_id": "x"},
        "item_id",
        "item_retrieve_invalid_item_id",
        "no item",
    ),
    "nothing to answer": (TALK, {"type": "response.create"}, None, "missing_required_parameter", "nothing to answer"),
    "nothing to cancel": (TALK, {"type": "response.cancel"}, None, "response_cancel_not_active", "no such response"),
    "another event": (TALK, {"type": "session.close"}, "type", "unknown_event", "`response.create`"),
    "no event": (TALK, {}, "type", "unknown_event", "`response.create`"),
    "another key": (TALK, {"type": "response.cancel", "why": "x"}, "why", "unknown_parameter", "unknown"),
}


@pytest.mark.parametrize("row", WRONG)
async def test_faults_name_the_event_and_leave_the_socket_open(row: str) -> None:
    found, event, param, code, words = WRONG[row]
    async with talking(found) as peer:
        await peer.put({"text": json.dumps({**event, "event_id": "mine"})})
        told = await peer.next()
        assert told["type"] == "error"
        error = told["error"]
        assert (error["type"], error["event_id"]) == ("invalid_request_error", "mine")
        if code:
            assert (error["param"], error["code"]) == (param, code)
            assert words in error["message"]
        assert (await peer.asked("session.update", session={}))["type"] == "session.updated"


@pytest.mark.parametrize("message", [{"bytes": b"\x00"}, {"text": "{"}, {"text": "[1]"}, {"text": '{"type": NaN}'}])
async def test_what_is_no_event_leaves_the_socket_open(message: dict[str, Any]) -> None:
    async with talking() as peer:
        await peer.put(message)
        assert (await peer.next())["error"]["event_id"] is None
        assert (await peer.asked("input_audio_buffer.clear"))["type"] == "input_audio_buffer.cleared"


KEYS = "type item session response content audio role id input text output voice format".split()
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=9,
)
INSIDE = {
    "session.update": "session",
    "conversation.item.create": "item",
    "response.create": "response",
    "input_audio_buffer.append": "audio",
}


@settings(max_examples=60)
@given(value=JSON, kind=st.sampled_from(sorted(INSIDE)))
def test_no_event_ends_a_session(value: Any, kind: str) -> None:
    async def run() -> None:
        async with talking() as peer:
            await peer.put({"text": json.dumps({"type": kind, INSIDE[kind]: value})})
            await peer.cleared()

    asyncio.run(run())


# ── the socket ──────────────────────────────────────────────────────────────────────────────────


async def test_the_handshake_tells_what_cannot_talk(service: Running) -> None:
    await service.deploy()
    for model, status in (("", 400), ("nobody", 404), ("shapes/text_to_image", 400)):
        with pytest.raises(Refused) as refused:
            async with connect(service.app, f"/v1/realtime?model={model}"):
                pass
        assert refused.value.status == status


async def test_a_browser_shows_its_key_as_openais_clients_do(service: Running) -> None:
    await service.deploy()
    path = "/v1/realtime?model=shapes"
    for protocol in (f"openai-insecure-api-key.{TOKEN}", f"bearer.{TOKEN}"):
        async with connect(service.app, path, token=False, protocols=("realtime", protocol)) as socket:
            assert (await socket.receive())["type"] == "session.created"
    for wrong in ("openai-insecure-api-key.", f"openai-insecure-api-key.{TOKEN}x", TOKEN):
        with pytest.raises(Refused) as refused:
            async with connect(service.app, path, token=False, protocols=("realtime", wrong)):
                pass
        assert refused.value.status == 401


async def test_a_response_is_the_run_of_a_deployment(service: Running) -> None:
    await service.deploy()
    async with connect(service.app, "/v1/realtime?model=shapes") as socket:
        assert (await socket.receive())["session"]["model"] == "shapes/image_to_text"
        item = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}
        await socket.send({"type": "conversation.item.create", "item": item})
        await socket.send({"type": "response.create", "response": {"seed": 15}})
        kinds = []
        while not kinds or kinds[-1]["type"] != "response.done":
            kinds.append(await socket.receive())
    output = kinds[-1]["response"]["output"]
    assert [part["text"] for item in output for part in item["content"]] == ["a red circle"]
