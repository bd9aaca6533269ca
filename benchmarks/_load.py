"""A cheap client: its connections send the same bytes repeatedly. It reads orders as JSON from standard input and
writes results as JSON to standard output; `rest.py` starts it."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

HEAD_END = b"\r\n\r\n"
TOKEN, DONE = b"event: output", b"event: done"


class Asking(asyncio.Protocol):
    """One connection that asks, reads the whole answer, and asks again."""

    def __init__(self, request: bytes, seen: "Seen") -> None:
        self._request, self._seen = request, seen
        self._answer = b""
        self._asked = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head = self._answer.find(HEAD_END)
        if head < 0 or len(self._answer) < head + 4 + _length(self._answer[:head]):
            return
        self._seen.answered(self._asked, ok=self._answer.startswith(b"HTTP/1.1 200"))
        self._answer = b""
        if self._seen.goes_on:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._seen.left()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(self._request)


class Listening(asyncio.Protocol):
    """One connection that asks once, and takes the time of every event of the answer."""

    def __init__(self, request: bytes, seen: "Seen") -> None:
        self._request, self._seen = request, seen
        self._tail = b""
        self._last: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        text, now = self._tail + data, time.perf_counter()
        # What was counted is cut off, the rest is shorter than a mark.
        count = text.count(TOKEN)
        done = DONE in text
        self._tail = text[max(text.rfind(TOKEN) + len(TOKEN) if count else 0, len(text) - len(TOKEN) + 1) :]
        for _ in range(count):
            if self._last is not None:
                self._seen.answered(self._last, ok=True)
            self._last = now
        if done:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._seen.left()


class Seen:
    def __init__(self, connections: int, seconds: float) -> None:
        """`seconds`: how long it is asked."""
        self.began = time.perf_counter()
        self._ends = self.began + seconds
        self._connections = connections
        self.times: list[float] = []
        self.refused = 0
        self.over = asyncio.Event()

    @property
    def goes_on(self) -> bool:
        return time.perf_counter() < self._ends

    def answered(self, asked: float, *, ok: bool) -> None:
        self.times.append(time.perf_counter() - asked)
        self.refused += not ok

    def left(self) -> None:
        self._connections -= 1
        if not self._connections:
            self.over.set()


def _length(head: bytes) -> int:
    at = head.lower().find(b"\r\ncontent-length:")
    return int(head[at + 17 :].partition(b"\r\n")[0]) if at >= 0 else 0


async def load(orders: dict[str, Any]) -> dict[str, Any]:
    request = orders["request"].encode()
    seen = Seen(orders["connections"], orders["seconds"])
    kind: Callable[[bytes, Seen], asyncio.Protocol] = Listening if orders["stream"] else Asking
    loop = asyncio.get_running_loop()
    for _ in range(orders["connections"]):
        await loop.create_connection(lambda: kind(request, seen), orders["host"], orders["port"])
    await seen.over.wait()
    return {"times": seen.times, "refused": seen.refused, "seconds": time.perf_counter() - seen.began}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load(json.load(sys.stdin)))))
