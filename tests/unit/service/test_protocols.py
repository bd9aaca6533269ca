"""What is not a request yet, and what goes with one, has bounds: in bytes, and in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from walkgraph.service import limits, protocols

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
HANDSHAKE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SECONDS = 0.3


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says how long the body was; what a WebSocket says comes back."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        message = await receive()
        await send({"type": "websocket.send", "text": message.get("text")})
        return
    taken, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        taken, more = taken + len(message["body"]), message["more_body"]
    body = b"%d" % taken
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]},
    )
    await send({"type": "http.response.body", "body": body})


class Line:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            return head + await self.reader.readexactly(1)

    async def drip(self, piece: bytes, most: int) -> int:
        """The same piece again and again, until it is closed; how many bytes went out."""
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < most and not self.reader.at_eof():
                await self.send(piece)
                sent += len(piece)
                await asyncio.sleep(0)
        return sent

    async def rest(self) -> bytes:
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@pytest.fixture
async def line(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    monkeypatch.setattr(limits, "HEAD_SECONDS", SECONDS)
    config = uvicorn.Config(app, http=protocols.Http, ws=protocols.WebSockets, lifespan="off", log_config=None)
    config.load()
    state = uvicorn.server.ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: protocols.Http(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield Line(reader, writer)
    writer.close()
    server.close()


async def test_requests_follow_each_other_and_bodies_may_be_long(line: Line) -> None:
    await line.send(GET + b"\r\n")
    assert (await line.answer()).endswith(b"0")
    await line.send(GET[:10])
    await asyncio.sleep(0.01)
    await line.send(GET[10:] + b"\r\n")
    assert (await line.answer()).endswith(b"0")
    size = 4 * limits.HEADER_BYTES
    await line.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
    await line.drip(b"x" * 8192, size)
    assert (await line.answer()).endswith(b"1")


async def test_a_body_may_take_longer_than_a_head(line: Line) -> None:
    await line.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
    await asyncio.sleep(2 * SECONDS)
    await line.send(b"x")
    assert (await line.answer()).endswith(b"1")


@pytest.mark.parametrize(
    ("before", "piece"),
    [
        (b"GET /", b"x" * 1000),
        (GET + b"x: ", b"x" * 1000),
        (GET, b"x: " + b"x" * 1000 + b"\r\n"),
        (b"", b"\r\n" * 500),
        (POST + b"5;", b"x" * 1000),
        (POST + b"1\r\nx\r\n0\r\n", b"x: " + b"x" * 1000 + b"\r\n"),
    ],
    ids=["address", "field", "fields", "nothing", "chunk's extension", "trailers"],
)
async def test_what_has_no_end_is_cut_off(line: Line, before: bytes, piece: bytes) -> None:
    await line.send(before)
    # What lies in the kernel's buffers on the way doesn't count.
    assert await line.drip(piece, 64 << 20) < 32 << 20
    assert b"200" not in await line.rest()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHo", b"\r\n"])
async def test_a_head_must_come_in_time(line: Line, said: bytes) -> None:
    await line.send(said)
    assert await line.rest() == b""


async def test_the_head_of_the_next_request_must_come_in_time_too(line: Line) -> None:
    await line.send(GET + b"\r\n")
    await line.answer()
    await line.send(GET)
    assert await line.rest() == b""


async def test_a_websocket_stays(line: Line) -> None:
    await line.send(GET + HANDSHAKE)
    async with asyncio.timeout(5):
        assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    await asyncio.sleep(2 * SECONDS)
    await line.send(b"\x81\x82\0\0\0\0hi")
    async with asyncio.timeout(5):
        assert await line.reader.readexactly(4) == b"\x81\x02hi"
