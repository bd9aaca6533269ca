"""A server that records what reaches it, byte by byte, and answers as it is told. It is no HTTP library, so that it can
answer what no library would."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from queue import Queue
from threading import Thread
from typing import Any

Write = Callable[[bytes], Awaitable[None]]


@dataclass
class Asked:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = bytes | Callable[[Asked, Write], Awaitable[None]]
"""The bytes of an answer, or a function that writes it."""


@dataclass
class Recording:
    host: str
    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    """Path without query -> its answer; otherwise `hit`."""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    """Connections that are over."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has come."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection is over."""

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            asked = await _read(reader)
            self.asked.append(asked)
            self.came.set()
            answer = self.answers.get(asked.target.partition("?")[0], answered(b"hit"))
            await (write(answer) if isinstance(answer, bytes) else answer(asked, write))
        writer.close()
        self.closed += 1
        self.ended.set()


def answered(
    body: bytes | str | dict[str, Any], *headers: str, status: str = "200 OK", kind: str = "text/plain"
) -> bytes:
    if isinstance(body, dict):
        body, kind = json.dumps(body), "application/json"
    data = body.encode() if isinstance(body, str) else body
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", f"Content-Type: {kind}", *headers, "", "")
    return "\r\n".join(lines).encode() + data


def redirected(to: str, status: str = "302 Found") -> bytes:
    return answered(b"elsewhere", f"Location: {to}", status=status)


@asynccontextmanager
async def recording(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Recording]:
    found = Recording(host, port)
    server = await asyncio.start_server(found.serve, host, port)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
        server.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, target, headers, body)


@contextlib.contextmanager
def threaded_recording() -> Iterator[Recording]:
    """The same for tests that wait: the server runs in a thread of its own."""
    ready: Queue[tuple[Recording, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def main() -> None:
        async with recording() as found:
            over = asyncio.Event()
            ready.put((found, asyncio.get_running_loop(), over))
            await over.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    thread = Thread(target=asyncio.run, args=(main(),))
    thread.start()
    found, loop, over = ready.get()
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
