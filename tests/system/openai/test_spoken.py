"""A task that answers in text and sound: through the official client, and one question over every other surface."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import numpy as np
import openai
import pytest
import soundfile
from PIL import Image
from websockets.sync.client import connect

from tests.support.listening import heard
from tests.support.serving import Service
from tests.support.yardstick import patience
from tests.system.openai.conftest import qwen3_omni
from tests.system.openai.test_realtime import until
from walkgraph.client import AsyncClient, Sound

pytestmark = pytest.mark.filterwarnings(
    # The official client that blocks opens its sockets in a way that websockets 17 advises against.
    r"ignore:connect\(\) must be used as a context manager:DeprecationWarning"
)

NAME = "qwen3_omni"
ASKED: dict[str, Any] = {
    "model": NAME,
    "max_tokens": 4,
    "temperature": 0.0,
    "seed": 3,
    "extra_body": {"max_frames": 6, "context": 512, "speech_temperature": 0.0, "code_temperature": 0.0},
}
SPOKEN: dict[str, Any] = {**ASKED, "modalities": ["text", "audio"]}


PARAMS: dict[str, Any] = {"max_tokens": 4, "temperature": 0.0, "seed": 3, **ASKED["extra_body"]}
TONE = np.sin(np.arange(8000) / 9).astype(np.float32) / 2
RATE = 16_000


def media() -> list[Any]:
    """A sound in MP3 between a text and a picture."""
    sound, picture = io.BytesIO(), io.BytesIO()
    soundfile.write(sound, TONE, RATE, format="MP3")
    Image.new("RGB", (64, 64), "red").save(picture, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"
    given = {"data": base64.b64encode(sound.getvalue()).decode(), "format": "mp3"}
    return [
        {"type": "text", "text": "what?"},
        {"type": "input_audio", "input_audio": given},
        {"type": "image_url", "image_url": {"url": url}},
    ]


@pytest.fixture(scope="module")
def omni(running: Service, client: openai.OpenAI) -> openai.OpenAI:
    with running.client() as native:
        native.deploy(qwen3_omni(), name=NAME)
    running.wait_ready(NAME)
    return client


def test_an_answer_is_text_and_sound_whole_or_streamed(omni: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": media()}]
    whole = omni.chat.completions.create(messages=messages, audio={"voice": "chelsie", "format": "wav"}, **SPOKEN)
    answer = whole.choices[0].message.audio
    assert answer is not None
    samples, rate = heard(base64.b64decode(answer.data))
    assert (rate, samples.shape[1]) == (24000, 1)
    assert len(samples) > 0
    chunks = list(
        omni.chat.completions.create(
            messages=messages, audio={"voice": "chelsie", "format": "pcm16"}, stream=True, **SPOKEN
        )
    )
    told: list[Any] = [one.delta.audio for chunk in chunks for one in chunk.choices if one.delta.audio]
    assert "".join(one.transcript or "" for one in told) == answer.transcript
    streamed = np.frombuffer(b"".join(base64.b64decode(one.data or "") for one in told), "<i2")
    assert np.array_equal(streamed, samples[:, 0])
    plain = omni.chat.completions.create(messages=messages, **ASKED)
    assert (plain.choices[0].message.content, plain.choices[0].message.audio) == (answer.transcript, None)


def test_an_answer_in_sound_goes_back_into_the_conversation(omni: openai.OpenAI) -> None:
    how = {**SPOKEN, "audio": {"voice": "Ethan", "format": "wav"}}
    messages: list[Any] = [{"role": "user", "content": media()}]
    first = omni.chat.completions.create(messages=messages, **how).choices[0].message
    messages += [first, {"role": "user", "content": "and now?"}]
    assert omni.chat.completions.create(messages=messages, **how).choices[0].message.audio is not None


def test_an_unknown_voice_is_refused_at_its_place(omni: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        omni.chat.completions.create(
            messages=[{"role": "user", "content": "a"}], audio={"voice": "nobody", "format": "wav"}, **SPOKEN
        )
    assert refusal.value.param == "audio.voice"


# ── other surfaces ──


class Said(NamedTuple):
    text: str
    samples: np.ndarray[Any, Any]


def wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, TONE, RATE, "PCM_16", format="WAV")
    return file.getvalue()


def question() -> dict[str, Any]:
    audio = {"type": "audio", "data": base64.b64encode(wav()).decode()}
    return {"inputs": {"audio": audio}, "params": PARAMS}


def joined(values: list[tuple[str, dict[str, Any]]]) -> Said:
    """Values as JSON, with the names of their outputs."""
    pieces = [base64.b64decode(one["data"]) for name, one in values if name == "audio"]
    text = "".join(one["text"] for name, one in values if name == "text")
    return Said(text, np.concatenate([heard(piece)[0][:, 0] for piece in pieces]))


def same(said: Said, wanted: Said) -> None:
    assert said.text == wanted.text
    assert np.array_equal(said.samples, wanted.samples)


@pytest.fixture(scope="module")
def http(running: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {running.token}"}
    found = httpx.Client(base_url=running.told["url"], headers=headers, timeout=patience(600), trust_env=False)
    with found:
        yield found


@pytest.fixture(scope="module")
def wanted(omni: openai.OpenAI, http: httpx.Client) -> Said:
    answer = http.post(f"/v1/tasks/{NAME}/chat", json=question())
    assert answer.status_code == 200, answer.text
    said = joined([(name, one) for name, ones in answer.json()["outputs"].items() for one in ones])
    assert len(said.samples) > 0
    return said


def test_events_bring_tokens_and_sound_as_they_are_made(http: httpx.Client, wanted: Said) -> None:
    values: list[tuple[str, dict[str, Any]]] = []
    with http.stream("POST", f"/v1/tasks/{NAME}/chat", json={**question(), "stream": True}) as answer:
        told = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    values = [(one["name"], one["value"]) for one in told if "value" in one]
    assert sum(name == "text" for name, _ in values) == PARAMS["max_tokens"]
    assert sum(name == "audio" for name, _ in values) > 1
    same(joined(values), wanted)


def test_frames_of_a_socket_bring_the_same(running: Service, wanted: Said) -> None:
    where = running.told["url"].replace("http", "ws", 1) + f"/ws/v1/tasks/{NAME}/chat?frames=binary"
    pieces: list[bytes] = []
    text = ""
    with connect(
        where, additional_headers={"Authorization": f"Bearer {running.token}"}, max_size=None, proxy=None
    ) as socket:
        asked = {"frames": 1, "inputs": {"audio": {"type": "audio", "frame": 0}}, "params": PARAMS}
        socket.send(json.dumps(asked))
        socket.send(wav())
        while (told := json.loads(socket.recv()))["event"] not in ("done", "error"):
            frames = [socket.recv() for _ in range(told.get("frames", 0))]
            pieces += [bytes(one) for one in frames if isinstance(one, bytes)]
            text += told["value"].get("text", "") if told["event"] == "output" else ""
    assert told["event"] == "done"
    same(Said(text, np.concatenate([heard(piece)[0][:, 0] for piece in pieces])), wanted)


def test_kserve_gives_the_same(http: httpx.Client, wanted: Said) -> None:
    data = [base64.b64encode(wav()).decode()]
    asked = {"inputs": [{"name": "audio", "datatype": "BYTES", "shape": [1], "data": data}], "parameters": PARAMS}
    answer = http.post(f"/v2/models/{NAME}/versions/chat/infer", json=asked).json()
    found = {one["name"]: one["data"][0] for one in answer["outputs"]}
    samples, _ = heard(base64.b64decode(found["audio"]))
    same(Said(found["text"], samples[:, 0]), wanted)


def test_both_clients_of_python_give_the_same(running: Service, wanted: Said) -> None:
    sound = Sound(wav(), "audio/wav")

    async def waiting() -> list[str]:
        async with AsyncClient(running.told["url"], running.token) as client:
            chat = await client.task(NAME, "chat")
            async with chat.stream(audio=sound, **PARAMS) as outputs:
                return [output.name async for output in outputs]

    with running.client() as client:
        result = client.task(NAME, "chat")(audio=sound, **PARAMS)
        samples, _ = heard(result.sound().data)
        same(Said(result.text(), samples[:, 0]), wanted)
    assert {"text", "audio"} == set(asyncio.run(waiting()))


def test_a_spoken_turn_is_answered_after_one_that_was_interrupted(omni: openai.OpenAI) -> None:
    half = (np.repeat(TONE, 3)[:12000] * 32767).astype("<i2").tobytes()
    long: Any = {"seed": 5, "max_output_tokens": 400}
    short: Any = {"seed": 5, "max_output_tokens": 4}
    with omni.realtime.connect(model=f"{NAME}/converse") as connection:
        until(connection, "session.created")
        for response, cancelled in ((long, True), (short, False)):
            connection.input_audio_buffer.append(audio=base64.b64encode(half).decode())
            connection.input_audio_buffer.commit()
            connection.response.create(response=response)
            if cancelled:
                until(connection, "response.output_audio.delta")
                connection.response.cancel()
            events = until(connection, "response.done")
            assert (events[-1].response.status == "cancelled") is cancelled
        [item] = events[-1].response.output
        details = events[-1].response.usage.output_token_details
        assert events[-1].response.status_details.finish_reasons["text"] == "bound"
        assert details.text_tokens == 4
        kinds = {event.type for event in events}
    assert {"response.output_audio.delta", "response.output_audio_transcript.delta"} <= kinds
    assert item.content[0].type == "output_audio"


# ── a text that is given ──

READ = "A heron stands."
ALOUD: dict[str, Any] = {"max_frames": 20, "speech_temperature": 0.0, "code_temperature": 0.0, "seed": 3}


def test_a_given_text_is_said_in_every_format(omni: openai.OpenAI, http: httpx.Client) -> None:
    params = {**ALOUD, "speaker": "aiden", "instructions": "Sadly."}
    native = http.post(f"/v1/tasks/{NAME}/say", json={"inputs": {"text": READ}, "params": params}).json()
    said = heard(base64.b64decode(native["outputs"]["audio"][0]["data"]))[0][:, 0]
    assert len(said) > 0
    for form in ("pcm", "wav", "flac", "mp3", "opus"):
        found = omni.audio.speech.create(
            model=NAME, voice="Aiden", input=READ, response_format=form, instructions="Sadly.", extra_body=ALOUD
        )
        assert found.response.headers["x-audio-rate"] == "24000"
        if form == "pcm":
            assert np.array_equal(np.frombuffer(found.content, "<i2"), said)
        else:
            samples, rate = heard(found.content)
            assert rate == 24000
            assert len(said) <= len(samples) <= len(said) + 4 * 1152
            if form in ("wav", "flac"):
                assert np.array_equal(samples[:, 0], said)


def test_what_cant_be_said_is_told_at_its_place(omni: openai.OpenAI) -> None:
    refused: list[tuple[dict[str, Any], str | None, str]] = [
        ({"voice": "nobody"}, "voice", "`chelsie`, `ethan`, `aiden`"),
        ({"extra_body": {**ALOUD, "max_frames": 3}}, None, "raise `max_frames`"),
        ({"instructions": "Sadly. " * 100}, None, "raise `context`"),
    ]
    for changes, param, words in refused:
        with pytest.raises(openai.BadRequestError, match=words) as told:
            omni.audio.speech.create(**{"model": NAME, "voice": "ethan", "input": READ, "extra_body": ALOUD, **changes})
        assert told.value.param == param
