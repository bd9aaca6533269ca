"""Answers whose bytes are not put together: each piece goes to the socket as it is, at the pace of its client."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence

import pybase64
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

WINDOW_BYTES = 1024 * 1024
"""The most that waits for one client's socket."""
JOINED_BYTES = 64 * 1024
"""Pieces of up to this size are put together: a copy costs less than to send each by itself."""
ENCODED_BYTES = 192 * 1024
"""So much is encoded at a time: it stays in the processor's cache, and the loop is free again after 0.2 ms. A multiple
of 3."""

Bytes = bytes | memoryview


class Base64:
    """Bytes that are sent as base64."""

    __slots__ = ("_data",)

    def __init__(self, data: Bytes) -> None:
        self._data = memoryview(data)

    def __len__(self) -> int:
        return 4 * -(-len(self._data) // 3)

    def encoded(self) -> Iterator[bytes]:
        for at in range(0, len(self._data), ENCODED_BYTES):
            yield pybase64.b64encode(self._data[at : at + ENCODED_BYTES])


Piece = bytes | memoryview | Base64


def answer(pieces: Sequence[Piece], headers: Mapping[str, str], status: int = 200) -> Response:
    """The answer with these pieces in a row. `headers` have its type."""
    size = sum(map(len, pieces))
    if size <= WINDOW_BYTES:
        first, *others = windows(pieces) if size else (b"",)
        return _Several((first, *others), size, status, headers) if others else Response(first, status, headers)
    return StreamingResponse(_sent(pieces), status, {**headers, "Content-Length": str(size)})


def windows(pieces: Iterable[Piece], most: int = WINDOW_BYTES) -> Iterator[Bytes]:
    """The same bytes in parts of at most so many: small pieces together, large ones without a copy."""
    small: list[Bytes] = []
    room = most
    for piece in pieces:
        large = isinstance(piece, Base64) or len(piece) > JOINED_BYTES
        if small and (large or len(piece) > room):
            yield b"".join(small)
            small, room = [], most
        if isinstance(piece, Base64):
            yield from piece.encoded()
        elif large:
            view = memoryview(piece)
            yield from (view[at : at + most] for at in range(0, len(view), most))
        elif piece:
            small.append(piece)
            room -= len(piece)
    if small:
        yield b"".join(small)


def part(boundary: str, name: str, mime: str, data: Bytes) -> tuple[Bytes, ...]:
    """A part of a form, with the length of its bytes, so that a reader need not search them."""
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {mime}\r\n'
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode(), data, b"\r\n"


def last(boundary: str) -> bytes:
    """The end of a form."""
    return f"--{boundary}--\r\n".encode()


class _Several(Response):
    """An answer in a few windows, which the socket's buffer has room for: to put them together would copy them."""

    def __init__(self, windows: Sequence[Bytes], size: int, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status, {**headers, "Content-Length": str(size)})
        self._windows = windows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for left, window in zip(reversed(range(len(self._windows))), self._windows, strict=True):
            await send({"type": "http.response.body", "body": window, "more_body": left > 0})


async def _sent(pieces: Sequence[Piece]) -> AsyncGenerator[Bytes]:
    for window in windows(pieces):
        yield window
