"""Sessions over WebSocket: many requests on one socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.sockets import Socket, connect
from walkgraph.service.http import limits
from walkgraph.wire import messages as m

KEEP = "/ws/v1/sessions/synthetic_states/remember"


@pytest.fixture
async def states(service: Running) -> Running:
    """A deployment of a graph whose task `remember` has sessions, and `roll` none."""
    await service.deploy("synthetic_states", "synthetic_states_two_ranks")
    return service


async def until(socket: Socket, event: str) -> dict[str, Any]:
    while (told := await socket.receive())["event"] != event:
        pass
    return told


def submits(states: Running) -> list[m.Submit]:
    return [message for message in states.fleet.started[0].sent if isinstance(message, m.Submit)]


async def test_every_message_is_a_request_of_one_session(states: Running) -> None:
    async with connect(states.app, f"{KEEP}?session=robot") as socket:
        assert await socket.receive() == {"event": "session", "session": "robot"}
        await socket.send({"id": "first", "params": {"seed": 5}})
        assert (await until(socket, "done"))["request"] == "first"
        await socket.send({})
        assert (await until(socket, "done"))["request"] == 1
    assert [one.session for one in submits(states)] == ["robot", "robot"]
    assert [one.params["seed"] for one in submits(states)] == [5, 5], "parameters hold until there are others"


async def test_a_session_that_has_no_name_gets_one(states: Running) -> None:
    names = set()
    for _ in range(2):
        async with connect(states.app, KEEP) as socket:
            names.add((await socket.receive())["session"])
    assert len(names) == 2


async def test_requests_run_side_by_side_and_a_fault_ends_none(states: Running) -> None:
    async with connect(states.app, KEEP) as socket:
        await socket.receive()
        await socket.send({"id": "waits", "params": {"seed": 13}})
        assert (await until(socket, "accepted"))["request"] == "waits"
        faults: list[tuple[Any, Any]] = [
            ([], 1),
            ({"id": 1.5}, 2),
            ({"id": True}, 3),
            ({"id": "mine", "session": "x"}, "mine"),
            ({"id": "bad", "inputs": 3}, "bad"),
        ]
        for wrong, number in faults:
            await socket.send(wrong)
            told = await until(socket, "error")
            assert (told["request"], told["error"]["code"]) == (number, "invalid_input"), json.dumps(wrong)
        await socket.send({"id": "after", "params": {"seed": 1}})
        assert (await until(socket, "done"))["request"] == "after"
        await socket.send({"cancel": True})
        ended = await until(socket, "error")
        assert (ended["request"], ended["error"]["code"]) == ("waits", "cancelled")


async def test_parameters_of_a_request_that_is_refused_hold_for_no_other(states: Running) -> None:
    async with connect(states.app, KEEP) as socket:
        await socket.receive()
        for params in ({"params": {"seed": 5}}, {"params": {"seed": "five"}}, {}):
            await socket.send(params)
        assert (await until(socket, "done"))["request"] in (0, 2)
        assert (await until(socket, "done"))["request"] in (0, 2)
    assert [one.params["seed"] for one in submits(states)] == [5, 5]


async def test_leaving_ends_what_is_under_way(states: Running) -> None:
    async with connect(states.app, KEEP) as socket:
        await socket.receive()
        await socket.send({"params": {"seed": 13}})
        run = (await until(socket, "accepted"))["run"]
    assert m.Abort(run=run, reason="disconnected") in states.fleet.started[0].sent


async def test_so_many_requests_may_be_under_way(states: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WS_SESSION_RUNS", 2)
    async with connect(states.app, KEEP) as socket:
        await socket.receive()
        for _ in range(3):
            await socket.send({"params": {"seed": 13}})
        told = await until(socket, "error")
        assert (told["request"], told["error"]["code"]) == (2, "overloaded")
        assert told["error"]["retryable"]
        await socket.send({"cancel": True})
        assert {(await until(socket, "error"))["request"] for _ in range(2)} == {0, 1}


async def test_a_task_without_sessions_and_none_at_all_are_refused(states: Running) -> None:
    for task, says in (("roll", "keeps no session"), ("forget", "no task")):
        async with connect(states.app, KEEP.replace("remember", task)) as socket:
            (told,) = await socket.rest()
        assert says in told["error"]["message"], task
        assert socket.close_code == 1008


async def test_a_client_that_leaves_at_once_leaves_nothing(states: Running) -> None:
    async with connect(states.app, KEEP):
        pass
    assert submits(states) == []
