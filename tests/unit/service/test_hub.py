"""A slow reader loses frames, is told how many, and slows nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

from tests.unit.service.conftest import Running
from tests.unit.service.sockets import connect
from walkgraph.errors import Overloaded
from walkgraph.launch import _configuration
from walkgraph.service.observe.hub import Hub, Stalled
from walkgraph.settings import Settings


class Reader:
    """Takes frames while `open` is set."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, text: str) -> None:
        await self.open.wait()
        self.frames.append(json.loads(text))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == kind]


async def settle() -> None:
    for _ in range(2000):
        await asyncio.sleep(0)


@pytest.mark.safety("R9")
async def test_a_reader_that_keeps_up_sees_no_gap() -> None:
    hub, reader = Hub(), Reader()
    task = asyncio.create_task(hub.serve(reader, None))
    await settle()
    for number in range(500):
        hub.publish("a", {"type": "events", "number": number})
    await settle()
    assert reader.frames[0] == {"type": "welcome", "boot": hub.boot, "seq": 0}
    assert [frame["seq"] for frame in reader.of("events")] == list(range(1, 501))
    assert hub.dropped == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert hub.clients == 0


@pytest.mark.safety("R9")
async def test_a_slow_reader_is_told_what_it_missed_and_slows_nobody() -> None:
    hub, slow, quick = Hub(buffer_bytes=2000), Reader(), Reader()
    tasks = [asyncio.create_task(hub.serve(reader, None)) for reader in (slow, quick)]
    await settle()
    slow.open.clear()
    for _ in range(200):
        hub.publish("a", {"type": "events", "text": "x" * 50})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await settle()
    assert [frame["seq"] for frame in quick.of("events")] == list(range(1, 201))
    slow.open.set()
    await settle()
    got, notices = slow.of("events"), slow.of("dropped")
    assert sum(notice["count"] for notice in notices) + len(got) == 200
    assert hub.dropped == sum(notice["count"] for notice in notices) > 0
    assert sum(len(json.dumps(frame)) for frame in got) < 4000
    # The notice stands where the gap is: what comes later is whole again.
    hub.publish("a", {"type": "events", "text": "later"})
    await settle()
    assert slow.frames[-1]["text"] == "later"
    assert slow.frames[-1]["seq"] == 201
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.safety("R9")
async def test_a_reader_that_takes_nothing_is_given_up() -> None:
    hub, stuck = Hub(stall_seconds=0.01), Reader()
    stuck.open.clear()
    with pytest.raises(Stalled):
        await hub.serve(stuck, None)
    assert hub.clients == 0


@pytest.mark.safety("R9")
async def test_a_client_that_takes_nothing_holds_less_than_a_mib(tmp_path: Path) -> None:
    """With what lies in its socket: of the server's send buffer, and of its own receive buffer."""
    hub, app, passed = Hub(), FastAPI(), 0

    @app.websocket("/telemetry")
    async def telemetry(opened: WebSocket) -> None:
        async def send(text: str) -> None:
            nonlocal passed
            await opened.send_text(text)
            passed += len(text)

        await opened.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await hub.serve(send, None)

    server = uvicorn.Server(_configuration(app, Settings(home=tmp_path)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1000)
        writer.write(
            b"GET /telemetry HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        while not hub.dropped:
            hub.publish("a", {"type": "events", "text": "x" * 20_000})
            await asyncio.sleep(0.001)
        assert hub.seq * 20_000 > passed > 0
        published = (hub.seq - hub.dropped) * 20_000
        assert published < 2**20
        writer.transport.abort()
        server.should_exit = True
        await serving


async def test_a_frame_is_encoded_once_for_all_readers() -> None:
    hub, taken = Hub(), list[str]()

    async def take(text: str) -> None:
        taken.append(text)

    tasks = [asyncio.create_task(hub.serve(take, None)) for _ in range(3)]
    await settle()
    taken.clear()
    hub.publish("a", {"type": "events"})
    await settle()
    assert [text is taken[0] for text in taken] == [True] * 3
    assert hub.wanted("a")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not hub.wanted("a")


async def test_readers_are_counted_and_choose_a_deployment() -> None:
    hub, one = Hub(max_clients=1), Reader()
    task = asyncio.create_task(hub.serve(one, "b"))
    await settle()
    with pytest.raises(Overloaded):
        await hub.serve(Reader(), None)
    hub.publish("a", {"type": "events"})
    hub.publish("b", {"type": "events"})
    await settle()
    assert [frame["deployment"] for frame in one.of("events")] == ["b"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_telemetry_socket_tells_deployments_and_runs(service: Running) -> None:
    await service.deploy()
    async with connect(service.app, "/ws/v1/telemetry") as socket:
        first = await socket.receive()
        assert (first["type"], first["state"]) == ("deployment", "ready")
        assert (await socket.receive())["type"] == "welcome"
        await service.http.post("/v1/tasks/shapes/text_to_image", json={"inputs": {"prompt": "a"}})
        told = await socket.receive()
        assert (told["type"], told["task"], told["state"]) == ("run", "text_to_image", "done")
    assert service.services.hub.clients == 0
