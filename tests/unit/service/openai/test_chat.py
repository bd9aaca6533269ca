"""A chat's request as a task's body, over declarations of families that no small machine runs."""

from __future__ import annotations

import base64
import io
import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import soundfile

from walkgraph.graph import codec
from walkgraph.resources import bundled
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.openai import chat, hearing, serving
from walkgraph.service.openai.chat_schemas import ChatRequest
from walkgraph.service.openai.tool_choice import Tools
from walkgraph.service.values.sound import Sound, read, written

PNG = "data:image/png;base64,iVBORw0KGgo="
MP4 = "data:video/mp4;base64,AAAAGGZ0eXA="
WAV = base64.b64encode(written(Sound(8000, np.zeros((80, 1), np.int16)))).decode()


def resolved(graph: str, task: str, **changes: Any) -> serving.Resolved:
    document = json.loads(bundled("graphs")[graph].read_text())
    document["tasks"][task] |= changes
    found = serving.servings(codec.load(document))[task]
    return serving.Resolved(cast(Any, SimpleNamespace(id=graph)), found)


OMNI = resolved("qwen3_omni", "chat")
BAGEL = resolved("bagel", "image_to_text")
ONE_OF_EACH = {
    "picture": {"modality": "image", "optional": True},
    "question": {"modality": "text"},
}
NAMED = resolved(
    "shapes",
    "image_to_text",
    inputs=ONE_OF_EACH,
    steps=[{"walk": "read_image", "with": {"image": "@task.picture"}}, {"walk": "decode"}],
)


WATCH = resolved(
    "qwen3_omni",
    "chat",
    outputs=["text"],
    inputs={"film": {"modality": "video"}, "question": {"modality": "text", "optional": True}},
    steps={"thinker": [{"walk": "see", "with": {"image": "@task.film"}}, {"walk": "decode"}]},
)


def request(*content: Any, **fields: Any) -> ChatRequest:
    messages = [{"role": "user", "content": list(content)}] if content else []
    return ChatRequest.model_validate({"model": "m", "messages": messages, **fields})


def text(told: str) -> dict[str, Any]:
    return {"type": "text", "text": told}


def image(url: str = PNG) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def audio(data: str = WAV, form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def body(found: serving.Resolved, asked: ChatRequest) -> dict[str, Any]:
    (only,) = chat.send(asked, found).bodies
    return only


def test_parts_keep_their_order() -> None:
    asked = request(text("a"), audio(), image(), text("b"))
    assert body(OMNI, asked)["inputs"] == {
        "parts": [
            {"type": "text", "text": "a"},
            {"type": "audio", "data": WAV},
            {"type": "image", "data": PNG},
            {"type": "text", "text": "b"},
        ]
    }


def test_a_video_is_given_to_the_input_for_it() -> None:
    film = {"type": "video_url", "video_url": {"url": MP4}}
    asked = request(text("what happens?"), film)
    assert body(WATCH, asked)["inputs"] == {"film": MP4, "question": "what happens?"}
    assert WATCH.serving.routes == ("chat.completions",)
    for found, content, place in (
        (WATCH, (film, film), "/messages/0/content/1/video_url/url"),
        (BAGEL, (film,), "/messages/0/content/0/video_url/url"),
    ):
        with pytest.raises(Unprocessable) as refusal:
            chat.send(request(*content), found)
        assert [fault.pointer for fault in refusal.value.faults] == [place]
    sent = chat.send(asked, WATCH)
    (fault,) = sent.translated([Fault("/inputs/film", "invalid_input", "x")])
    assert fault.pointer == "/messages/0/content/1/video_url/url"


def test_inputs_that_are_bound_by_name_are_named() -> None:
    asked = request(text("a"), image(), text("b"))
    assert body(NAMED, asked)["inputs"] == {"question": "a\nb", "picture": PNG}
    with pytest.raises(Unprocessable) as found:
        chat.send(request(text("a"), image(), image()), NAMED)
    assert found.value.faults[0].pointer == "/messages/0/content/2/image_url/url"


def test_a_system_message_is_the_prompt_where_a_step_reads_that() -> None:
    system = [{"role": "system", "content": "be"}, {"role": "developer", "content": "brief"}]
    said = [*system, {"role": "user", "content": "x"}]
    assert body(OMNI, request(messages=said)) == {
        "inputs": {"parts": [{"type": "text", "text": "x"}]},
        "params": {"system_prompt": "be\nbrief"},
        "outputs": ["text"],
    }
    parts = [{"type": "text", "text": "be\nbrief"}, {"type": "text", "text": "x"}]
    assert body(BAGEL, request(messages=said))["inputs"] == {"parts": parts}
    thinking = body(BAGEL, request(messages=said, think=True))
    assert thinking["params"] == {"think": True, "system_prompt": "be\nbrief"}
    assert thinking["inputs"] == {"parts": parts[1:]}


@pytest.mark.parametrize("voice", ["ethan", "Ethan", {"id": "ethan"}])
def test_sound_is_asked_for_with_its_voice(voice: Any) -> None:
    asked = request(text("a"), modalities=["text", "audio"], audio={"voice": voice, "format": "mp3"})
    sent = chat.send(asked, OMNI)
    assert sent.bodies[0]["outputs"] == ["text", "audio"]
    assert sent.bodies[0]["params"] == {"speaker": "ethan"}
    assert sent.format == "mp3"
    (fault,) = sent.translated([Fault("/params/speaker", "bad_value", "x")])
    assert fault.pointer == "/audio/voice"


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"modalities": ["audio"], "audio": {"format": "wav"}}, "/modalities", "unsupported_value"),
        ({"modalities": ["text", "audio"]}, "/audio", "missing_required_parameter"),
        ({"modalities": ["text", "audio"], "audio": {"format": "aac"}}, "/audio/format", "unsupported_value"),
        ({"audio": {"format": "wav"}}, "/audio", "invalid_value"),
        ({"n": 2, "seed": 1, "max_tokens": 3, "max_completion_tokens": 4}, "/max_tokens", "invalid_value"),
        ({"tool_choice": "required"}, "/tool_choice", "unsupported_parameter"),
        ({"a/b~c": 1}, "/a~1b~0c", "unknown_parameter"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(Unprocessable) as found:
        chat.send(request(text("a"), **fields), OMNI)
    assert [(fault.pointer, fault.code) for fault in found.value.faults] == [(pointer, code)]


def test_a_penalty_that_the_task_has_is_its_own() -> None:
    params = {"presence_penalty": {"type": "number", "default": 0.0}}
    task = resolved("bagel", "image_to_text", params=params)
    assert body(task, request(text("a"), presence_penalty=0.5))["params"] == {"presence_penalty": 0.5}
    for fields in ({"temperature": 1.0}, {"max_tokens": 5}, {"max_completion_tokens": 5}):
        with pytest.raises(Unprocessable) as found:
            chat.send(request(text("a"), **fields), task)
        assert found.value.faults[0].code == "unsupported_parameter"


def test_choices_have_seeds_of_their_own() -> None:
    sent = chat.send(request(text("a"), n=3, seed=5), BAGEL)
    assert [one["params"]["seed"] for one in sent.bodies] == [5, 6, 7]
    assert all("seed" not in one["params"] for one in chat.send(request(text("a"), n=3), BAGEL).bodies)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/inputs/parts/0", "/messages/0/content/0/text"),
        ("/inputs/parts/1/data", "/messages/0/content/1/image_url/url"),
        ("/inputs/image", "/messages"),
        ("/params/max_tokens", "/max_completion_tokens"),
        ("/params/top_k", "/top_k"),
        ("/deadline", "/deadline"),
    ],
)
def test_faults_are_told_where_they_stand_in_the_request(inside: str, outside: str) -> None:
    sent = chat.send(request(text("a"), image(), max_completion_tokens=5), BAGEL)
    assert sent.translated([Fault(inside, "bad_value", "x")])[0].pointer == outside


# ── sounds ──────────────────────────────────────────────────────────────────────────────────────


def encoded(form: str) -> str:
    wave = (np.sin(np.arange(16000) / 20) * 9000).astype(np.int16)
    buffer = io.BytesIO()
    soundfile.write(buffer, wave, 16000, format=form)
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize("form", ["mp3", "flac"])
async def test_other_sounds_become_wav(form: str) -> None:
    asked = request(audio(encoded(form.upper()), form))
    await hearing.in_wav(asked)
    data = body(OMNI, asked)["inputs"]["parts"][0]["data"]
    heard = read(base64.b64decode(data))
    assert base64.b64decode(data)[:4] == b"RIFF"
    assert (heard.rate, heard.channels) == (16000, 1)
    assert abs(heard.seconds - 1) < 0.1
    assert abs(int(heard.samples.max()) - 9000) < 600


@pytest.mark.parametrize("data", ["!!!", "aGVsbG8=", base64.b64encode(b"fLaC" + bytes(40)).decode()])
async def test_what_is_no_sound_is_refused(data: str) -> None:
    with pytest.raises(Unprocessable) as found:
        await hearing.in_wav(request(text("a"), audio(data, "flac")))
    assert found.value.faults[0].pointer == "/messages/0/content/1/input_audio/data"


async def test_a_bomb_of_silence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, sounds in ((15_999, 1), (31_999, 2)):
        monkeypatch.setattr(hearing, "MAX_SAMPLES", most)
        with pytest.raises(Unprocessable, match="shorten") as found:
            await hearing.in_wav(request(*(audio(encoded("FLAC"), "flac") for _ in range(sounds))))
        assert found.value.faults[0].pointer == f"/messages/0/content/{sounds - 1}/input_audio/data"


# ── sampling ────────────────────────────────────────────────────────────────────────────────────

LLM = resolved("llm", "chat")


def test_fields_of_sampling_reach_a_task_that_has_them() -> None:
    asked = request(
        text("a"),
        logprobs=True,
        top_logprobs=3,
        logit_bias={"5": -100, "17": 2.5},
        stop=["x", "y"],
        frequency_penalty=0.5,
        min_p=0.1,
    )
    sent = chat.send(asked, LLM)
    (only,) = sent.bodies
    assert only["params"] == {"logprobs": True, "top_logprobs": 3, "frequency_penalty": 0.5, "min_p": 0.1}
    assert only["inputs"]["logit_bias"] == [[5, -100.0], [17, 2.5]]
    assert (only["stop"], only["outputs"], sent.logprobs) == (["x", "y"], ["text", "logprobs"], "logprobs")
    plain = chat.send(request(text("a"), logprobs=False, top_logprobs=0, logit_bias={}, stop=[]), LLM)
    assert plain.bodies == chat.send(request(text("a")), LLM).bodies
    assert plain.logprobs is None
    fault = Fault("/inputs/logit_bias/0", "bad_value", "x")
    assert sent.translated([fault]) == [Fault("/logit_bias", "bad_value", "x")]


@pytest.mark.parametrize(
    ("found", "fields", "pointer"),
    [
        (LLM, {"top_logprobs": 3}, "/top_logprobs"),
        (BAGEL, {"logprobs": True}, "/logprobs"),
        (BAGEL, {"logit_bias": {"1": 2}}, "/logit_bias"),
    ],
)
def test_fields_of_sampling_that_have_no_place_are_refused(
    found: serving.Resolved, fields: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Unprocessable) as refusal:
        chat.send(request(text("a"), **fields), found)
    assert [fault.pointer for fault in refusal.value.faults] == [pointer]


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {"a": 1}},
        {"logit_bias": {"1": 101}},
        {"logit_bias": {str(at): 0 for at in range(301)}},
        {"top_logprobs": 21},
        {"stop": ["a"] * 5},
    ],
)
def test_fields_of_sampling_are_bounded(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        request(text("a"), **fields)


# ── tools ───────────────────────────────────────────────────────────────────────────────────────

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def test_tools_stand_beside_the_turns() -> None:
    sent = chat.send(request(text("a"), tools=[TOOL], tool_choice="auto", parallel_tool_calls=True), LLM)
    (only,) = sent.bodies
    messages = only["inputs"]["messages"]
    assert (messages["tools"], len(messages["turns"])) == ([TOOL], 1)
    assert sent.tools == Tools([TOOL], {"look": {"type": "object"}})
    assert (sent.calls, sent.opening, "call" in messages) == ("tagged", "", False)
    fault = Fault("/inputs/messages/tools/0", "bad_value", "x")
    assert sent.translated([fault]) == [Fault("/tools", "bad_value", "x")]
    without = chat.send(request(text("a"), tools=[TOOL], tool_choice="none"), LLM)
    assert without.bodies == chat.send(request(text("a")), LLM).bodies
    assert without.calls is None


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("tools", "choice", "call", "opening"),
    [
        (("look",), named("look"), "look", '<tool_call>\n{"name": "look", "arguments":'),
        (("look", "go"), named("go"), "go", '<tool_call>\n{"name": "go", "arguments":'),
        (("look", "go"), "required", True, '<tool_call>\n{"name": "'),
        (("look",), "required", "look", '<tool_call>\n{"name": "look", "arguments":'),
    ],
)
def test_a_call_that_must_come_is_begun_for_the_model(
    tools: tuple[str, ...], choice: Any, call: str | bool, opening: str
) -> None:
    given = [{"type": "function", "function": {"name": name}} for name in tools]
    sent = chat.send(request(text("a"), tools=given, tool_choice=choice, parallel_tool_calls=False), LLM)
    assert sent.bodies[0]["inputs"]["messages"]["call"] == call
    assert sent.opening == opening
    assert sent.tools is not None
    assert (tuple(sent.tools.schemas), sent.tools.single) == (tools, True)
    fault = Fault("/inputs/messages/call", "bad_value", "x")
    assert sent.translated([fault]) == [Fault("/tool_choice", "bad_value", "x")]


@pytest.mark.parametrize(
    ("found", "fields", "pointer"),
    [
        (LLM, {"tool_choice": "required"}, "/tool_choice"),
        (LLM, {"tools": [TOOL], "tool_choice": "always"}, "/tool_choice"),
        (LLM, {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "/tool_choice"),
        (LLM, {"tools": [TOOL], "tool_choice": named("other")}, "/tool_choice/function/name"),
        (LLM, {"tools": [TOOL], "parallel_tool_calls": 1}, "/parallel_tool_calls"),
        (LLM, {"parallel_tool_calls": False}, "/parallel_tool_calls"),
        (BAGEL, {"tools": [TOOL], "tool_choice": "required"}, "/tools"),
        (BAGEL, {"tools": [TOOL]}, "/tools"),
    ],
)
def test_choices_of_tools_that_cannot_be_kept_are_refused(
    found: serving.Resolved, fields: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Unprocessable) as refusal:
        chat.send(request(text("a"), **fields), found)
    assert [fault.pointer for fault in refusal.value.faults] == [pointer]
