"""OpenAI's request for speech as a task's, and its sound as an answer that says when some of it is missing."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import numpy as np
import pytest
import soundfile
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from tests.unit.service.conftest import Running
from walkgraph import resources
from walkgraph.errors import ErrorInfo, InvalidInput, RunFailed
from walkgraph.graph import codec
from walkgraph.ids import RunId
from walkgraph.service.http.dialects import Fault
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai import serving, speech
from walkgraph.service.openai.serving import Serving
from walkgraph.service.openai.speech import SpeechRequest
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.tasks import read_request
from walkgraph.wire import messages as m

RUN = RunId("a" * 32)


def serving_of(graph: str, task: str) -> Serving:
    return serving.servings(codec.load(resources.bundled("graphs")[graph].read_bytes()))[task]


SPEAK = serving_of("orpheus", "speak")
TALK = serving_of("qwen3_omni", "chat")


def body(found: Serving = SPEAK, **fields: Any) -> dict[str, Any]:
    made = speech.task_body(SpeechRequest.model_validate({"model": "voice", "input": "Hello", **fields}), found)
    read_request(RUN, found.name, found.task, made, 60.0)
    return made


def wav(count: int, rate: int = 24000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.arange(count, dtype=np.int16), rate, format="WAV")
    return buffer.getvalue()


# ── the request ─────────────────────────────────────────────────────────────────────────────────


def test_a_request_becomes_one_that_the_task_takes() -> None:
    assert body() == {"inputs": {"text": "Hello"}, "params": {}, "outputs": ["audio"]}
    asked = body(voice={"id": "leo"}, temperature=0.5, seed=3, response_format="opus", speed=1)
    assert asked["params"] == {"voice": "leo", "temperature": 0.5, "seed": 3}
    assert body(voice=None)["params"] == {}


def test_a_speaker_and_a_system_prompt_are_called_voice_and_instructions() -> None:
    assert speech.voice_param(TALK, "aiden", "/voice") == {"speaker": "aiden"}
    assert speech.voice_param(TALK, "Aiden", "/voice") == {"speaker": "aiden"}
    asked = SpeechRequest.model_validate({"model": "x", "input": "Hi", "voice": "aiden", "instructions": "Be glad."})
    made = speech.task_body(asked, TALK)
    assert made["params"] == {"speaker": "aiden", "system_prompt": "Be glad."}
    assert made["outputs"] == ["audio"]


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"response_format": "aac"}, "/response_format", "`wav`, `pcm`, `flac`, `mp3`, `opus`"),
        ({"speed": 1.5}, "/speed", "1.0"),
        ({"voice": "alloy"}, "/voice", "`tara`, `leah`"),
        ({"instructions": "sadly"}, "/instructions", "takes no instructions"),
    ],
)
def test_what_a_task_has_not_is_refused(fields: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(Unprocessable) as refused:
        body(**fields)
    assert [fault.pointer for fault in refused.value.faults] == [pointer]
    assert words in str(refused.value)


def test_a_task_of_one_voice_says_so() -> None:
    mute = Serving("speak", SPEAK.task.model_copy(update={"params": {}}), SPEAK.outputs)
    with pytest.raises(InvalidInput, match="one voice"):
        speech.voice_param(mute, "tara", "/voice")


def test_faults_of_the_task_are_told_at_openais_fields() -> None:
    faults = [Fault(at, "bad_value", "x") for at in ("/inputs/text", "/params/voice", "/params/top_p", "/inputs")]
    told = speech.in_openai_terms(Unprocessable("x", faults), SPEAK)
    assert isinstance(told, Unprocessable)
    assert [fault.pointer for fault in told.faults] == ["/input", "/voice", "/top_p", "/inputs"]
    other = RunFailed(ErrorInfo(code="node_error", message="x"))
    assert speech.in_openai_terms(other, SPEAK) is other


@pytest.mark.parametrize("voice", [{"id": "x", "name": "y"}, {"id": 3}, {"id": ""}, [], 7, "x" * 257])
def test_voices_of_another_form_are_refused(voice: Any) -> None:
    with pytest.raises(ValidationError):
        SpeechRequest.model_validate({"model": "voice", "input": "Hello", "voice": voice})


# ── the answer ──────────────────────────────────────────────────────────────────────────────────


class Client:
    """Sends one request by ASGI and keeps what it is answered."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.got: list[dict[str, Any]] = []
        self.some = asyncio.Event()

    def request(self) -> Request:
        return Request(self.scope, self.inbox.get)

    @property
    def scope(self) -> dict[str, Any]:
        return {"type": "http", "method": "POST", "path": "/v1/audio/speech", "headers": [], "state": {}}

    async def take(self, answer: Response) -> None:
        async def send(message: Any) -> None:
            self.got.append(message)
            self.some.set()

        await answer(self.scope, self.inbox.get, send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got[1:])

    @property
    def whole(self) -> bool:
        return self.got[-1].get("more_body") is False


class Talker:
    """A run that says what it is told to."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        submit = m.Submit(run=RUN, task="speak", params={}, inputs={})
        self.run = LiveRun(submit, "voice", self.sent.append)
        self.run.take(m.Accepted(run=RUN, seed=1))

    def say(self, data: bytes) -> None:
        self.run.take(m.Output(run=RUN, name="audio", index=0, value=m.Blob(data=data), modality="audio"))

    def end(self, error: ErrorInfo | None = None) -> None:
        loops = (m.LoopEnd(walk="decode", loop="tokens", iterations=69, reason="stop"),)
        self.run.take(m.Finished(run=RUN, error=error, loops=loops, read=21))

    @property
    def aborts(self) -> int:
        return sum(isinstance(message, m.Abort) for message in self.sent)


LOST = ErrorInfo(code="worker_lost", message="a worker is gone; try again", retryable=True)


async def test_bytes_leave_as_they_are_made() -> None:
    talker, client = Talker(), Client()
    talker.say(wav(100))
    answer = await speech.answer(client.request(), talker.run, SPEAK, "pcm", events=False)
    taking = asyncio.create_task(client.take(answer))
    while len(client.got) < 2:
        client.some.clear()
        await client.some.wait()
    assert client.body == np.arange(100, dtype="<i2").tobytes()
    talker.say(wav(50))
    talker.end()
    await taking
    assert client.whole
    assert len(client.body) == 300
    assert dict(client.got[0]["headers"])[b"x-audio-rate"] == b"24000"
    assert talker.aborts == 0


async def test_what_goes_wrong_before_the_first_byte_is_raised() -> None:
    for data, error in ((None, LOST), (b"no sound", None), (None, None)):
        talker, client = Talker(), Client()
        if data:
            talker.say(data)
        talker.end(error)
        with pytest.raises(RunFailed) as failed:
            await speech.answer(client.request(), talker.run, SPEAK, "mp3", events=False)
        assert failed.value.error.code == ("worker_lost" if error else "node_error")


async def test_a_format_that_cannot_hold_the_sound_is_refused() -> None:
    talker, client = Talker(), Client()
    talker.say(wav(2000, 44100))
    with pytest.raises(InvalidInput, match="44100 samples a second"):
        await speech.answer(client.request(), talker.run, SPEAK, "opus", events=False)
    assert talker.aborts == 1


@pytest.mark.parametrize("end", ["error", "sound"])
async def test_what_goes_wrong_later_leaves_the_bytes_without_an_end(end: str) -> None:
    talker, client = Talker(), Client()
    talker.say(wav(100))
    answer = await speech.answer(client.request(), talker.run, SPEAK, "wav", events=False)
    if end == "error":
        talker.end(LOST)
    else:
        talker.say(wav(100, 16000))
    await client.take(answer)
    assert not client.whole
    assert client.got[0]["status"] == 200
    assert talker.aborts == (end == "sound")


async def test_what_goes_wrong_later_is_an_event_of_a_stream() -> None:
    talker, client = Talker(), Client()
    talker.say(wav(100))
    answer = await speech.answer(client.request(), talker.run, SPEAK, "pcm", events=True)
    talker.end(LOST)
    await client.take(answer)
    first, last = [json.loads(line[6:]) for line in client.body.decode().split("\n\n") if line]
    assert client.whole
    assert first["type"] == "speech.audio.delta"
    assert last == {
        "type": "error",
        "error": {"message": LOST.message, "type": "server_error", "param": None, "code": "worker_lost"},
    }


async def test_a_stream_ends_with_its_counts() -> None:
    talker, client = Talker(), Client()
    talker.say(wav(100))
    talker.end()
    await client.take(await speech.answer(client.request(), talker.run, SPEAK, "pcm", events=True))
    last = json.loads(client.body.decode().split("\n\n")[-2][6:])
    # The loop's 69, and the one that came before it.
    usage = {"input_tokens": 21, "output_tokens": 70, "total_tokens": 91}
    assert last == {"type": "speech.audio.done", "usage": usage}


async def test_a_client_that_leaves_before_the_first_byte_ends_the_run() -> None:
    talker, client = Talker(), Client()
    await client.inbox.put({"type": "http.disconnect"})
    answer = await speech.answer(client.request(), talker.run, SPEAK, "pcm", events=False)
    assert answer.status_code == 499
    assert talker.aborts == 1


async def test_a_client_that_leaves_later_ends_the_run() -> None:
    talker, client = Talker(), Client()
    talker.say(wav(100))
    answer = await speech.answer(client.request(), talker.run, SPEAK, "pcm", events=False)
    await client.inbox.put({"type": "http.disconnect"})
    async with asyncio.timeout(60):
        await client.take(answer)
    assert talker.aborts == 1


# ── the route ───────────────────────────────────────────────────────────────────────────────────


async def test_errors_are_openais(service: Running) -> None:
    await service.deploy()
    answer = await service.http.post("/v1/audio/speech", json={"model": "shapes", "input": "Hi"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_route"
    for fields in ({"input": "Hi"}, {"model": "shapes"}, {"model": "shapes", "input": 3}):
        answer = await service.http.post("/v1/audio/speech", json=fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_the_schema_says_what_is_taken() -> None:
    found = SpeechRequest.model_json_schema()["properties"]
    assert found["response_format"]["enum"] == ["wav", "pcm", "flac", "mp3", "opus"]
    assert {one["type"] for one in found["voice"]["anyOf"]} == {"string", "object", "null"}
