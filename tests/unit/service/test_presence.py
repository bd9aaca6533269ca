"""A connection whose client is gone, or takes nothing, ends; one that waits goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support.vanishing import vanish
from walkgraph.service.http import limits, presence
from walkgraph.service.http.presence import Presence

pytestmark = pytest.mark.safety("R5")


class End(asyncio.Protocol):
    """The service's, of one connection."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.made, self.lost = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.presence = Presence(asyncio.get_running_loop(), transport)
        self.made.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.presence.stop()
        self.lost.set()


@pytest.fixture
async def ends(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[End, socket.socket]]:
    monkeypatch.setattr(limits, "PROBE_SECONDS", 1)
    monkeypatch.setattr(limits, "PROBES", 1)
    monkeypatch.setattr(presence, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(presence, "_PROBES", dict.fromkeys(presence._PROBES, 1))
    end, loop = End(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: end, "127.0.0.1", 0)
    with contextlib.closing(socket.socket()) as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        await end.made.wait()
        yield end, client
    server.close()
    end.transport.abort()


@pytest.mark.parametrize("told", [b"", b"x", bytes(1 << 20)], ids=["nothing", "a byte", "more than fits"])
async def test_a_client_that_vanished_is_found(ends: tuple[End, socket.socket], told: bytes) -> None:
    end, client = ends
    vanish(client)
    end.transport.write(told)
    async with asyncio.timeout(60):
        await end.lost.wait()


async def test_a_client_that_says_and_reads_nothing_is_there_until_it_stalls(
    ends: tuple[End, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    end, client = ends
    end.transport.write(bytes(16 << 20))
    # Longer than a client that is gone would have been found in.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await end.lost.wait()
    client.recv(4096)
    monkeypatch.setattr(limits, "STALL_SECONDS", 0.1)
    async with asyncio.timeout(60):
        await end.lost.wait()
