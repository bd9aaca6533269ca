"""Answers of chats, whole and streamed, from what runs say; and the route with deployments that answer at once."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.errors import ErrorInfo, RunFailed
from walkgraph.ids import RunId
from walkgraph.service.openai import replies
from walkgraph.service.openai.chat import Sent
from walkgraph.service.openai.serving import Output
from walkgraph.service.openai.tool_choice import Tools
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values.sound import Sound, read, written
from walkgraph.service.values.stops import Cut
from walkgraph.settings import Settings
from walkgraph.wire import messages as m

TEXT = Output("text", "text", True, frozenset({("decode", "tokens")}))
AUDIO = Output("audio", "audio", False, frozenset())
CHAT = "/v1/chat/completions"
PNG = "data:image/png;base64,iVBORw0KGgo="


def sent(*, audio: str = "", logprobs: str | None = None) -> Sent:
    return Sent([{}], TEXT, AUDIO if audio else None, audio, logprobs)


def live(name: str = "r", *stops: str, send: Callable[[Any], None] = lambda _: None) -> LiveRun:
    run = LiveRun(m.Submit(run=RunId(name), task="t", params={}, inputs={}), "d", send)
    run.cut = Cut("text", stops) if stops else None
    return run


def say(run: LiveRun, *texts: str) -> None:
    at = len(run.outputs)
    for i, text in enumerate(texts):
        value = m.Small(value=text)
        run.take(m.Output(run=run.id, name="text", index=at + i, value=value, iteration=(at + i,), modality="text"))


def end(run: LiveRun, iterations: int, *, stopped: bool = True, walk: str = "decode") -> None:
    loop = m.LoopEnd(walk=walk, loop="tokens", iterations=iterations, reason="stop" if stopped else "bound")
    run.take(m.Finished(run=run.id, loops=(loop,), read=9, found=4))


async def deltas(*runs: LiveRun, sent: Sent, with_usage: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    told = [event async for event in replies.Chunks(runs, sent, "m", with_usage=with_usage).events()]
    assert all(event.endswith(b"\n\n") for event in told)
    *lines, last, nothing = b"".join(told).split(b"\n\n")
    assert (last + b"\n\n", nothing) == (replies.DONE, b"")
    for line in lines:
        assert line.startswith(b"data: ")
        found.append(json.loads(line[6:]))
    return found


@pytest.mark.parametrize(
    ("stopped", "walk", "finish", "made"),
    [(True, "decode", "stop", 7), (False, "decode", "length", 7), (False, "other", "stop", 2)],
)
async def test_loops_say_how_it_ended(stopped: bool, walk: str, finish: str, made: int) -> None:
    run = live()
    say(run, "a", "b")
    end(run, 7, stopped=stopped, walk=walk)
    answer = await replies.completion([run], sent(), "m")
    assert answer["choices"][0]["finish_reason"] == finish
    assert answer["choices"][0]["message"]["content"] == "ab"
    assert answer["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": made,
        "total_tokens": 9 + made,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


async def test_a_text_before_a_loop_counts_though_its_character_is_incomplete() -> None:
    run = live()
    for index, (text, iteration) in enumerate([("", ()), ("é", (0,)), ("a", (1,))]):
        value = m.Small(value=text)
        run.take(m.Output(run=run.id, name="text", index=index, value=value, iteration=iteration, modality="text"))
    end(run, 2, stopped=False)
    answer = await replies.completion([run], sent(), "m")
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (3, "length")


async def test_a_limit_can_leave_a_loop_no_iteration() -> None:
    run = live()
    run.take(m.Output(run=run.id, name="text", index=0, value=m.Small(value="a"), modality="text"))
    run.take(m.Finished(run=run.id, read=9))
    answer = await replies.completion([run], sent(), "m")
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (1, "length")


@pytest.mark.parametrize("seed", range(30))
async def test_a_stream_tells_what_the_whole_does(seed: int) -> None:
    draw = random.Random(seed)
    stops = tuple("".join(draw.choice("ab") for _ in range(draw.randrange(1, 4))) for _ in range(draw.randrange(3)))
    runs = [live(f"r{i}", *stops) for i in range(draw.randrange(1, 4))]
    for run in runs:
        say(run, *("".join(draw.choice("abc") for _ in range(draw.randrange(4))) for _ in range(draw.randrange(9))))
        end(run, len(run.outputs), stopped=draw.random() < 0.5)
    whole = await replies.completion(runs, sent(), "m")
    chunks = await deltas(*runs, sent=sent(), with_usage=True)
    assert chunks[-1]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(c["delta"].get("content", "") for c in mine) == choice["message"]["content"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]


async def test_a_stop_ends_the_run_and_counts_what_was_made() -> None:
    asked: asyncio.Queue[Any] = asyncio.Queue()
    run = live("r", "END", send=asked.put_nowait)
    answer = asyncio.ensure_future(replies.completion([run], sent(), "m"))
    say(run, "one ", "E", "ND two", "three")
    assert await asked.get() == m.Abort(run=run.id)
    run.take(m.Finished(run=run.id, error=ErrorInfo(code="cancelled", message="cancelled"), read=9))
    found = await answer
    assert found["choices"][0]["message"]["content"] == "one "
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] == 3
    assert run.sufficed


def score(run: LiveRun, *tokens: str) -> None:
    for i, token in enumerate(tokens):
        line = {"token": token, "logprob": -i / 2, "bytes": list(token.encode()), "top_logprobs": []}
        value = m.Small(value=json.dumps(line) + "\n")
        run.take(m.Output(run=run.id, name="logprobs", index=i, value=value, iteration=(i,), modality="text"))


async def test_log_probabilities_come_with_the_choice() -> None:
    run = live()
    say(run, "a", "", "b")
    score(run, "a", "x", "b")
    end(run, 3)
    answer = await replies.completion([run], sent(logprobs="logprobs"), "m")
    found = answer["choices"][0]["logprobs"]["content"]
    assert [(one["token"], one["logprob"]) for one in found] == [("a", 0.0), ("x", -0.5), ("b", -1.0)]
    chunks = await deltas(run, sent=sent(logprobs="logprobs"))
    streamed = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    assert [entry for one in streamed for entry in one["content"]] == found
    assert (await replies.completion([run], sent(), "m"))["choices"][0]["logprobs"] is None


async def test_log_probabilities_end_with_the_text_at_a_stop() -> None:
    run = live("r", "b")
    say(run, "a", "b", "c")
    score(run, "a", "b", "c")
    run.take(m.Finished(run=run.id, error=ErrorInfo(code="cancelled", message="cancelled")))
    choice = (await replies.completion([run], sent(logprobs="logprobs"), "m"))["choices"][0]
    assert choice["message"]["content"] == "a"
    assert [one["token"] for one in choice["logprobs"]["content"]] == ["a", "b"]


def piece(level: int) -> m.Blob:
    return m.Blob(data=written(Sound(24_000, np.full((2400, 1), level, np.int16))))


def speak(run: LiveRun) -> None:
    say(run, "hel", "lo")
    for i in range(3):
        run.take(m.Output(run=run.id, name="audio", index=i, value=piece(i * 100), modality="audio"))
    end(run, 2)


async def test_sound_comes_with_its_transcript() -> None:
    run = live()
    speak(run)
    message = (await replies.completion([run], sent(audio="wav"), "m"))["choices"][0]["message"]
    assert message["content"] is None
    assert message["audio"]["transcript"] == "hello"
    heard = read(base64.b64decode(message["audio"]["data"]))
    assert heard.samples[::2400, 0].tolist() == [0, 100, 200]


@pytest.mark.parametrize(("audio", "finish"), [("pcm16", "length"), ("", "stop")])
async def test_an_answer_whose_sound_a_limit_cut_is_cut(audio: str, finish: str) -> None:
    run = live()
    say(run, "hel", "lo")
    answer = m.LoopEnd(walk="decode", loop="tokens", iterations=2, reason="stop")
    speech = m.LoopEnd(walk="speak", loop="frames", iterations=40, reason="bound")
    run.take(m.Finished(run=run.id, loops=(answer, speech), read=9, found=4))
    whole = await replies.completion([run], sent(audio=audio), "m")
    assert whole["choices"][0]["finish_reason"] == finish
    assert whole["usage"]["completion_tokens"] == 2
    ends = [c["finish_reason"] for chunk in await deltas(run, sent=sent(audio=audio)) for c in chunk["choices"]]
    assert ends[-1] == finish


async def test_sound_is_streamed_as_samples() -> None:
    run = live()
    speak(run)
    told = [
        c["delta"].get("audio", {}) for chunk in await deltas(run, sent=sent(audio="pcm16")) for c in chunk["choices"]
    ]
    assert "".join(one.get("transcript", "") for one in told) == "hello"
    samples = np.frombuffer(b"".join(base64.b64decode(one.get("data", "")) for one in told), "<i2")
    assert samples[::2400].tolist() == [0, 100, 200]
    assert len(samples) == 7200
    assert [one["id"] for one in told if "id" in one] == [f"audio_{run.id}"]
    assert sum("expires_at" in one for one in told) == 1


async def test_a_run_that_fails_on_the_way_ends_the_stream_with_an_error() -> None:
    good, bad = live("good"), live("bad")
    say(bad, "a")
    bad.take(m.Finished(run=bad.id, error=ErrorInfo(code="worker_lost", message="lost", retryable=True)))
    chunks = await deltas(good, bad, sent=sent())
    assert chunks[-1] == {"error": {"message": "lost", "type": "server_error", "param": None, "code": "worker_lost"}}
    with pytest.raises(RunFailed):
        await replies.completion([bad], sent(), "m")


# ── the route ───────────────────────────────────────────────────────────────────────────────────


def asked(**fields: Any) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": PNG}}]
    return {"model": "shapes", "messages": [{"role": "user", "content": content}], **fields}


async def test_an_answer_over_http(service: Running) -> None:
    await service.deploy()
    answer = await service.http.post(CHAT, json=asked(n=2, seed=1))
    assert answer.status_code == 200
    assert [choice["message"]["content"] for choice in answer.json()["choices"]] == ["a red circle"] * 2
    assert answer.json()["id"] == f"chatcmpl-{answer.headers['x-request-id']}"
    seeds = [message.params["seed"] for message in service.fleet.started[0].sent if isinstance(message, m.Submit)]
    assert seeds == [1, 2]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_piece_has_a_status(service: Running, stream: bool) -> None:
    await service.deploy()
    answer = await service.http.post(CHAT, json=asked(seed=14, stream=stream))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "numeric_error"
    assert answer.headers["x-should-retry"] == "false"


async def test_choices_that_find_no_room_end_those_before(settings: Settings) -> None:
    async with serving(settings.model_copy(update={"queue_limit": 1}), FakeFleet()) as service:
        await service.deploy()
        answer = await service.http.post(CHAT, json=asked(seed=13, n=2))
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        first, *after = [x for x in service.fleet.started[0].sent if isinstance(x, m.Submit | m.Abort)]
    assert isinstance(first, m.Submit)
    assert after == [m.Abort(run=first.run, reason="disconnected")]


JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2.5, 1e300, "", "x", "shapes", [], [None], [[]], {}, {"type": "text"}, {"text": "x"},
    {"type": "text", "text": "x"}, {"type": "image_url", "image_url": PNG}, {"url": PNG}, {"role": "user"},
    {"role": "user", "content": [{}]}, {"role": "system", "content": {"a": 1}}, ["text", "audio"], "stop",
)  # fmt: skip
KEYS = (
    "model", "messages", "n", "stop", "stream", "stream_options", "audio", "modalities", "seed", "temperature", "top_p",
    "max_tokens", "tools", "store", "metadata", "response_format", "priority", "deadline", "top_k", "role", "content",
)  # fmt: skip


def spoiled(draw: random.Random, value: Any) -> Any:
    """A request with one thing of it, somewhere, replaced, added or gone."""
    if isinstance(value, dict) and value and draw.random() < 0.7:
        key = draw.choice(list(value))
        return {**value, key: spoiled(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.7:
        at = draw.randrange(len(value))
        return [*value[:at], spoiled(draw, value[at]), *value[at + 1 :]]
    if isinstance(value, dict):
        return {**value, draw.choice(KEYS): draw.choice(JUNK)}
    return draw.choice(JUNK)


async def test_spoiled_requests_are_refused_in_openais_words(service: Running) -> None:
    await service.deploy()
    draw = random.Random(0)
    statuses: set[int] = set()
    for _ in range(400):
        body = asked(seed=1, max_tokens=5, stop=["x"])
        for _ in range(draw.randrange(1, 4)):
            body = spoiled(draw, body)
        answer = await service.http.post(CHAT, json=body)
        statuses.add(answer.status_code)
        if answer.status_code != 200:
            assert answer.json()["error"].keys() == {"message", "type", "param", "code"}, body
            assert answer.json()["error"]["message"]
    assert statuses == {200, 400, 404}


async def test_calls_of_functions_come_as_tool_calls() -> None:
    def asked() -> Sent:
        return Sent([{}], TEXT, None, "", tools=Tools([], {"look": {}}), calls="tagged")

    run = live()
    say(run, "Let me see.\n<tool", '_call>\n{"name": "look", "argu', 'ments": {"at": 1}}\n</tool_call>')
    end(run, 3)
    (choice,) = (await replies.completion([run], asked(), "m"))["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Let me see.", "tool_calls")
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"at": 1}'}
    chunks = [c for chunk in await deltas(run, sent=asked()) for c in chunk["choices"]]
    streamed = [one for c in chunks for one in c["delta"].get("tool_calls", [])]
    assert streamed == [{"index": 0, **call}]
    assert "".join(c["delta"].get("content") or "" for c in chunks) == "Let me see."
    assert chunks[-1]["finish_reason"] == "tool_calls"
    plain = (await replies.completion([run], sent(), "m"))["choices"][0]
    assert (plain["finish_reason"], "tool_calls" in plain["message"]) == ("stop", False)


async def test_speech_that_derails_is_cut_and_said_to_be() -> None:
    run = live()
    say(run, "hello")
    loops = (
        m.LoopEnd(walk="decode", loop="tokens", iterations=1, reason="stop"),
        m.LoopEnd(walk="speak", loop="frames", iterations=40, reason="derailed"),
    )
    run.take(m.Finished(run=run.id, loops=loops))
    asked, told = sent(audio="pcm16"), {"text": "stop", "audio": "derailed"}
    chunks = await deltas(run, sent=asked)
    ends = [choice for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert [(end["finish_reason"], end["finish_reasons"]) for end in ends] == [("length", told)]
    assert all("finish_reasons" not in choice for chunk in chunks[:-1] for choice in chunk["choices"])
