"""WebSocket clients that say it wrong, or leave: bytes on a real connection, and how the service ended it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Literal

End = Literal["listen", "close", "reset", "at once", "reset at once", "half"]
"""The actions of a client after it has sent its bytes: wait for the answer, close, reset; the same before it has read
the answer to its handshake; or close only its own direction."""
ENDS: tuple[End, ...] = ("listen", "close", "reset", "at once", "reset at once", "half")
SECONDS = 60.0
"""No client waits longer: a bound for what hangs."""
PATIENCE_SECONDS = 0.2
KEY = base64.b64encode(bytes(16)).decode()
_MASK = b"\x11\x22\x33\x44"


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, masked: bool = True, rsv: int = 0, length: int | None = None
) -> bytes:
    """`length`: as it is told, where it isn't what the data have."""
    size = len(data) if length is None else length
    head = bytes([(0x80 if fin else 0) | rsv | opcode])
    bit = 0x80 if masked else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + data
    return head + _MASK + bytes(byte ^ _MASK[i % 4] for i, byte in enumerate(data))


TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
SAID: dict[str, bytes] = {
    "nothing": b"",
    "no frame": b"\xff" * 40,
    "unmasked": frame(TEXT, b"{}", masked=False),
    "reserved opcode": frame(3, b"x"),
    "reserved bit": frame(TEXT, b"x", rsv=0x40),
    "no UTF-8": frame(TEXT, b"\xff\xfe"),
    "half a character in fragments": frame(TEXT, b"\xc3", fin=False) + frame(0, b"("),
    "close with a wrong code": frame(CLOSE, struct.pack("!H", 999)),
    "close with half a code": frame(CLOSE, b"x"),
    "close with no UTF-8": frame(CLOSE, struct.pack("!H", 1000) + b"\xff"),
    "close": frame(CLOSE, struct.pack("!H", 3000)),
    "endless": frame(BINARY, b"", length=1 << 62),
    "too long": frame(TEXT, bytes(0), length=2 << 20) + bytes(2 << 20),
    "long ping": frame(PING, bytes(126)),
    "continued from nothing": frame(0, b"x"),
    "fragments inside fragments": frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"),
    "text": frame(TEXT, b"hello"),
    "object": frame(TEXT, b"{}"),
    "binary": frame(BINARY, bytes(range(50))),
    "pings": frame(PING, b"abc") * 50,
    "text, then close": frame(TEXT, b"{}") + frame(CLOSE),
    "text, then garbage": frame(TEXT, b"{}") + b"\xff" * 30,
}
CLOSED = {1000, 1002, 1003, 1005, 1007, 1008, 1009, 1013, 3000}
"""Codes that an answer to these may have: never 1011, which says that the service is at fault."""


@dataclass(frozen=True)
class Ended:
    status: int | None = None
    """Status of the handshake; None where nobody read it."""
    code: int | None = None
    """That the service closed with; None where it sent none."""


async def hit(host: str, port: int, token: str, path: str, said: bytes, end: End) -> Ended:
    """One client."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            return await _talk(reader, writer, _handshake(f"{host}:{port}", token, path), said, end)
        except ConnectionError:
            return Ended()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handshake: bytes, said: bytes, end: End
) -> Ended:
    writer.write(handshake)
    if end in ("at once", "reset at once"):
        writer.write(said)
        await writer.drain()
        if end == "reset at once":
            _reset(writer)
        return Ended()
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split()[1])
    if status != 101:
        return Ended(status)
    writer.write(said)
    if end == "reset":
        _reset(writer)
    if end in ("close", "reset"):
        return Ended(status)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
        if end == "half":
            writer.write_eof()
            return Ended(status, await _code(reader))
    # A client that was understood is not sent away: it says goodbye after a while.
    goodbye = frame(CLOSE, struct.pack("!H", 1000))
    patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, writer.write, goodbye)
    try:
        return Ended(status, await _code(reader))
    finally:
        patience.cancel()


async def _code(reader: asyncio.StreamReader) -> int | None:
    """Code of the close frame."""
    try:
        while True:
            opcode, size = await reader.readexactly(2)
            if size & 0x7F == 126:
                (size,) = struct.unpack("!H", await reader.readexactly(2))
            elif size & 0x7F == 127:
                (size,) = struct.unpack("!Q", await reader.readexactly(8))
            data = await reader.readexactly(size)
            if opcode & 15 == CLOSE:
                return struct.unpack("!H", data[:2])[0] if data else 1005
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _reset(writer: asyncio.StreamWriter) -> None:
    opened: socket.socket = writer.get_extra_info("socket")
    if opened.fileno() >= 0:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


def _handshake(host: str, token: str, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    ).encode()
