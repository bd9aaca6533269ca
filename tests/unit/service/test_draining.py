"""Answers while the service is stopping."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from tests.unit.service.conftest import Running
from tests.unit.service.openai.talking import talking, text
from tests.unit.service.sockets import Refused, connect
from walkgraph.launch import _Server

KEEP = "/ws/v1/sessions/synthetic_states/remember?session=robot"
WAITING: dict[str, Any] = {"inputs": {"prompt": "x"}, "params": {"seed": 13}}


async def status_of(service: Running, path: str) -> int:
    try:
        async with connect(service.app, path):
            return 101
    except Refused as refused:
        return refused.status


@pytest.mark.safety("R16")
async def test_new_requests_are_refused_in_their_dialect(service: Running) -> None:
    await service.deploy()
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITING}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    service.services.shutdown.begin()
    assert (await service.http.get("/health/ready")).status_code == 503
    assert (await service.http.get("/health/live")).status_code == 200
    for method, path in (
        ("POST", "/v1/tasks/shapes/text_to_image"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("POST", "/v2/models/shapes/infer"),
        ("POST", "/api/v1/runs"),
        ("PUT", "/api/v1/graphs/mine"),
        ("DELETE", "/api/v1/deployments/shapes"),
        ("POST", f"/api/v1/runs/{run}/replay"),
    ):
        answer = await service.http.request(method, path, json={} if method in ("POST", "PUT") else None)
        assert answer.status_code == 503, (method, path)
        assert answer.headers["retry-after"] == "30"
        assert answer.headers["connection"] == "close"
        if path.startswith("/v1/chat"):
            assert answer.json()["error"]["code"] == "shutting_down"
        elif path.startswith("/v2"):
            assert list(answer.json()) == ["error"]
        else:
            assert "shutting_down" in answer.text
    for path in ("/ws/v1/tasks/shapes/text_to_image", "/ws/v1/telemetry", KEEP):
        assert await status_of(service, path) == 503
    assert await status_of(service, f"/ws/v1/runs/{run}") == 101
    for path in (f"/api/v1/runs/{run}", "/api/v1/deployments", "/metrics"):
        assert (await service.http.get(path)).status_code == 200
    assert (await service.http.delete(f"/api/v1/runs/{run}")).json() == {"state": "cancelling"}
    text = (await service.http.get("/metrics")).text
    assert 'walkgraph_requests_refused_total{reason="draining"} 11.0' in text


async def test_sessions_are_told_and_ended_once_their_runs_are(service: Running) -> None:
    await service.deploy("synthetic_states", "synthetic_states_two_ranks")
    async with connect(service.app, KEEP) as busy, connect(service.app, KEEP) as idle:
        for socket in (busy, idle):
            assert (await socket.receive())["event"] == "session"
        await busy.send({"params": {"seed": 13}})
        assert (await busy.receive())["event"] == "accepted"
        run = await asyncio.wait_for(service.fleet.started[0].waiting.get(), 60)
        drained = asyncio.create_task(service.services.deployer.drain(30))
        told = await idle.receive()
        assert (told["event"], told["error"]["code"], told["error"]["retryable"]) == ("closing", "shutting_down", True)
        assert await idle.receive() is None
        assert idle.close_code == 1012
        assert (await busy.receive())["event"] == "closing"
        await busy.send({})
        refused = await busy.receive()
        assert (refused["event"], refused["error"]["retryable"]) == ("error", True)
        service.fleet.started[0].finish(run)
        assert (await busy.receive())["event"] == "done"
        assert await busy.receive() is None
        assert busy.close_code == 1012
        await asyncio.wait_for(drained, 60)


async def test_conversations_of_openais_clients_are_told_too() -> None:
    async with talking() as peer:
        closing = asyncio.Event()
        closed: list[int] = []

        async def close(code: int) -> None:
            closed.append(code)

        peer.close = close  # type: ignore[attr-defined]
        leaving = asyncio.create_task(peer.session.leave(closing))
        await peer.say(text("Hello"))
        run = await peer.respond()
        closing.set()
        told = (await peer.until("error"))[-1]["error"]
        assert (told["type"], told["code"]) == ("server_error", "shutting_down")
        assert not leaving.done()
        run.end()
        await peer.until("response.done")
        await asyncio.wait_for(leaving, 60)
        assert closed == [1012]


async def test_who_waits_for_a_change_waits_no_longer(service: Running) -> None:
    await service.deploy()
    revision = (await service.http.get("/api/v1/deployments/shapes")).json()["revision"]
    poll = asyncio.create_task(service.http.get(f"/api/v1/deployments/shapes?after={revision}&wait=30"))
    await asyncio.sleep(0)
    await service.services.deployer.drain(0)
    assert (await asyncio.wait_for(poll, 60)).status_code == 200


async def test_a_drain_that_fails_ends_the_service_all_the_same() -> None:
    class Broken:
        async def drain(self, seconds: float) -> None:
            raise KeyError(seconds)

    async def begin() -> None:
        pass

    services: Any = SimpleNamespace(deployer=Broken())
    server = _Server(uvicorn.Config(app=""), services, 1.0, begin)
    with pytest.raises(KeyError):
        await server._drained()
    assert server.should_exit
