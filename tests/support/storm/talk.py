"""A WebSocket without a network, on which all that is sent is sent at once, and what fails inside is raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.support.storm.judge import HOST, SECONDS, UNTOLD
from tests.unit.service.conftest import TOKEN

CLOSED = (1000, 1007, 1008, 1009, 1012, 1013)
"""Codes that a socket of this service closes with."""


@dataclass
class Talk:
    """The messages on one socket, and how it ended."""

    messages: list[Any] = field(default_factory=list[Any])
    frames: int = 0
    status: int | None = None
    """The status of a refused handshake."""
    code: int | None = None
    """None: it was the client that left."""

    def hear(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "websocket.send" if message.get("bytes") is not None:
                self.frames += 1
            case "websocket.send":
                assert UNTOLD.search(message["text"]) is None, message["text"][:500]
                self.messages.append(json.loads(message["text"], parse_constant=_no_number))
            case "websocket.close":
                self.code = message.get("code", 1000)
                assert self.code in CLOSED, message
            case "websocket.http.response.start":
                self.status = message["status"]
            case "websocket.http.response.body":
                assert UNTOLD.search(message["body"].decode()) is None, message
            case _:
                pass


def _no_number(text: str) -> NoReturn:
    raise AssertionError(f"{text} is no JSON")


async def talk(app: Any, path: str, sent: Iterable[str | bytes], last: dict[str, Any]) -> Talk:
    """Send everything, `last` as the last; leave once an answer names that, or the server has closed."""
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    told, over = Talk(), asyncio.Event()
    await inbox.put({"type": "websocket.connect"})
    for one in (*sent, json.dumps(last)):
        kind = "bytes" if isinstance(one, bytes) else "text"
        await inbox.put({"type": "websocket.receive", kind: one})

    async def send(message: Any) -> None:
        # As a server's: it takes its turn.
        await asyncio.sleep(0)
        told.hear(message)
        name = told.messages[-1] if told.messages else {}
        marked = LAST in (name.get("request"), (name.get("error") or {}).get("event_id"))
        if marked or message["type"] in ("websocket.close", "websocket.http.response.body"):
            over.set()

    task = asyncio.ensure_future(app(_scope(path), inbox.get, send))
    waiting = asyncio.ensure_future(over.wait())
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await inbox.put({"type": "websocket.disconnect", "code": 1005})
        await task
    return told


LAST = "the last"


def _scope(path: str) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", HOST.encode()), (b"authorization", f"Bearer {TOKEN}".encode())],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8421),
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
        "state": {},
    }
