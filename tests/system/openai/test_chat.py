"""Chat completions and models by the official client: a table of calls, good and bad, streamed and not."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from PIL import Image, ImageDraw

from tests.support.serving import Service
from tests.support.yardstick import patience
from walkgraph.client import Picture, Turn


def drawn(colour: str) -> bytes:
    """A square on white, as PNG."""
    image = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(image).rectangle((16, 16, 48, 48), fill=colour)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def picture(colour: str = "red") -> str:
    """A square on white, as a `data:` URL."""
    return "data:image/png;base64," + base64.b64encode(drawn(colour)).decode()


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content[0] if content and isinstance(content[0], str) else list(content)}]


def text(told: str) -> dict[str, Any]:
    return {"type": "text", "text": told}


IMAGE = {"type": "image_url", "image_url": {"url": picture()}}
HELLO = user("hello")
DRAWN = {"temperature": 1.0, "seed": 3}
LONG: dict[str, Any] = {"model": "bagel", "messages": HELLO, "max_tokens": 4096, "extra_body": {"context": 8192}}
"""Runs for seconds, unless its client leaves."""


def url(address: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address}}


class Good(NamedTuple):
    name: str
    call: dict[str, Any]
    check: Callable[[ChatCompletion], Any]


def finish(answer: ChatCompletion) -> str:
    return answer.choices[0].finish_reason


def said(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def made(answer: ChatCompletion) -> int:
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    return answer.usage.completion_tokens


def read(answer: ChatCompletion) -> int:
    assert answer.usage is not None
    return answer.usage.prompt_tokens


GOOD = (
    Good(
        "a picture is described",
        {"model": "shapes", "messages": user(IMAGE), "max_tokens": 40},
        lambda a: "red" in said(a),
    ),
    Good("the task by name", {"model": "bagel/image_to_text", "max_tokens": 2}, lambda a: made(a) == 2),
    Good("the count ends it", {"max_tokens": 6, **DRAWN}, lambda a: (finish(a), made(a)) == ("length", 6)),
    Good("the newer name of the count", {"max_completion_tokens": 5, **DRAWN}, lambda a: made(a) == 5),
    Good("both names, one count", {"max_tokens": 4, "max_completion_tokens": 4, **DRAWN}, lambda a: made(a) == 4),
    Good(
        "choices differ",
        {"n": 4, "max_tokens": 8, **DRAWN},
        lambda a: (
            (len({c.message.content for c in a.choices}), [c.index for c in a.choices], made(a))
            == (4, [0, 1, 2, 3], 32)
        ),
    ),
    # BAGEL frames each text with two tokens; the byte tokens of these weights are one a letter.
    Good("texts are read", {"messages": user("abc"), "max_tokens": 1}, lambda a: read(a) == 5),
    Good("two texts in turn", {"messages": user(text("abc"), text("de")), "max_tokens": 1}, lambda a: read(a) == 9),
    Good("two messages in turn", {"messages": [*user("abc"), *user("de")], "max_tokens": 1}, lambda a: read(a) == 9),
    Good(
        "text and picture in turn",
        {"messages": user(text("what is this?"), IMAGE, text("say")), "max_tokens": 2},
        lambda a: read(a) > 60,
    ),
    Good(
        "a system message is read first",
        {"messages": [{"role": "system", "content": "abc"}, *user("de")], "max_tokens": 1},
        lambda a: read(a) == 9,
    ),
    Good(
        "a developer's message takes the place of the prompt for thinking",
        {
            "messages": [{"role": "developer", "content": "abc"}, *user("de")],
            "max_tokens": 1,
            "extra_body": {"think": True},
        },
        lambda a: read(a) == 9,
    ),
    Good(
        "the task's own prompt for thinking",
        {"messages": user("de"), "max_tokens": 1, "extra_body": {"think": True}},
        lambda a: read(a) > 60,
    ),
    Good("parameters of the task", {"max_tokens": 3, "extra_body": {"top_k": 1}, **DRAWN}, lambda a: made(a) == 3),
    Good("what is ours", {"max_tokens": 3, "extra_body": {"priority": 5, "deadline": 30}}, lambda a: made(a) == 3),
    Good(
        "what asks for nothing",
        {
            "max_tokens": 2,
            "store": False,
            "service_tier": "auto",
            "user": "u1",
            "metadata": {"a": "b"},
            "response_format": {"type": "text"},
            "logprobs": False,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "tool_choice": "none",
            "modalities": ["text"],
            "safety_identifier": "s",
        },
        lambda a: made(a) == 2,
    ),
    Good("top_p of one", {"model": "shapes", "messages": user(IMAGE), "max_tokens": 2, "top_p": 1}, made),
)


@pytest.mark.parametrize("row", GOOD, ids=[row.name for row in GOOD])
def test_what_is_served(client: openai.OpenAI, row: Good) -> None:
    answer = client.chat.completions.create(**{"model": "bagel", "messages": HELLO, **row.call})
    assert row.check(answer), answer
    assert answer.object == "chat.completion"
    assert answer.model == row.call.get("model", "bagel")
    assert all(choice.message.role == "assistant" for choice in answer.choices)
    assert abs(answer.created - time.time()) < 120


class Bad(NamedTuple):
    name: str
    call: dict[str, Any]
    kind: type[openai.APIStatusError]
    param: str | None
    code: str
    words: str


B = openai.BadRequestError
N = openai.NotFoundError
BAD = (
    Bad("no such deployment", {"model": "nope"}, N, "model", "model_not_found", "`shapes`"),
    Bad("no such task", {"model": "bagel/nope"}, N, "model", "model_not_found", "`bagel/image_to_text`"),
    Bad("a robot's policy", {"model": "reach"}, B, "model", "unsupported_route", "/v1/tasks"),
    Bad("a voice", {"model": "orpheus"}, B, "model", "unsupported_route", "audio.speech (speak)"),
    Bad("a task that draws", {"model": "bagel/edit"}, B, "model", "unsupported_route", "images.edits (edit)"),
    Bad("no messages", {"messages": []}, B, "messages", "invalid_value", "fewest entries: 1"),
    Bad(
        "a foreign role", {"messages": [{"role": "robot", "content": "x"}]}, B, "messages[0].role", "invalid_value", ""
    ),
    Bad(
        "an assistant's turn",
        {"messages": [*HELLO, {"role": "assistant", "content": "y"}, *HELLO]},
        B,
        "messages[1].role",
        "unsupported_value",
        "`assistant`",
    ),
    Bad(
        "a tool's turn",
        {"messages": [{"role": "tool", "tool_call_id": "t", "content": "y"}]},
        B,
        "messages[0].role",
        "unsupported_value",
        "`tool`",
    ),
    Bad(
        "no content",
        {"messages": [{"role": "user"}]},
        B,
        "messages[0].content",
        "missing_required_parameter",
        "messages[0].content",
    ),
    Bad("content of numbers", {"messages": user(5)}, B, "messages[0].content[0]", "invalid_type", "object"),
    Bad(
        "a file",
        {"messages": user({"type": "file", "file": {"file_id": "x"}})},
        B,
        "messages[0].content[0]",
        "invalid_value",
        "type",
    ),
    Bad(
        "an address",
        {"messages": user(text("a"), url("http://127.0.0.1/x.png"))},
        B,
        "messages[0].content[1].image_url.url",
        "invalid_value",
        "fetches no addresses",
    ),
    Bad(
        "no base64",
        {"messages": user(url("data:image/png;base64,!!!"))},
        B,
        "messages[0].content[0].image_url.url",
        "invalid_value",
        "base64",
    ),
    Bad("no picture", {"messages": user(url("data:image/png;base64,aGVsbG8="))}, B, None, "invalid_input", "PNG"),
    Bad(
        "text where pictures are taken",
        {"model": "shapes", "messages": user(IMAGE, text("what?"))},
        B,
        "messages[0].content[1].text",
        "unsupported_value",
        "takes `image`, no `text`; leave that out",
    ),
    Bad(
        "sound where none is taken",
        {"messages": user({"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}})},
        B,
        "messages[0].content[0].input_audio.data",
        "unsupported_value",
        "no `audio`",
    ),
    Bad("too hot", {"temperature": 3}, B, "temperature", "invalid_value", "at most 2"),
    Bad("heat in words", {"temperature": "hot"}, B, "temperature", "invalid_type", "number"),
    Bad("too many choices", {"n": 9}, B, "n", "invalid_value", "at most 8"),
    Bad("no tokens", {"max_tokens": 0}, B, "max_tokens", "invalid_value", "at least 1"),
    Bad("more than the task writes", {"max_tokens": 5000}, B, "max_tokens", "invalid_value", "4096 or less"),
    Bad(
        "more, by the newer name",
        {"max_completion_tokens": 5000},
        B,
        "max_completion_tokens",
        "invalid_value",
        "4096 or less",
    ),
    Bad("two counts", {"max_tokens": 4, "max_completion_tokens": 5}, B, "max_tokens", "invalid_value", "differ"),
    Bad("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}, B, "tools", "unsupported_parameter", ""),
    Bad("log probabilities", {"logprobs": True}, B, "logprobs", "unsupported_parameter", "leave it out"),
    Bad(
        "an object as an answer",
        {"response_format": {"type": "json_object"}},
        B,
        "response_format",
        "unsupported_parameter",
        "text",
    ),
    Bad("a penalty", {"presence_penalty": 0.5}, B, "presence_penalty", "unsupported_parameter", "leave it out"),
    Bad("to be stored", {"store": True}, B, "store", "unsupported_parameter", "`false`"),
    Bad("effort", {"reasoning_effort": "high"}, B, "reasoning_effort", "unsupported_parameter", "leave it out"),
    Bad("a slip", {"extra_body": {"tempreature": 1}}, B, "tempreature", "unknown_parameter", "`temperature`"),
    Bad("a parameter out of bounds", {"extra_body": {"top_k": -5}}, B, "top_k", "invalid_value", "0 or more"),
    Bad("a parameter of another type", {"extra_body": {"think": "yes"}}, B, "think", "invalid_value", "true or false"),
    Bad("a voice of one that only writes", {"modalities": ["text", "audio"]}, B, "modalities", "unsupported_value", ""),
    Bad("a format of no sound", {"audio": {"voice": "a", "format": "wav"}}, B, "audio", "invalid_value", "modalities"),
    Bad("five stops", {"stop": list("abcde")}, B, "stop", "invalid_value", "most entries: 4"),
    Bad("an empty stop", {"stop": ""}, B, "stop", "invalid_value", "fewest characters: 1"),
    Bad("a negative seed", {"seed": -1}, B, "seed", "invalid_value", "0 or more"),
    Bad(
        "bad from the start, streamed",
        {"stream": True, "messages": user(url("data:image/png;base64,aGVsbG8="))},
        B,
        None,
        "invalid_input",
        "PNG",
    ),
)


@pytest.mark.parametrize("row", BAD, ids=[row.name for row in BAD])
def test_what_is_refused(client: openai.OpenAI, row: Bad) -> None:
    with pytest.raises(openai.APIStatusError) as found:
        client.chat.completions.create(**{"model": "bagel", "messages": HELLO, **row.call})
    error = found.value
    assert type(error) is row.kind, error
    assert (error.param, error.code) == (row.param, row.code), error
    assert row.words in error.message
    assert error.type == "invalid_request_error"
    assert error.response.headers["x-should-retry"] == "false"
    assert error.request_id


# ── conversations ───────────────────────────────────────────────────────────────────────────────


def test_a_conversation_goes_on_after_its_first_answer(client: openai.OpenAI, running: Service) -> None:
    turns: list[Any] = user(IMAGE)
    first = client.chat.completions.create(model="shapes/chat", messages=turns, max_tokens=24)
    turns += [first.choices[0].message, {"role": "user", "content": [text("and this?"), url(picture("blue"))]}]
    second = client.chat.completions.create(model="shapes/chat", messages=turns, max_tokens=24)
    assert "red" in said(first)
    assert "blue" in said(second)
    assert read(second) > read(first) + made(first)
    chunks = streamed(client, model="shapes/chat", messages=turns, max_tokens=24)
    assert told(chunks) == said(second)
    with running.client() as native:
        chat = native.task("shapes", "chat")
        conversation = [
            Turn("user", Picture(drawn("red"), "image/png")),
            {"role": "assistant", "content": said(first)},
            Turn("user", ["and this?", Picture(drawn("blue"), "image/png")]),
        ]
        assert chat(messages=conversation, max_tokens=24).text() == said(second)
        alone = chat(messages=Turn("user", Picture(drawn("blue"), "image/png")), max_tokens=24).text()
        assert alone != said(second), "the earlier turns count"


def test_a_role_without_steps_is_refused_by_name(client: openai.OpenAI) -> None:
    turns: list[Any] = [*HELLO, {"role": "tool", "tool_call_id": "t", "content": "x"}]
    with pytest.raises(openai.BadRequestError, match="`system`, `user`, `assistant`") as found:
        client.chat.completions.create(model="shapes/chat", messages=turns)
    assert found.value.param == "messages[1].role"


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


def streamed(client: openai.OpenAI, **call: Any) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(**{"model": "bagel", "messages": HELLO, "stream": True, **call}))


def told(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    pieces = (c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index)
    return "".join(pieces)


def test_a_stream_tells_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="bagel", messages=HELLO, n=2, max_tokens=9, **DRAWN)
    chunks = streamed(client, n=2, max_tokens=9, **DRAWN)
    assert [told(chunks, i) for i in range(2)] == [choice.message.content for choice in whole.choices]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    for index in range(2):
        mine = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert (mine[0].delta.role, mine[0].delta.content) == ("assistant", "")
        assert [c.finish_reason for c in mine] == [None] * (len(mine) - 1) + ["length"]
        assert all(c.delta.role is None for c in mine[1:])
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_its_usage_where_that_is_asked_for(client: openai.OpenAI) -> None:
    chunks = streamed(client, max_tokens=5, stream_options={"include_usage": True}, **DRAWN)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (7, 5)
    assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks[:-1])


def test_the_lines_of_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="bagel", messages=HELLO, max_tokens=3, stream=True, **DRAWN
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_cuts_the_text_and_ends_the_run(client: openai.OpenAI, stream: bool) -> None:
    full = said(client.chat.completions.create(model="shapes", messages=user(IMAGE), max_tokens=40))
    stop = " " + full.split(" ")[3]
    call: dict[str, Any] = {"model": "shapes", "messages": user(IMAGE), "max_tokens": 256, "stop": ["qqq", stop]}
    if stream:
        chunks = streamed(client, **call)
        text, reason, run = told(chunks), chunks[-1].choices[0].finish_reason, chunks[0].id
    else:
        answer = client.chat.completions.create(**call)
        text, reason, run = said(answer), finish(answer), answer.id
        assert made(answer) < 20
    assert (text, reason) == (full[: full.index(stop)], "stop")
    assert run.startswith("chatcmpl-")


def ended(running: Service, run: str) -> dict[str, Any]:
    """The row of a run, once it is over."""
    with running.client() as native:
        deadline = time.monotonic() + patience(5)
        while time.monotonic() < deadline:
            row = next(row for row in native.runs("bagel") if row["id"] == run)
            if row["state"] != "running":
                return row
    raise AssertionError(f"{run} is still running")


def test_a_client_that_leaves_ends_its_run(running: Service, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(**LONG, stream=True)
    run = next(stream).id.removeprefix("chatcmpl-")
    stream.close()
    assert ended(running, run)["state"] == "cancelled"


def test_a_client_without_patience(running: Service, client: openai.OpenAI) -> None:
    with running.client() as native:
        before = {row["id"] for row in native.runs("bagel")}
        for seconds in (0.5, 1.0, 2.0, 4.0, 8.0):
            hasty = client.with_options(timeout=seconds)
            with pytest.raises(openai.APITimeoutError):
                hasty.chat.completions.create(**LONG)
            # On a busy machine the client may leave before its request has become a run.
            if made := {row["id"] for row in native.runs("bagel")} - before:
                break
    assert made
    assert {ended(running, run)["state"] for run in made} == {"cancelled"}
