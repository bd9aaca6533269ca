"""An answer that begins before its run's end has the content of one that doesn't."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.unit.service.conftest import BASE, TOKEN, Running
from walkgraph.client.errors import RunError
from walkgraph.client.parts import ACCEPT, ResultReader
from walkgraph.errors import ErrorInfo
from walkgraph.service.runs.answering import accepted
from walkgraph.service.values.outlets import LARGE_BYTES
from walkgraph.wire import messages as m

BODY = {"inputs": {"prompt": "a circle"}, "params": {"seed": 13}}
"""With this seed, the run waits for what the test says."""
PATH = "/v1/tasks/shapes/text_to_image"


class Client:
    """One request, whose client reads its answer as it comes."""

    def __init__(self, service: Running, accept: str = ACCEPT) -> None:
        self.leaves, self.more = asyncio.Event(), asyncio.Condition()
        self.status, self.headers, self.body = 0, httpx.Headers(), b""
        self._request = json.dumps(BODY).encode()
        headers = {
            "host": BASE.removeprefix("http://"), "authorization": f"Bearer {TOKEN}", "accept": accept,
            "content-type": "application/json", "content-length": str(len(self._request)),
        }  # fmt: skip
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": PATH, "raw_path": PATH.encode(), "query_string": b"", "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8421),
        }  # fmt: skip
        self.answered = asyncio.ensure_future(service.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._request:
            body, self._request = self._request, b""
            return {"type": "http.request", "body": body, "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], httpx.Headers(message["headers"])
        async with self.more:
            self.body += bytes(message.get("body", b""))
            self.more.notify_all()

    async def has(self, content: bytes) -> None:
        """Wait until it has read this."""
        async with self.more:
            await self.more.wait_for(lambda: content in self.body)

    def whole(self) -> tuple[dict[str, Any], list[bytes]]:
        """(the result without what differs from run to run, its frames)"""
        reader = ResultReader(self.headers["content-type"].partition("; boundary=")[2])
        reader.take(self.body)
        result, frames = reader.whole()
        shown = {name: [self._in_place(one, frames) for one in made] for name, made in result["outputs"].items()}
        return {**result, "outputs": shown, "run": ""}, [bytes(frame) for frame in frames]

    def _in_place(self, value: dict[str, Any], frames: list[memoryview]) -> dict[str, Any]:
        if "items" in value:
            return {**value, "items": [self._in_place(one, frames) for one in value["items"]]}
        return {**value, "frame": bytes(frames[value["frame"]])} if "frame" in value else value


def tensor(fill: int, size: int = LARGE_BYTES) -> m.InlineTensor:
    return m.InlineTensor(dtype="uint8", shape=(size,), data=bytes([fill]) * size)


SAID: tuple[tuple[str, m.Value, str], ...] = (
    ("text", m.Small(value="a red "), "text"),
    ("preview", tensor(1), "tensor"),
    ("text", m.Small(value="circle"), "text"),
    ("preview", tensor(2), "tensor"),
    ("image", m.Many(items=(tensor(3, 5), tensor(4))), "list"),
    ("preview", tensor(5, 7), "tensor"),
)


@pytest.fixture
async def shapes(service: Running) -> Running:
    await service.deploy()
    return service


async def answered(
    shapes: Running, accept: str, between: Callable[[Client, m.RunId, int], Awaitable[None]]
) -> tuple[Client, m.RunId]:
    client, fake = Client(shapes, accept), shapes.fleet.started[0]
    run = await fake.waiting.get()
    fake.say(m.Accepted(run=run, seed=13))
    for index, (name, value, modality) in enumerate(SAID):
        fake.say(m.Output(run=run, name=name, index=index, value=value, modality=modality))
        await between(client, run, index)
    return client, run


async def test_large_values_come_before_the_end_and_the_result_is_the_same(shapes: Running) -> None:
    async def read(client: Client, run: m.RunId, index: int) -> None:
        large = {1: b"\x01", 3: b"\x02", 4: b"\x04"}.get(index)
        if large is not None:
            await client.has(large * LARGE_BYTES)

    async def nothing(client: Client, run: m.RunId, index: int) -> None:
        pass

    async with asyncio.timeout(60):
        early, run = await answered(shapes, ACCEPT, read)
        assert b'name="result"' not in early.body
        shapes.fleet.started[0].finish(run)
        await early.answered
        late, run = await answered(shapes, "multipart/mixed", nothing)
        assert late.status == 0
        shapes.fleet.started[0].finish(run)
        await late.answered
    assert (early.status, late.status) == (200, 200)
    assert "content-length" in late.headers
    (one, frames), (other, naive) = early.whole(), late.whole()
    times = {"seconds", "queued", "times"}
    assert {k: v for k, v in one.items() if k not in times} == {k: v for k, v in other.items() if k not in times}
    assert one["outputs"]["text"] == [{"type": "text", "text": "a red circle"}]
    assert sorted(frames) == sorted(naive)


async def test_a_run_that_fails_behind_its_first_values_is_told_as_a_problem(shapes: Running) -> None:
    client, fake = Client(shapes), shapes.fleet.started[0]
    async with asyncio.timeout(60):
        run = await fake.waiting.get()
        fake.say(m.Output(run=run, name="preview", index=0, value=tensor(1), modality="tensor"))
        await client.has(b"\x01" * LARGE_BYTES)
        fake.say(m.Finished(run=run, error=ErrorInfo(code="numeric_error", message="not a number", node="llm")))
        await client.answered
    assert client.status == 200
    with pytest.raises(RunError, match="not a number") as raised:
        client.whole()
    assert (raised.value.code, raised.value.node, raised.value.status) == ("numeric_error", "llm", 422)


@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_leaves_ends_its_run(shapes: Running, begun: bool) -> None:
    client, fake = Client(shapes), shapes.fleet.started[0]
    async with asyncio.timeout(60):
        run = await fake.waiting.get()
        if begun:
            fake.say(m.Output(run=run, name="preview", index=0, value=tensor(1), modality="tensor"))
            await client.has(b"\x01" * LARGE_BYTES)
        client.leaves.set()
        with suppress(asyncio.CancelledError):
            await client.answered
    assert [one for one in fake.sent if isinstance(one, m.Abort)] == [m.Abort(run=run, reason="disconnected")]
    assert b'name="result"' not in client.body


async def test_small_values_and_texts_wait_for_the_end(shapes: Running) -> None:
    client, fake = Client(shapes), shapes.fleet.started[0]
    async with asyncio.timeout(60):
        run = await fake.waiting.get()
        for value, modality in ((m.Small(value="x" * 2 * LARGE_BYTES), "text"), (tensor(1, 9), "tensor")):
            fake.say(m.Output(run=run, name=modality, index=0, value=value, modality=modality))
        fake.finish(run)
        await client.answered
    result, frames = client.whole()
    assert (client.status, len(frames)) == (200, 1)
    assert "content-length" in client.headers
    assert list(result["outputs"]) == ["text", "tensor"]


async def test_only_forms_begin_early_and_only_if_they_are_asked_to() -> None:
    [found] = accepted("multipart/mixed; early=1;q=0.7")
    assert found.begun is not None
    [found] = accepted("multipart/mixed;early=0")
    assert found.begun is None
    [found] = accepted("application/json;early=1")
    assert found.begun is None
