"""Sends telemetry to WebSockets. A slow reader loses frames and learns how many; it never slows anyone else.

Every frame is encoded once and carries `seq`, a counter of this hub; `boot` identifies the hub. A client that keeps up
sees no gap. For one that doesn't, at most `buffer_bytes` wait; further frames are dropped, and in their place it gets
`{"type": "dropped", "count": n}`. One that reads nothing for `stall_seconds` is closed with 1013.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from walkgraph.errors import Overloaded
from walkgraph.service.http import limits

CLOSE_TRY_LATER = 1013

SendText = Callable[[str], Awaitable[None]]


class Stalled(Exception):
    """The client has read nothing for too long."""


class Hub:
    def __init__(
        self,
        *,
        buffer_bytes: int = limits.TELEMETRY_BUFFER_BYTES,
        stall_seconds: float = limits.TELEMETRY_STALL_SECONDS,
        max_clients: int = limits.WS_CLIENTS,
    ) -> None:
        self.boot = secrets.token_hex(8)
        self.seq = 0
        """`seq` of the last published frame."""
        self.dropped = 0
        """Frames dropped for all clients."""
        self._buffer_bytes = buffer_bytes
        self._stall_seconds = stall_seconds
        self._max_clients = max_clients
        self._clients: set[_Client] = set()

    @property
    def clients(self) -> int:
        return len(self._clients)

    def wanted(self, deployment: str) -> bool:
        """True if any client follows this deployment."""
        return any(client.deployment in (None, deployment) for client in self._clients)

    def publish(self, deployment: str, frame: dict[str, Any]) -> None:
        """Queues a frame for its readers. Never waits. `frame` has a `type`; msgspec structures in it are encoded as
        they are, once for all readers."""
        self.seq += 1
        if not self.wanted(deployment):
            return
        text = msgspec.json.encode({**frame, "deployment": deployment, "seq": self.seq}).decode()
        for client in self._clients:
            if client.deployment in (None, deployment):
                self.dropped += client.offer(text)

    async def serve(self, send: SendText, deployment: str | None) -> None:
        """Sends every frame (of one deployment, or of all) from now on until cancelled.

        Raises Overloaded if there are too many clients, Stalled if this one reads nothing.
        """
        if len(self._clients) >= self._max_clients:
            raise Overloaded("too many clients follow the telemetry; close some")
        client = _Client(deployment, self._buffer_bytes)
        self._clients.add(client)
        try:
            await self._send(send, _encode({"type": "welcome", "boot": self.boot, "seq": self.seq}))
            while True:
                await self._send(send, await client.next())
        finally:
            self._clients.discard(client)

    async def _send(self, send: SendText, text: str) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await send(text)
        except TimeoutError:
            raise Stalled from None


class _Client:
    def __init__(self, deployment: str | None, buffer_bytes: int) -> None:
        self.deployment = deployment
        self._room = buffer_bytes
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._some = asyncio.Event()

    def offer(self, text: str) -> int:
        """Queues a frame, or drops it. Returns the number of dropped frames, 0 or 1."""
        # Once one is dropped, so are the next ones until the notice is sent: it stands exactly at the gap.
        if self._dropped or len(text) > self._room:
            self._dropped += 1
            return 1
        self._room -= len(text)
        self._waiting.append(text)
        self._some.set()
        return 0

    async def next(self) -> str:
        await self._some.wait()
        if self._waiting:
            text = self._waiting.popleft()
            self._room += len(text)
        else:
            text, self._dropped = _encode({"type": "dropped", "count": self._dropped}), 0
        if not self._waiting and not self._dropped:
            self._some.clear()
        return text


def _encode(frame: dict[str, Any]) -> str:
    return msgspec.json.encode(frame).decode()
