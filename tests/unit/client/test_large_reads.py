"""A client's reads: as large as what is there, through TLS too, and otherwise those of the stream behind it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

import httpcore
import pytest

from walkgraph.client import AsyncClient, Client
from walkgraph.client.connection.large_reads import READ_BYTES, AsyncLargeStream, LargeStream

ASKED = 64 * 1024


class Stream(httpcore.NetworkStream):
    def __init__(self) -> None:
        self.read_bytes: list[int] = []
        self.written: list[bytes] = []
        self.secure: Stream | None = None

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.read_bytes.append(max_bytes)
        return bytes(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.written.append(buffer)

    def close(self) -> None:
        self.written.append(b"end")

    def get_extra_info(self, info: str) -> Any:
        return info

    def start_tls(self, *_: Any) -> httpcore.NetworkStream:
        self.secure = Stream()
        return self.secure


class AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return self._stream.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._stream.write(buffer)

    async def aclose(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return info

    async def start_tls(self, *_: Any) -> httpcore.AsyncNetworkStream:
        return AsyncStream(cast("Stream", self._stream.start_tls()))


def blocking(inner: Stream, trusted: ssl.SSLContext) -> list[Any]:
    stream = LargeStream(inner)
    stream.write(b"a")
    secure = stream.start_tls(trusted)
    found = [len(stream.read(ASKED)), len(secure.read(2 * READ_BYTES)), stream.get_extra_info("socket")]
    stream.close()
    return found


async def awaited(inner: Stream, trusted: ssl.SSLContext) -> list[Any]:
    stream = AsyncLargeStream(AsyncStream(inner))
    await stream.write(b"a")
    secure = await stream.start_tls(trusted)
    found = [len(await stream.read(ASKED)), len(await secure.read(2 * READ_BYTES)), stream.get_extra_info("socket")]
    await stream.aclose()
    return found


@pytest.mark.parametrize("kind", ["blocking", "awaited"])
def test_what_is_read_is_as_large_as_it_may_be(kind: str) -> None:
    inner, trusted = Stream(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found = blocking(inner, trusted) if kind == "blocking" else asyncio.run(awaited(inner, trusted))
    assert found == [READ_BYTES, 2 * READ_BYTES, "socket"]
    assert inner.written == [b"a", b"end"]
    assert inner.secure is not None
    assert (inner.read_bytes, inner.secure.read_bytes) == ([READ_BYTES], [2 * READ_BYTES])


async def test_both_clients_read_so() -> None:
    """An answer larger than a read arrives whole."""
    body = bytes(range(256)) * (3 * READ_BYTES // 256)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        url = f"http://{host}:{port}"
        async with AsyncClient(url, "t") as client:
            assert await client.thumbnail("r") == body
        with Client(url, "t") as blocking_client:
            assert await asyncio.to_thread(blocking_client.thumbnail, "r") == body
