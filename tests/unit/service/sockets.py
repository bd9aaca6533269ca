"""A WebSocket client that speaks ASGI: no server, no threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.service.conftest import TOKEN
from walkgraph.service.http.protocols import FRAGMENT_FOLLOWS, FRAGMENT_OF_TEXT


class Refused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Socket:
    def __init__(self) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.close_code: int | None = None

    async def send(self, value: Any, *frames: bytes) -> None:
        """A message, and the binary frames after it."""
        text = value if isinstance(value, str) else json.dumps(value)
        await self.inbox.put({"type": "websocket.receive", "text": text})
        for frame in frames:
            await self.send_frame(frame)

    async def send_frame(self, frame: bytes) -> None:
        await self.inbox.put({"type": "websocket.receive", "bytes": frame})

    async def receive(self) -> Any:
        """The next message, the bytes of a binary frame, or None once closed."""
        async with asyncio.timeout(60):
            message = await self.outbox.get()
            if FRAGMENT_FOLLOWS in message:
                return await self._whole(message)
        if message["type"] == "websocket.close":
            self.close_code = message.get("code", 1000)
            return None
        return message["bytes"] if message.get("bytes") is not None else json.loads(message["text"])

    async def _whole(self, message: dict[str, Any]) -> Any:
        """A message that comes in fragments."""
        found = bytes(message["bytes"])
        while message[FRAGMENT_FOLLOWS]:
            message = await self.outbox.get()
            found += message["bytes"]
        return json.loads(found) if message[FRAGMENT_OF_TEXT] else found

    async def rest(self) -> list[Any]:
        found = []
        while (message := await self.receive()) is not None:
            found.append(message)
        return found


@asynccontextmanager
async def connect(
    app: Any, path: str, headers: dict[str, str] | None = None, *, token: bool = True, protocols: tuple[str, ...] = ()
) -> AsyncGenerator[Socket]:
    """Raises Refused with the HTTP status where the handshake is denied."""
    path, _, query = path.partition("?")
    given = {"host": "127.0.0.1:8421", **({"authorization": f"Bearer {TOKEN}"} if token else {}), **(headers or {})}
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(key.lower().encode(), value.encode()) for key, value in given.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8421),
        "subprotocols": list(protocols),
        "extensions": {"websocket.http.response": {}},
        "state": {},
    }
    socket = Socket()
    await socket.inbox.put({"type": "websocket.connect"})
    task = asyncio.create_task(app(scope, socket.inbox.get, socket.outbox.put))
    try:
        async with asyncio.timeout(60):
            first = await socket.outbox.get()
        if first["type"] != "websocket.accept":
            raise Refused(first.get("status", 403))
        yield socket
    finally:
        await socket.inbox.put({"type": "websocket.disconnect", "code": 1005})
        async with asyncio.timeout(60):
            await asyncio.gather(task, return_exceptions=True)
