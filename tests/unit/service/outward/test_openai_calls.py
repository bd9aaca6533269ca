"""`openai.*` against a small server: what is asked in OpenAI's form, and what comes of the answer."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.outside import called, outside
from tests.support.recording import Asked, Recording, Write, answered, recording
from tests.unit.service.fakes import PNG
from walkgraph.errors import WalkgraphError
from walkgraph.service.outward.exchange import Outside
from walkgraph.service.outward.vault import Vault
from walkgraph.wire import messages as m

KEY = "sk-0123456789"
CALL = {"id": "c1", "type": "function", "function": {"name": "draw", "arguments": '{"what": "a cat"}'}}


@pytest.fixture
async def server() -> AsyncIterator[Recording]:
    async with recording() as found:
        yield found


@pytest.fixture
def reached(server: Recording, tmp_path: Path) -> Outside:
    Vault(tmp_path).set("acme", KEY, (server.origin,))
    return outside(server.origin, vault=tmp_path)


@pytest.fixture
def params(server: Recording) -> dict[str, Any]:
    return {"base_url": f"{server.origin}/v1/", "model": "small", "key": "secret:acme"}


def text(value: str) -> m.Small:
    return m.Small(value=value)


def chatted(content: str | None, finish: str = "stop", **more: Any) -> bytes:
    message = {"role": "assistant", "content": content, **more}
    return answered({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})


def streamed(*deltas: dict[str, Any] | str, done: bool = True) -> bytes:
    lines = [json.dumps({"choices": [{"delta": one}]}) if isinstance(one, dict) else one for one in deltas]
    events = "".join(f"data: {line}\n\n" for line in (*lines, *(["[DONE]"] if done else [])))
    return answered(f": a comment\n\n{events}", kind="text/event-stream")


async def test_a_text_is_asked_and_answered(server: Recording, reached: Outside, params: dict[str, Any]) -> None:
    server.answers["/v1/chat/completions"] = chatted("Blue.")
    more = {"system": "Be brief.", "temperature": 0.5, "max_tokens": 9, "seeded": True, "json": True}
    inputs = {"text": text("Name a colour.")}
    found = await called("openai.chat", reached, params | more, inputs, outputs=("text", "finish"))
    assert found == {"text": text("Blue."), "finish": text("stop")}
    asked = server.asked[0]
    assert (asked.method, asked.target) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.json == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."}],
        "temperature": 0.5,
        "max_tokens": 9,
        "seed": 7,
        "response_format": {"type": "json_object"},
    }


async def test_a_conversation_is_passed_on_with_its_tools(
    server: Recording, reached: Outside, params: dict[str, Any]
) -> None:
    server.answers["/v1/chat/completions"] = chatted("ok")
    tool = {"type": "function", "function": {"name": "draw", "parameters": {}}}
    picture = m.Part(modality="image", value=m.Blob(data=PNG))
    call = m.ToolCall(id="c1", name="draw", arguments='{"what": "a cat"}')
    turns = (
        m.Turn(role="user", parts=(m.Part(modality="text", value=text("draw")), picture)),
        m.Turn(role="assistant", parts=(), tool_calls=(call,)),
        m.Turn(role="tool", parts=(m.Part(modality="text", value=text("done")),), tool_call_id="c1"),
    )
    inputs = {"messages": m.Conversation(turns=turns, tools=(json.dumps(tool),)), "text": text("and now?")}
    await called("openai.chat", reached, params, inputs)
    body = server.asked[0].json
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert body["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "draw"}, {"type": "image_url", "image_url": {"url": url}}],
        },
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "done", "tool_call_id": "c1"},
        {"role": "user", "content": "and now?"},
    ]
    assert body["tools"] == [tool]


async def test_pieces_come_as_the_server_sends_them(
    server: Recording, reached: Outside, params: dict[str, Any]
) -> None:
    end = '{"choices": [{"delta": {}, "finish_reason": "stop"}]}'
    deltas = ({"role": "assistant", "content": ""}, {"content": "Bl"}, {"content": "ue."})
    server.answers["/v1/chat/completions"] = streamed(*deltas, '{"choices": []}', end)
    sent: list[tuple[str, m.Value]] = []
    found = await called(
        "openai.chat", reached, params, {"text": text("x")}, outputs=("finish",), pieces=("text",), sent=sent
    )
    assert sent == [("text", text("Bl")), ("text", text("ue."))]
    assert found["finish"] == text("stop")
    assert found["text"] == text("Blue."), "for whoever else takes the whole"
    assert server.asked[0].json["stream"] is True


async def test_pieces_come_before_the_answer_is_over(
    server: Recording, reached: Outside, params: dict[str, Any]
) -> None:
    first = asyncio.Event()

    async def slowly(asked: Asked, write: Write) -> None:
        await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
        await first.wait()
        await write(b'data: {"choices": [{"delta": {"content": "b"}}]}\n\ndata: [DONE]\n\n')

    class Sent(list[tuple[str, m.Value]]):
        def append(self, one: tuple[str, m.Value]) -> None:
            super().append(one)
            first.set()

    server.answers["/v1/chat/completions"] = slowly
    sent = Sent()
    await called("openai.chat", reached, params, {"text": text("x")}, outputs=(), pieces=("text",), sent=sent)
    assert [value for _, value in sent] == [text("a"), text("b")]


async def test_a_server_that_does_not_stream_answers_whole(
    server: Recording, reached: Outside, params: dict[str, Any]
) -> None:
    server.answers["/v1/chat/completions"] = chatted("Blue.")
    sent: list[tuple[str, m.Value]] = []
    await called("openai.chat", reached, params, {"text": text("x")}, outputs=(), pieces=("text",), sent=sent)
    assert sent == [("text", text("Blue."))]


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_of_tools_are_written_as_models_write_them(
    server: Recording, reached: Outside, params: dict[str, Any], streams: bool
) -> None:
    whole = chatted("First.", "tool_calls", tool_calls=[CALL])
    parts = [
        {"index": 0, "function": {"name": "draw", "arguments": '{"what"'}},
        {"index": 0, "function": {"arguments": ': "a cat"}'}},
    ]
    pieces = streamed({"content": "First."}, *({"tool_calls": [part]} for part in parts))  # fmt: skip
    server.answers["/v1/chat/completions"] = pieces if streams else whole
    found = await called(
        "openai.chat", reached, params, {"text": text("x")}, outputs=("text",), pieces=("text",) if streams else ()
    )
    call = '<tool_call>\n{"name": "draw", "arguments": {"what": "a cat"}}\n</tool_call>'
    assert found["text"] == text(f"First.\n{call}")


async def test_a_picture_is_drawn(server: Recording, reached: Outside, params: dict[str, Any]) -> None:
    server.answers["/v1/images/generations"] = answered({"data": [{"b64_json": base64.b64encode(PNG).decode()}]})
    found = await called(
        "openai.images", reached, params | {"size": "64x64"}, {"prompt": text("a cat")}, outputs=("image",)
    )
    assert found == {"image": m.Blob(data=PNG)}
    asked = {"model": "small", "prompt": "a cat", "n": 1, "size": "64x64", "response_format": "b64_json"}
    assert server.asked[0].json == asked
    await called("openai.images", reached, params | {"encoded": "assumed"}, {"prompt": text("a cat")})
    assert server.asked[1].json == {"model": "small", "prompt": "a cat", "n": 1}


@pytest.mark.parametrize(
    "data", [[], [{"url": "https://elsewhere.example/x.png"}], [{"b64_json": "!"}], [{"b64_json": "aGk="}], "x"]
)
async def test_what_is_no_picture_is_refused(
    server: Recording, reached: Outside, params: dict[str, Any], data: Any
) -> None:
    server.answers["/v1/images/generations"] = answered({"data": data})
    with pytest.raises(WalkgraphError, match="holds no PNG"):
        await called("openai.images", reached, params, {"prompt": text("a cat")})


async def test_texts_are_embedded_in_their_order(server: Recording, reached: Outside, params: dict[str, Any]) -> None:
    rows = [{"index": 1, "embedding": [3, 4.5]}, {"index": 0, "embedding": [1, -2]}]
    server.answers["/v1/embeddings"] = answered({"data": rows})
    inputs = {"text": text("a"), "texts": m.Many(items=(text("b"),))}
    found = (await called("openai.embeddings", reached, params | {"dimensions": 2}, inputs))["embeddings"]
    assert isinstance(found, m.InlineTensor)
    assert (found.dtype, found.shape) == ("float32", (2, 2))
    assert np.frombuffer(found.data, np.float32).tolist() == [1, -2, 3, 4.5]
    asked = {"model": "small", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2}
    assert server.asked[0].json == asked


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"embedding": [1]}, {"embedding": [2]}],
        [{"index": 5, "embedding": [1]}],
        [{"embedding": []}],
        [{"embedding": ["x"]}],
        [{"embedding": [1e400]}],
        [{"embedding": [[1]]}],
        [{"embedding": None}],
        [7],
        {"a": 1},
    ],
)
async def test_what_are_no_embeddings_is_refused(
    server: Recording, reached: Outside, params: dict[str, Any], rows: Any
) -> None:
    server.answers["/v1/embeddings"] = answered(json.dumps({"data": rows}).replace("1e400", "Infinity"))
    with pytest.raises(WalkgraphError, match="embedding") as raised:
        await called("openai.embeddings", reached, params, {"text": text("a")})
    assert raised.value.code == "node_error"


@pytest.mark.parametrize(
    "answer",
    [
        answered(b"<html>"),
        answered({}),
        answered({"choices": 3}),
        answered("[" * 100_000),
        streamed({"content": "a"}, done=False),
        streamed({"content": "a"}, '{"error": {"message": "oh"}}'),
        streamed("no json"),
    ],
)
async def test_an_answer_of_another_form_is_refused(
    server: Recording, reached: Outside, params: dict[str, Any], answer: bytes
) -> None:
    server.answers["/v1/chat/completions"] = answer
    with pytest.raises(WalkgraphError) as raised:
        await called("openai.chat", reached, params, {"text": text("x")}, pieces=("text",))
    assert raised.value.code == "node_error"


@pytest.mark.parametrize(
    ("status", "error", "says", "again"),
    [
        ("401 No", {"code": "invalid_api_key", "message": f"wrong key {KEY}"}, "status 401, `invalid_api_key`", False),
        ("429 Slow", {"type": "rate_limited"}, "status 429, `rate_limited`", True),
        ("500 Oh", {"code": "Some Words <b>"}, "status 500", True),
        ("404 Not", None, "status 404", False),
    ],
)
async def test_a_refusal_says_which(
    server: Recording, reached: Outside, params: dict[str, Any], status: str, error: Any, says: str, again: bool
) -> None:
    server.answers["/v1/chat/completions"] = answered(json.dumps({"error": error}) if error else "gone", status=status)
    with pytest.raises(WalkgraphError) as raised:
        await called("openai.chat", reached, params, {"text": text("x")}, pieces=("text",))
    assert str(raised.value).endswith(says)
    assert raised.value.retryable is again


async def test_a_key_is_a_secret_by_name(server: Recording, reached: Outside, params: dict[str, Any]) -> None:
    with pytest.raises(WalkgraphError, match="secret:NAME"):
        await called("openai.chat", reached, params | {"key": KEY}, {"text": text("x")})
    assert server.connections == 0
    server.answers["/v1/chat/completions"] = chatted("ok")
    await called("openai.chat", reached, params | {"key": ""}, {"text": text("x")})
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize(
    ("component", "inputs"),
    [
        ("openai.chat", {}),
        ("openai.chat", {"messages": text("x")}),
        ("openai.embeddings", {}),
        ("openai.embeddings", {"texts": text("x")}),
        ("openai.embeddings", {"texts": m.Many(items=(m.Small(value=3),))}),
    ],
)
async def test_inputs_that_ask_nothing_are_refused(
    server: Recording, reached: Outside, params: dict[str, Any], component: str, inputs: dict[str, m.Value]
) -> None:
    with pytest.raises(WalkgraphError) as raised:
        await called(component, reached, params, inputs)
    assert raised.value.code == "invalid_input"
    assert server.connections == 0
