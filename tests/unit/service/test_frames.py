"""Binary frames next to messages: on sockets in both directions, and bodies with bytes elsewhere."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from starlette.websockets import WebSocket

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from tests.unit.service.sockets import connect
from walkgraph.ids import RunId
from walkgraph.service.http import limits
from walkgraph.service.http.frames import placed, plain
from walkgraph.service.runs import streaming
from walkgraph.service.runs.runs import LiveRun
from walkgraph.wire import messages as m

ACT = "/ws/v1/sessions/reach/act"
STATE = np.float32([0.4, -0.8]).tobytes()
REQUEST: dict[str, Any] = {
    "frames": 2,
    "inputs": {
        "camera": {"type": "image", "frame": 1},
        "instruction": "reach the red ball",
        "state": {"type": "state", "frame": 0, "dtype": "float32", "shape": [2]},
    },
    "params": {"seed": 5},
}
IN_JSON = {
    "inputs": {
        **REQUEST["inputs"],
        "camera": {"type": "image", "data": base64.b64encode(PNG).decode()},
        "state": {"type": "state", "data": [0.4, -0.8]},
    },
    "params": {"seed": 5},
}


@pytest.fixture
async def reach(service: Running) -> Running:
    await service.deploy("reach", "reach_one_cpu")
    return service


def submits(running: Running) -> list[m.Submit]:
    return [message for message in running.fleet.started[0].sent if isinstance(message, m.Submit)]


async def test_frames_of_a_task_give_the_run_that_json_gives(reach: Running) -> None:
    async with connect(reach.app, "/ws/v1/tasks/reach/act?frames=binary") as socket:
        await socket.send(REQUEST, STATE, PNG)
        told = await socket.rest()
    answer = await reach.http.post("/v1/tasks/reach/act", json=IN_JSON)
    assert answer.status_code == 200, answer.text
    binary, plainly = submits(reach)
    assert binary.inputs == plainly.inputs
    assert binary.inputs["state"] == (m.InlineTensor(dtype="float32", shape=(2,), data=STATE),)
    names = [one if isinstance(one, bytes) else one["event"] for one in told]
    assert names == ["accepted", "output", PNG, "output", PNG, "output", "output", "done"]
    assert told[1]["frames"] == 1
    assert told[1]["value"] == {"type": "image", "mime": "image/png", "frame": 0}
    assert "frames" not in told[0]
    assert told[-1]["usage"] == {"read": 0, "cached_tokens": 0, "loops": []}


async def test_a_session_takes_frames_and_answers_as_it_was_opened(reach: Running) -> None:
    for query, encoded in (("?frames=binary", False), ("", True)):
        async with connect(reach.app, ACT + query) as socket:
            await socket.receive()
            await socket.send({"id": "a", **REQUEST}, STATE, PNG)
            told = [await socket.receive() for _ in range(8 - 2 * encoded)]
        picture = told[1]
        assert picture["request"] == "a"
        if encoded:
            assert base64.b64decode(picture["value"]["data"]) == PNG
        else:
            assert told[2] == PNG
    assert submits(reach)[0].inputs == submits(reach)[1].inputs


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"camera": {"type": "image", "frame": 2}}, "/inputs/camera/frame"),
    ({"camera": {"type": "image", "frame": -1}}, "/inputs/camera/frame"),
    ({"camera": {"type": "image", "frame": True}}, "/inputs/camera/frame"),
    ({"camera": {"type": "image", "frame": 1, "data": "AAAA"}}, "/inputs/camera/data"),
    ({"camera": {"type": "image", "data": "AAAA"}}, "/inputs"),
    ({"instruction": {"type": "text", "frame": 1}}, "/inputs/instruction/data"),
    ({"state": {"type": "state", "frame": 0}}, "/inputs/state/data"),
    ({"state": {"type": "state", "frame": 0, "dtype": "float32", "shape": [3]}}, "/inputs/state/shape"),
    ({"state": {"type": "state", "frame": 0, "dtype": "float8", "shape": [8]}}, "/inputs/state/dtype"),
]


async def test_a_fault_in_a_frame_is_told_and_the_session_goes_on(reach: Running) -> None:
    async with connect(reach.app, f"{ACT}?frames=binary") as socket:
        await socket.receive()
        for change, pointer in FAULTS:
            await socket.send({"id": pointer, **REQUEST, "inputs": {**REQUEST["inputs"], **change}}, STATE, PNG)
            told = await socket.receive()
            assert (told["event"], told["request"], told["error"]["code"]) == ("error", pointer, "invalid_input")
            assert pointer in [fault["pointer"] for fault in told["errors"]], (change, told)
        await socket.send({"id": "good", **REQUEST}, STATE, PNG)
        assert (await socket.receive())["request"] == "good"
    assert len(submits(reach)) == 1


async def test_what_can_not_be_told_from_what_follows_ends_the_socket(
    reach: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WS_FRAMES_BYTES", 20)
    monkeypatch.setattr(limits, "WS_HELLO_SECONDS", 0.05)
    many = {"frames": limits.WS_FRAMES + 1}
    cases: list[tuple[list[Any], str]] = [
        ([many], "whole number"),
        ([{"frames": -1}], "whole number"),
        ([{"frames": 1.0}], "whole number"),
        ([{"frames": 1}, "{}"], "a text came"),
        ([{"frames": 3}, bytes(15), bytes(15)], "bytes"),
        ([{"frames": 1}], "frames"),
        ([bytes(4)], "JSON"),
    ]
    for sent, word in cases:
        for path in (ACT, "/ws/v1/tasks/reach/act"):
            async with connect(reach.app, path) as socket:
                for one in sent:
                    await (socket.send_frame(one) if isinstance(one, bytes) else socket.send(one))
                told = await socket.rest()
            assert word in told[-1]["error"]["message"], (sent, told)
            assert socket.close_code in (1007, 1008)
    assert submits(reach) == []


async def test_a_request_with_frames_is_kept_as_json_and_can_be_replayed(reach: Running) -> None:
    async with connect(reach.app, "/ws/v1/tasks/reach/act") as socket:
        await socket.send(REQUEST, STATE, PNG)
        run = (await socket.receive())["run"]
        await socket.rest()
    kept = (await reach.http.get(f"/api/v1/runs/{run}/request")).json()
    encoded = {"type": "state", "dtype": "float32", "shape": [2], "base64": base64.b64encode(STATE).decode()}
    assert kept["request"]["inputs"]["state"] == encoded
    again = await reach.http.post("/v1/tasks/reach/act", json=kept["request"])
    assert again.status_code == 200, again.text
    replayed = await reach.http.post(f"/api/v1/runs/{run}/replay", json={})
    assert replayed.status_code == 202, replayed.text
    first, second, third = submits(reach)
    assert first.inputs == second.inputs == third.inputs


async def test_a_followed_run_can_be_told_in_frames(reach: Running) -> None:
    body = {"deployment": "reach", "task": "act", "request": IN_JSON}
    run = (await reach.http.post("/api/v1/runs", json=body)).json()["id"]
    async with connect(reach.app, f"/ws/v1/runs/{run}?frames=binary") as socket:
        assert PNG in await socket.rest()


async def test_frames_are_no_form_of_a_plain_request(reach: Running) -> None:
    answer = await reach.http.post("/v1/tasks/reach/act", json=REQUEST)
    assert answer.status_code == 422
    assert "/frames" in [error["pointer"] for error in answer.json()["errors"]]
    assert "/inputs/camera/frame" in [error["pointer"] for error in answer.json()["errors"]]


def test_a_body_keeps_all_that_is_no_frame() -> None:
    body = {"inputs": {"parts": [{"type": "image", "frame": 0}, {"type": "text", "text": "x"}, 3], "n": [1, 2]}, "x": 1}
    found = placed({"frames": 1, **body}, [b"abc"])
    assert found["inputs"]["parts"][0] == {"type": "image", "data": b"abc"}
    assert found["inputs"]["n"] == [1, 2]
    assert json.loads(json.dumps(plain(found)))["inputs"]["parts"][0]["data"] == "YWJj"
    assert body["inputs"]["parts"][0] == {"type": "image", "frame": 0}, "what was given is not changed"
    assert placed([1], []) == [1]


async def test_what_cannot_be_read_is_told_after_the_frames_that_are_on_their_way() -> None:
    run = LiveRun(m.Submit(run=RunId("0" * 32), task="t", params={}, inputs={}), "d", lambda _: None)
    run.take(m.Output(run=run.id, name="image", index=0, value=m.Blob(data=PNG), modality="image"))
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[dict[str, Any]] = []
    framing, drained = asyncio.Event(), asyncio.Event()

    async def send(message: Any) -> None:
        if message.get("bytes") is not None:
            framing.set()
            await drained.wait()
        sent.append(message)

    socket = WebSocket({"type": "websocket"}, inbox.get, send)
    inbox.put_nowait({"type": "websocket.connect"})
    await socket.accept()
    async with asyncio.timeout(60):
        telling = asyncio.create_task(streaming.over_websocket(socket, run, abort=True, binary=True))
        await framing.wait()
        inbox.put_nowait({"type": "websocket.receive", "text": "{"})
        for _ in range(10):
            await asyncio.sleep(0)
        drained.set()
        await telling
    assert [message.get("bytes") or message["type"] for message in sent] == [
        "websocket.accept", "websocket.send", PNG, "websocket.send", "websocket.close",
    ]  # fmt: skip
    assert json.loads(sent[3]["text"])["error"]["code"] == "invalid_input"
    assert sent[4]["code"] == 1007
