"""Answers in pieces have the bytes of the answer put together, in windows."""

from __future__ import annotations

import random

import pytest
from starlette.responses import StreamingResponse
from starlette.types import Message

from walkgraph.service.http import pieces
from walkgraph.service.http.pieces import JOINED_BYTES, WINDOW_BYTES


@pytest.mark.parametrize("seed", range(6))
def test_windows_are_the_pieces_in_a_row(seed: int) -> None:
    drawn = random.Random(seed)
    sizes = [
        drawn.choice((0, 1, 100, JOINED_BYTES, JOINED_BYTES + 1, WINDOW_BYTES - 1, WINDOW_BYTES, 2 * WINDOW_BYTES + 3))
        for _ in range(5)
    ]
    given = [memoryview(drawn.randbytes(size)) for size in sizes]
    found = list(pieces.windows(given))
    assert b"".join(found) == b"".join(given)
    assert all(0 < len(window) <= WINDOW_BYTES for window in found if sum(sizes))


@pytest.mark.parametrize("size", [JOINED_BYTES + 1, 3 * WINDOW_BYTES])
def test_a_large_piece_is_not_copied(size: int) -> None:
    large = bytearray(size)
    found = list(pieces.windows([b"head", memoryview(large), b"tail"]))
    large[0] = large[-1] = 7
    assert (found[0], found[-1]) == (b"head", b"tail")
    assert (found[1][0], found[-2][-1]) == (7, 7)


def test_small_pieces_are_sent_together() -> None:
    assert list(pieces.windows([b"a", bytes(JOINED_BYTES), b"b"])) == [b"a" + bytes(JOINED_BYTES) + b"b"]


async def test_an_answer_has_its_length_whether_it_is_sent_whole_or_in_windows() -> None:
    small, large = (pieces.answer([b"a", bytes(size)], {"Content-Type": "a/b"}) for size in (10, 2 * WINDOW_BYTES))
    assert small.body == b"a" + bytes(10)
    assert isinstance(large, StreamingResponse)
    assert large.headers["content-length"] == str(2 * WINDOW_BYTES + 1)
    sent = [window async for window in large.body_iterator]
    assert b"".join(bytes(window) for window in sent if not isinstance(window, str)) == b"a" + bytes(2 * WINDOW_BYTES)
    assert small.headers["content-type"] == large.headers["content-type"] == "a/b"


@pytest.mark.parametrize("sizes", [(), (0,), (3, JOINED_BYTES + 1), (JOINED_BYTES + 1, 5, JOINED_BYTES + 1)])
async def test_an_answer_that_the_socket_takes_at_once_is_sent_as_it_lies(sizes: tuple[int, ...]) -> None:
    given = [random.Random(size).randbytes(size) for size in sizes]
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nothing else comes")

    async def send(message: Message) -> None:
        sent.append(message)

    found = pieces.answer(given, {"Content-Type": "a/b"}, 202)
    await found({"type": "http"}, receive, send)
    head, *bodies = sent
    assert head["status"] == 202
    assert dict(head["headers"]) == {b"content-type": b"a/b", b"content-length": str(sum(sizes)).encode()}
    assert b"".join(bytes(one["body"]) for one in bodies) == b"".join(given)
    assert [one.get("more_body", False) for one in bodies] == [True] * (len(bodies) - 1) + [False]
    assert all(not isinstance(one["body"], bytes) for one in bodies if len(one["body"]) > JOINED_BYTES)
