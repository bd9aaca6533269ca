"""Tasks and runs over WebSocket."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.sockets import connect
from walkgraph.service.http import limits
from walkgraph.wire import messages as m

DRAW = "/ws/v1/tasks/shapes/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}
WAITING = {**PROMPT, "params": {"seed": 13}}


@pytest.fixture
async def shapes(service: Running) -> Running:
    await service.deploy()
    return service


async def test_a_task_tells_every_event_and_closes(shapes: Running) -> None:
    async with connect(shapes.app, DRAW) as socket:
        await socket.send(PROMPT)
        events = await socket.rest()
    assert [event["event"] for event in events] == ["accepted", *["output"] * 4, "done"]
    assert events[1]["value"]["mime"] == "image/png"
    assert socket.close_code == 1000


async def test_the_times_of_a_request_and_its_answer_are_noted(shapes: Running) -> None:
    async with connect(shapes.app, DRAW) as socket:
        await socket.send(PROMPT)
        run = (await socket.rest())[-1]["run"]
    live = shapes.services.runs.live(run)
    told = live.times.told(live.times.submitted)
    assert told.received is not None
    assert told.read is not None
    assert told.ended is not None
    assert told.answering is not None
    assert told.last_sent is not None
    assert told.received <= told.read <= told.submitted <= told.ended <= told.answering <= told.last_sent
    # Who follows the run later takes no part in that.
    async with connect(shapes.app, f"/ws/v1/runs/{run}") as socket:
        await socket.rest()
    assert live.times.told(live.times.submitted) == told


async def test_cancel_is_a_message(shapes: Running) -> None:
    async with connect(shapes.app, DRAW) as socket:
        await socket.send(WAITING)
        assert (await socket.receive())["event"] == "accepted"
        await socket.send({"cancle": True})
        assert (await socket.receive())["event"] == "ignored"
        await socket.send({"cancel": True})
        events = await socket.rest()
    assert events[-1]["error"]["code"] == "cancelled"
    assert shapes.fleet.started[0].sent[1] == m.Abort(run=events[-1]["run"], reason="cancelled")


async def test_closing_the_socket_aborts_the_run(shapes: Running) -> None:
    async with connect(shapes.app, DRAW) as socket:
        await socket.send(WAITING)
        run = (await socket.receive())["run"]
    assert shapes.fleet.started[0].sent[-1] == m.Abort(run=run, reason="disconnected")
    assert (await shapes.services.runs.live(run).ended()).error is not None


async def test_what_is_no_request_is_refused_in_words(shapes: Running) -> None:
    for message, code in ((b"{", 1007), (b'{"x": NaN}', 1007), (b'{"inputs": {}}', 1008), (b"[]", 1008)):
        async with connect(shapes.app, DRAW) as socket:
            await socket.send(message.decode())
            told = await socket.rest()
            assert told[0]["event"] == "error", message
            assert socket.close_code == code
    assert shapes.fleet.started[0].sent == []


async def test_a_client_that_says_nothing_is_sent_away(shapes: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WS_HELLO_SECONDS", 0.01)
    async with connect(shapes.app, DRAW) as socket:
        told = await socket.rest()
        assert "first message" in told[0]["error"]["message"]


async def test_a_run_can_be_followed_by_many(shapes: Running) -> None:
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITING}
    run = (await shapes.http.post("/api/v1/runs", json=body)).json()["id"]

    async def follow() -> list[str]:
        async with connect(shapes.app, f"/ws/v1/runs/{run}") as socket:
            return [event["event"] for event in await socket.rest()]

    followers = [asyncio.create_task(follow()) for _ in range(5)]
    async with connect(shapes.app, f"/ws/v1/runs/{run}") as leaving:
        assert (await leaving.receive())["event"] == "accepted"
    assert shapes.services.runs.live(run).finished is None
    await shapes.http.delete(f"/api/v1/runs/{run}")
    assert await asyncio.gather(*followers) == [["accepted", "error"]] * 5
    async with connect(shapes.app, "/ws/v1/runs/" + "0" * 32) as socket:
        assert (await socket.rest())[0]["error"]["code"] == "not_found"
