"""Speech through the official client: the decoded answer is the requested sound."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt
import openai
import pytest

from tests.support.listening import heard
from tests.support.serving import Service
from tests.support.yardstick import patience
from tests.system.openai.conftest import CIRCLES

TEXT = "A heron stands in the river."
ASKED = {"seed": 3, "max_tokens": 49}
EXACT = ("pcm", "wav", "flac")
KINDS = {
    "pcm": "audio/pcm",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
}
Samples = npt.NDArray[np.int16]


def native(running: Service, voice: str = "tara", **params: Any) -> Samples:
    """The task's own samples: [frames, 1]."""
    with running.client() as client:
        body = {"inputs": {"text": TEXT}, "params": {**ASKED, "voice": voice, **params}}
        result = client.run("orpheus", "speak", body)
    return heard(base64.b64decode(result["outputs"]["audio"][0]["data"]))[0]


@pytest.fixture(scope="module")
def spoken(running: Service) -> Samples:
    return native(running)


def decoded(data: bytes, form: str) -> Samples:
    if form == "pcm":
        return np.frombuffer(data, "<i2").reshape(-1, 1)
    samples, rate = heard(data)
    assert rate == 24000
    return samples


def loudness(samples: Samples) -> list[float]:
    """The loudness of every tenth of a second."""
    whole = samples[: len(samples) // 2400 * 2400, 0].astype(float).reshape(-1, 2400)
    return np.sqrt((whole**2).mean(axis=1)).tolist()


def ask(client: openai.OpenAI, **changes: Any) -> Any:
    fields: dict[str, Any] = {"model": "orpheus", "input": TEXT, "voice": "tara", "extra_body": ASKED, **changes}
    return client.audio.speech.create(**fields)


GOOD: dict[str, dict[str, Any]] = {
    **{f"as {form}": {"response_format": form} for form in KINDS},
    "as OpenAI's default": {},
    "the task by its name": {"model": "orpheus/speak", "response_format": "pcm"},
    "a voice as an object": {"voice": {"id": "tara"}, "response_format": "pcm"},
    "the speed that there is": {"speed": 1.0, "response_format": "pcm"},
    "a stream's format": {"stream_format": "audio", "response_format": "wav"},
    "parameters of the task": {"extra_body": {**ASKED, "temperature": 0.6, "top_p": 0.8}, "response_format": "flac"},
    "no voice": {"voice": openai.omit, "response_format": "pcm"},
}


@pytest.mark.parametrize("row", GOOD)
def test_what_is_said_is_what_the_task_says(row: str, client: openai.OpenAI, spoken: Samples) -> None:
    answer = ask(client, **GOOD[row])
    form = GOOD[row].get("response_format", "mp3")
    assert answer.response.headers["content-type"] == KINDS[form]
    assert answer.response.headers["x-audio-rate"] == "24000"
    assert len(answer.response.headers["x-request-id"]) == 32
    got = decoded(answer.content, form)
    if form in EXACT:
        assert np.array_equal(got, spoken)
        return
    late = 1105 if form == "mp3" else 0
    assert len(spoken) <= len(got) - late <= len(spoken) + 2 * 1152
    assert np.allclose(loudness(got[late : late + len(spoken)])[1:], loudness(spoken)[1:], rtol=0.5, atol=300)


def test_voices_and_seeds_differ(running: Service, client: openai.OpenAI, spoken: Samples) -> None:
    leo = decoded(ask(client, response_format="pcm", voice="leo").content, "pcm")
    assert np.array_equal(leo, native(running, voice="leo"))
    assert not np.array_equal(leo, spoken)
    other = decoded(ask(client, response_format="pcm", extra_body={**ASKED, "seed": 4}).content, "pcm")
    assert not np.array_equal(other, spoken)


BAD: dict[str, tuple[dict[str, Any], tuple[int, str | None, str, str]]] = {
    "AAC": (
        {"response_format": "aac"},
        (400, "response_format", "invalid_value", "`wav`, `pcm`, `flac`, `mp3`, `opus`"),
    ),
    "no format": ({"response_format": "ogg"}, (400, "response_format", "invalid_value", "there are `wav`")),
    "OpenAI's voice": ({"voice": "alloy"}, (400, "voice", "invalid_value", "`tara`, `leah`, `jess`")),
    "no voice": ({"voice": {"id": ""}}, (400, "voice", "invalid_value", "too short")),
    "a voice of another form": ({"voice": {"name": "leo"}}, (400, "voice", "invalid_type", "a string")),
    "faster": ({"speed": 2.0}, (400, "speed", "invalid_value", "speed 1.0")),
    "much faster": ({"speed": 9.0}, (400, "speed", "invalid_value", "at most 4.0")),
    "instructions": ({"instructions": "sadly"}, (400, "instructions", "invalid_value", "takes no instructions")),
    "nothing": ({"input": ""}, (400, "input", "invalid_value", "too short")),
    "another stream": ({"stream_format": "chunks"}, (400, "stream_format", "invalid_value", "not one of the allowed")),
    "too hot": ({"extra_body": {"temperature": 9}}, (400, "temperature", "invalid_value", "2 or less")),
    "no parameter": ({"extra_body": {"tempo": 2}}, (400, "tempo", "unknown_parameter", "not known")),
    "no deployment": ({"model": "tts-1"}, (404, "model", "model_not_found", "there are: ")),
    "no task": ({"model": "orpheus/sing"}, (404, "model", "model_not_found", "`orpheus/speak`")),
    "a painter": ({"model": "shapes"}, (400, "model", "unsupported_route", "does not serve audio.speech")),
}


@pytest.mark.parametrize("row", BAD)
def test_what_is_wrong_is_named(row: str, client: openai.OpenAI) -> None:
    changes, (status, param, code, words) = BAD[row]
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, **changes)
    error = refused.value
    assert (error.status_code, error.param, error.code, error.type) == (status, param, code, "invalid_request_error")
    assert words in error.message
    assert error.response.headers["x-should-retry"] == "false"


def test_a_wrong_key_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        ask(client.with_options(api_key="sk-wrong"))


@pytest.mark.parametrize("form", ["pcm", "mp3"])
def test_events_hold_the_sound_and_end_with_the_counts(form: str, client: openai.OpenAI, spoken: Samples) -> None:
    answer = ask(client, stream_format="sse", response_format=form)
    assert answer.response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.content.decode().split("\n\n") if line]
    assert [event["type"] for event in events[-2:]] == ["speech.audio.delta", "speech.audio.done"]
    data = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert len(events) > 4
    if form == "pcm":
        assert np.array_equal(decoded(data, form), spoken)
    usage = events[-1]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens"] > len(TEXT.split())
    assert 40 <= usage["output_tokens"] <= 49


async def test_sound_comes_while_it_is_made(aio: openai.AsyncOpenAI) -> None:
    pieces: list[bytes] = []
    speech = aio.audio.speech.with_streaming_response
    async with speech.create(
        model="orpheus", input=TEXT, voice="zoe", response_format="pcm", extra_body=ASKED
    ) as answer:
        async for piece in answer.iter_bytes():
            pieces.append(piece)
    assert len(pieces) >= 2
    assert sum(map(len, pieces)) % 2 == 0


def test_a_client_that_leaves_ends_its_run(running: Service, client: openai.OpenAI) -> None:
    speech = client.audio.speech.with_streaming_response
    extra = {"max_tokens": 8000, **CIRCLES}
    with speech.create(model="orpheus", input=TEXT, voice="mia", response_format="wav", extra_body=extra) as answer:
        assert next(answer.iter_bytes())[:4] == b"RIFF"
        run = answer.headers["x-request-id"]
    with running.client() as native_client:
        deadline = time.monotonic() + patience(5)
        found: dict[str, Any] = {"state": "running"}
        while found["state"] == "running" and time.monotonic() < deadline:
            found = next(row for row in native_client.runs("orpheus") if row["id"] == run)
    assert found["state"] == "cancelled"


def test_a_request_that_is_sent_again_is_answered_by_the_first_run(client: openai.OpenAI, spoken: Samples) -> None:
    again = {"extra_headers": {"Idempotency-Key": "heron-1"}, "response_format": "pcm"}
    first, second = ask(client, **again), ask(client, **again)
    assert first.response.headers["x-request-id"] == second.response.headers["x-request-id"]
    assert first.content == second.content == spoken.astype("<i2").tobytes()
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **{**again, "response_format": "mp3"})
    assert refused.value.code == "idempotency_conflict"


def test_a_run_that_is_cancelled_on_the_way_leaves_its_answer_without_an_end(
    running: Service, client: openai.OpenAI
) -> None:
    """In bytes as a connection that breaks, in events as an error."""
    speech = client.audio.speech.with_streaming_response
    fields: dict[str, Any] = {"model": "orpheus", "input": TEXT, "voice": "mia", "response_format": "pcm"}
    fields["extra_body"] = {"max_tokens": 8000, **CIRCLES}
    with running.client() as native_client:
        with speech.create(**fields) as answer:
            pieces = answer.iter_bytes()
            next(pieces)
            native_client.cancel(answer.headers["x-request-id"])
            with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
                list(pieces)
        with speech.create(**fields, stream_format="sse") as answer:
            lines = answer.iter_lines()
            next(lines)
            native_client.cancel(answer.headers["x-request-id"])
            events = [json.loads(line[6:]) for line in lines if line]
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["code"] == "cancelled"
