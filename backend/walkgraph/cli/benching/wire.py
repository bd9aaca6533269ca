"""One request at a time over one connection, answered as server-sent events; only what is counted is decoded.

A benchmark's client must cost less than the service that it measures. So this is HTTP/1.1 over a plain socket: the body
is encoded once, and only the first words of an answer's events are parsed, except for the last event.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_MAX_LINE = 64 * 1024
_MAX_PROBLEM = 64 * 1024
_END = b"\n\n"


@dataclass(slots=True)
class Sample:
    """The measurements of one request; times are seconds of `time.perf_counter`."""

    due: float
    """When the request should have left: before `sent` if the client or its limit held it back."""
    sent: float = 0.0
    outputs: list[float] = field(default_factory=list[float])
    """When each output came."""
    ended: float = 0.0
    code: str = ""
    """Error code; empty if nothing went wrong."""
    message: str = ""
    """The service's sentence for the error."""
    bytes: int = 0
    queued: float = 0.0
    """Seconds waiting for admission, as the service reports them."""
    read: int = 0
    """Tokens of its inputs; `found` counts those found in caches."""
    found: int = 0
    loops: dict[str, int] = field(default_factory=dict[str, int])
    """Walk and loop -> iterations."""


class Broken(Exception):
    """The other side answered with unexpected HTTP, or closed the connection."""


class Connection:
    """A connection that stays open between requests and is opened anew after a failure."""

    def __init__(self, url: str, token: str, path: str, trusted: ssl.SSLContext | None = None) -> None:
        """`path`: where requests are posted to. `trusted`: as in `Client`."""
        split = urlsplit(url)
        self._host, self._tls = split.hostname or "127.0.0.1", split.scheme == "https"
        self._trusted = trusted
        self._port = split.port or (443 if self._tls else 80)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._head = (
            f"POST {split.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {host}:{self._port}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"
        ).encode()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        context = (self._trusted or ssl.create_default_context()) if self._tls else None
        self._streams = await asyncio.open_connection(self._host, self._port, limit=_MAX_LINE, ssl=context)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def ask(self, body: bytes, due: float) -> Sample:
        """Send one request. Errors of the service or the network don't raise; they are the sample's `code`."""
        sample = Sample(due=due)
        try:
            if self._streams is None:
                await self.open()
            await self._asked(body, sample)
        except (OSError, EOFError, Broken, asyncio.LimitOverrunError, ValueError):
            # The service closed the connection while idle or during the request.
            sample.code = "connection"
            self.close()
        except asyncio.CancelledError:
            self.close()
            raise
        sample.ended = time.perf_counter()
        return sample

    async def _asked(self, body: bytes, sample: Sample) -> None:
        if self._streams is None:
            raise Broken
        reader, writer = self._streams
        sample.sent = time.perf_counter()
        writer.write(b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body))
        await writer.drain()
        status, headers = await _answered(reader)
        if status != 200:
            sample.code, sample.message = _problem(await _whole(reader, headers), status)
        elif headers.get(b"transfer-encoding") == b"chunked":
            await _events(_chunks(reader), sample)
        else:
            raise Broken
        if headers.get(b"connection") == b"close":
            self.close()


async def _answered(reader: asyncio.StreamReader) -> tuple[int, Mapping[bytes, bytes]]:
    """Read status and headers."""
    words = (await reader.readline()).split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise Broken
    headers: dict[bytes, bytes] = {}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip().lower()
    return int(words[1]), headers


async def _whole(reader: asyncio.StreamReader, headers: Mapping[bytes, bytes]) -> bytes:
    if headers.get(b"transfer-encoding") == b"chunked":
        return b"".join([part async for part in _chunks(reader)])[:_MAX_PROBLEM]
    length = int(headers.get(b"content-length", b"0"))
    if length > _MAX_PROBLEM:
        raise Broken
    return await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readline()
        size = int(line.partition(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


async def _events(chunks: AsyncIterator[bytes], sample: Sample) -> None:
    """Record the times of the outputs and the content of the last event. Chunks need not align with events."""
    rest = b""
    ended = False
    async for chunk in chunks:
        sample.bytes += len(chunk)
        if _END not in chunk and not rest.endswith(b"\n"):
            rest += chunk
            continue
        now = time.perf_counter()
        *events, rest = (rest + chunk).split(_END)
        for event in events:
            if event.startswith(b"event: output"):
                sample.outputs.append(now)
            elif event.startswith((b"event: done", b"event: error")):
                ended = True
                _over(event, sample)
    if not ended:
        raise Broken


def _over(event: bytes, sample: Sample) -> None:
    data = json.loads(event.partition(b"data: ")[2])
    if "error" in data:
        sample.code, sample.message = str(data["error"].get("code", "error")), str(data["error"].get("message", ""))
    sample.queued = float(data.get("queued", 0.0))
    usage: Mapping[str, Any] = data.get("usage") or {}
    sample.read, sample.found = int(usage.get("read", 0)), int(usage.get("cached_tokens", 0))
    for loop in usage.get("loops", ()):
        name = f"{loop['walk']}.{loop['loop']}"
        sample.loops[name] = sample.loops.get(name, 0) + int(loop["iterations"])


def _problem(body: bytes, status: int) -> tuple[str, str]:
    """The service's error code and sentence, or the status of a proxy in front of it."""
    try:
        found = json.loads(body)
        errors = found.get("errors") or [{"message": found.get("detail", "")}]
        return str(found["code"])[:64], str(errors[0].get("message", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"http_{status}", ""
