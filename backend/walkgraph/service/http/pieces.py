"""Answers whose bytes are not put together: each piece goes to the socket as it is, at the pace of its client."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from starlette.responses import Response, StreamingResponse

WINDOW_BYTES = 1024 * 1024
"""The most that waits for one client's socket."""

Bytes = bytes | memoryview


def answer(pieces: Sequence[Bytes], headers: Mapping[str, str]) -> Response:
    """The answer with these pieces in a row. `headers` have its type."""
    size = sum(map(len, pieces))
    if size <= WINDOW_BYTES:
        return Response(b"".join(pieces), headers=headers)
    return StreamingResponse(_sent(pieces), headers={**headers, "Content-Length": str(size)})


def windows(pieces: Sequence[Bytes]) -> Iterator[Bytes]:
    """The same bytes in parts of at most `WINDOW_BYTES`: small pieces together, parts of large ones without a copy."""
    small: list[Bytes] = []
    room = WINDOW_BYTES
    for piece in pieces:
        if len(piece) <= room:
            small.append(piece)
            room -= len(piece)
            continue
        if small:
            yield b"".join(small)
        small, room = [], WINDOW_BYTES
        view = memoryview(piece)
        while len(view) > WINDOW_BYTES:
            yield view[:WINDOW_BYTES]
            view = view[WINDOW_BYTES:]
        small.append(view)
        room -= len(view)
    if small:
        yield b"".join(small) if len(small) > 1 else small[0]


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


async def _sent(pieces: Sequence[Bytes]) -> AsyncGenerator[Bytes]:
    for window in windows(pieces):
        yield window
