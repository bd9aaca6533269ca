"""Clients of a real service by the thousand: HTTP on plain asyncio streams, where a client library would take longer
than the service."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.serving import Service


class Address(NamedTuple):
    host: str
    port: int
    token: str


def address_of(found: Service) -> Address:
    host, _, port = found.told["url"].rpartition("/")[2].rpartition(":")
    return Address(host, int(port), found.token)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    began: float
    """`time.perf_counter`, as all of these."""
    first: float | None
    """When its first output came; None where it has none."""
    ended: float

    @property
    def served(self) -> bool:
        """A stream whose run is done."""
        return self.status == 200 and b"event: done\n" in self.body

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def to_first(self) -> float:
        assert self.first is not None
        return self.first - self.began


def request(address: Address, method: str, path: str, body: Any = None, *, keep: bool = False) -> bytes:
    """`keep`: the connection stays open for the next request."""
    data = b"" if body is None else json.dumps(body).encode()
    kind = "" if body is None else "Content-Type: application/json\r\n"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nAuthorization: Bearer {address.token}\r\n"
    )
    kept = "keep-alive" if keep else "close"
    return f"{head}{kind}Connection: {kept}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def ask(address: Address, method: str, path: str, body: Any = None) -> Answer:
    """One request on a connection of its own, and its whole answer."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(request(address, method, path, body))
        status, headers = await head(reader)
        pieces: list[bytes] = []
        first: float | None = None
        while piece := await reader.read(1 << 16):
            pieces.append(piece)
            if first is None and any(mark in piece for mark in (b"event: output\n", b"event: done\n")):
                first = time.perf_counter()
        return Answer(status, headers, b"".join(pieces), began, first, time.perf_counter())
    finally:
        writer.close()


class KeptConnections:
    """Sends requests on connections that stay open, as clients under load do: a connection for each request would cost
    both ends more than a refusal."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        began = time.perf_counter()
        reader, writer, (status, headers) = await self._sent(request(self._address, method, path, body, keep=True))
        if "content-length" in headers:
            found, first = await reader.readexactly(int(headers["content-length"])), None
        else:
            found, first = await _chunks(reader)
        self._free.append((reader, writer))
        return Answer(status, headers, found, began, first, time.perf_counter())

    async def _sent(
        self, request: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, tuple[int, dict[str, str]]]:
        """The address to which the request went, and the head of its answer."""
        while True:
            kept = bool(self._free)
            reader, writer = self._free.pop() if kept else await asyncio.open_connection(*self._address[:2])
            try:
                writer.write(request)
                return reader, writer, await head(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                # The service closes a connection that was quiet for seconds, maybe while a request is on its way.
                writer.close()
                if not kept:
                    raise

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, float | None]:
    """The body, and when its first output came."""
    pieces: list[bytes] = []
    first: float | None = None
    while size := int(await reader.readline(), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
        if first is None and any(mark in pieces[-1] for mark in (b"event: output\n", b"event: done\n")):
            first = time.perf_counter()
    await reader.readline()
    return b"".join(pieces), first


async def head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in fields}


@asynccontextmanager
async def connected(
    address: Address, receive_bytes: int | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """`receive_bytes`: of the kernel's buffer."""
    opened = socket.socket()
    if receive_bytes is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    opened.setblocking(False)
    await asyncio.get_running_loop().sock_connect(opened, (address.host, address.port))
    limit = receive_bytes or 1 << 16
    reader, writer = await asyncio.open_connection(sock=opened, limit=limit)
    try:
        yield reader, writer
    finally:
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """The connection ends with an RST."""
    opened: socket.socket = writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def until(holds: Callable[[], Awaitable[bool]], pause: float = 0.01, seconds: float = 300.0) -> float:
    """When something held first, by `time.monotonic`; asked again and again. `seconds`: a bound for what hangs."""
    async with asyncio.timeout(seconds):
        while True:
            if await holds():
                return time.monotonic()
            await asyncio.sleep(pause)


def quantile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
