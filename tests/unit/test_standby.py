"""A service that stands by passes connections on; the one that has the database leaves it in time."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

from walkgraph.standby import Relay, keep
from walkgraph.store.ownership import Taken

MEGABYTE = bytes(range(256)) * 4096


class Left(BaseException):
    """The process would end here."""


def leave() -> NoReturn:
    raise Left


async def test_a_relay_passes_bytes_and_their_end_on_both_ways() -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(-1))
        writer.write(got[-1][::-1])
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as there:
        host, port = there.sockets[0].getsockname()
        relay = Relay(f"http://{host}:{port}")
        async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as here, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(*here.sockets[0].getsockname())
            writer.write(MEGABYTE)
            writer.write_eof()
            assert await reader.read(-1) == MEGABYTE[::-1]
            assert got == [MEGABYTE]
            writer.close()


async def test_a_connection_is_closed_where_nobody_listens() -> None:
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as gone:
        host, port = gone.sockets[0].getsockname()
    relay = Relay(f"http://{host}:{port}")
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as here, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*here.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()


class Told:
    """A database that answers as the test says."""

    def __init__(self, *answers: bool | Taken) -> None:
        self.answers = list(answers)
        self.asked = 0

    def keep(self) -> bool:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Taken):
            raise answer
        return answer


async def test_a_service_leaves_once_another_one_has_the_database() -> None:
    store = Told(True, False, True, Taken("another one", "http://b"))
    with pytest.raises(Left):
        await keep(store, leave, every=0, held=3600)
    assert store.asked == 4


async def test_a_service_leaves_if_it_hears_nothing_for_too_long() -> None:
    store = Told(True, False)
    with pytest.raises(Left):
        await keep(store, leave, every=0, held=0.05)
    assert store.asked >= 2


async def test_a_server_that_does_not_answer_counts_as_silent() -> None:
    done = threading.Event()

    class Silent:
        def keep(self) -> bool:
            return done.wait(600)

    with pytest.raises(Left):
        await keep(Silent(), leave, every=0, held=0.05)
    done.set()
