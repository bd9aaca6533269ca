"""Incomplete requests, and the parts that come with one, are bounded in bytes and in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

from walkgraph.service.http import limits, protocols

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
HANDSHAKE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SECONDS = 0.6


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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@pytest.fixture
async def line(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    monkeypatch.setattr(limits, "HEAD_SECONDS", SECONDS)
    async with opened(app) as (found, _):
        yield found


@asynccontextmanager
async def opened(app: Any) -> AsyncIterator[tuple[Line, ServerState]]:
    config = uvicorn.Config(app, http=protocols.Http, ws=protocols.WebSockets, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: protocols.Http(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield Line(reader, writer), state
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
    async with asyncio.timeout(60):
        assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    await asyncio.sleep(2 * SECONDS)
    await line.send(b"\x81\x82\0\0\0\0hi")
    async with asyncio.timeout(60):
        assert await line.reader.readexactly(4) == b"\x81\x02hi"


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1_000_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be")


def socket_of(state: ServerState) -> protocols.WebSockets:
    (found,) = state.connections
    assert isinstance(found, protocols.WebSockets)
    return found


async def test_a_client_that_is_silent_is_sent_away_and_not_called_a_fault() -> None:
    heard: list[Any] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        heard.append(await receive())
        with pytest.raises(ClientDisconnected):
            await send({"type": "websocket.send", "text": "too late"})

    async with opened(listening) as (line, state):
        await line.send(GET + HANDSHAKE)
        async with asyncio.timeout(60):
            await line.reader.readuntil(b"\r\n\r\n")
        socket_of(state).keepalive_timeout()
        told = await line.rest()
    assert told[:1] == b"\x88"
    assert int.from_bytes(told[2:4], "big") == 1013
    assert [message["type"] for message in heard] == ["websocket.disconnect"]


async def test_a_client_that_takes_nothing_is_gone_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WS_CLOSE_SECONDS", 0.05)
    telling, gone = asyncio.Event(), asyncio.Event()

    async def talking(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        try:
            while True:
                telling.set()
                await send({"type": "websocket.send", "bytes": bytes(1 << 20)})
        except ClientDisconnected:
            gone.set()

    async with opened(talking) as (line, state):
        await line.send(GET + HANDSHAKE)
        async with asyncio.timeout(60):
            await telling.wait()
            found = socket_of(state)
            await until(lambda: not found.writable.is_set())
            found.keepalive_timeout()
            await gone.wait()
            await until(lambda: not state.connections)


async def test_who_tells_a_client_that_broke_the_protocol_learns_that_it_is_gone() -> None:
    left: asyncio.Queue[str] = asyncio.Queue()

    async def talking(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        for message in ({"type": "websocket.send", "text": "x"}, {"type": "websocket.close"}):
            try:
                await send(message)
            except ClientDisconnected as error:
                left.put_nowait(type(error).__name__)

    no_text = b"\x81\x81\0\0\0\0\xff"
    for broken in (b"\xff" * 20, b"\x83\x81\0\0\0\0x", no_text, no_text + b"\x88\x80\0\0\0\0"):
        async with opened(talking) as (line, _):
            await line.send(GET + HANDSHAKE)
            async with asyncio.timeout(60):
                await line.reader.readuntil(b"\r\n\r\n")
                await line.send(broken)
                assert [await left.get(), await left.get()] == ["ClientDisconnected"] * 2


async def test_a_refused_handshake_is_complete(caplog: pytest.LogCaptureFixture) -> None:
    async def denying(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    async with opened(denying) as (line, _):
        await line.send(GET + HANDSHAKE)
        assert (await line.rest()).startswith(b"HTTP/1.1 404")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
