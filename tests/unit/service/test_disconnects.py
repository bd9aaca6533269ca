"""A client that leaves ends its runs, also where nothing of its answer was asked for yet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.unit.service.conftest import BASE, TOKEN, Running
from tests.unit.service.fakes import PNG
from walkgraph.service.runs.disconnects import Streamed
from walkgraph.wire import messages as m

HEADERS = {"host": BASE.removeprefix("http://"), "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
SHOWN = "data:image/png;base64,iVBORw0KGgo="
PROMPT = {"prompt": "a circle"}
TASK = ("/v1/tasks/shapes/text_to_image", {"inputs": PROMPT, "params": {"seed": 13}, "stream": True})
CHAT = (
    "/v1/chat/completions",
    {
        "model": "shapes", "seed": 13, "stream": True,
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": SHOWN}}]}],
    },
)  # fmt: skip
DRAW = ("/v1/images/generations", {**PROMPT, "model": "shapes", "seed": 13, "stream": True, "partial_images": 1})
FIRST = {
    CHAT[0]: ("text", m.Small(value="a red "), "text"),
    DRAW[0]: ("preview", m.Blob(data=PNG), "image"),
}
"""The events that a route waits for before it answers."""


class Leaver:
    """One request, whose client is there until an answer is to be sent, and gone when it is."""

    def __init__(self, path: str, body: dict[str, Any]) -> None:
        self._body = json.dumps(body).encode()
        self.waits = asyncio.Event()
        self._looks = 2 if path in FIRST else 1
        self.sent: list[Any] = []
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        headers.append((b"content-length", str(len(self._body)).encode()))
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8421),
        }  # fmt: skip

    async def receive(self) -> dict[str, Any]:
        if self._body:
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        self._looks -= 1
        if self._looks:
            self.waits.set()
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["status"] == 200:
            # Nobody reads: what was sent before waits to leave.
            await asyncio.Event().wait()


@pytest.mark.parametrize(("path", "body"), [TASK, CHAT, DRAW], ids=["task", "chat", "pictures"])
async def test_a_client_that_leaves_before_the_first_byte_ends_its_run(
    service: Running, path: str, body: dict[str, Any]
) -> None:
    await service.deploy()
    client, fake = Leaver(path, body), service.fleet.started[0]
    async with asyncio.timeout(60):
        asking = asyncio.create_task(service.app(client.scope, client.receive, client.send))
        run = await fake.waiting.get()
        if path in FIRST:
            await client.waits.wait()
            name, value, modality = FIRST[path]
            fake.say(m.Output(run=run, name=name, index=0, value=value, modality=modality))
        await asking
    aborts = [message for message in fake.sent if isinstance(message, m.Abort)]
    assert aborts == [m.Abort(run=run, reason="disconnected")]
    assert [message["type"] for message in client.sent] == ["http.response.start"]


@pytest.mark.parametrize("begun", [False, True])
async def test_an_answer_is_over_once_however_it_ends(begun: bool) -> None:
    told: list[str] = []

    async def body() -> AsyncGenerator[bytes]:
        try:
            yield b"x"
            await asyncio.Event().wait()
        finally:
            told.append("closed")

    async def receive() -> Any:
        if begun:
            await sent.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            sent.set()
        if not begun:
            await asyncio.Event().wait()

    sent = asyncio.Event()
    async with asyncio.timeout(60):
        await Streamed(body(), lambda: told.append("over"))({"type": "http"}, receive, send)
    assert told == (["closed", "over"] if begun else ["over"])
