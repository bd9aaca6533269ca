"""Sessions of a deployment are listed and ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.service.conftest import Running
from walkgraph.service.deployments import versions
from walkgraph.wire import messages as m

PATH = "/v1/sessions/synthetic_states"
TASK = "/v1/tasks/synthetic_states/remember"


@pytest.fixture
async def states(service: Running) -> Running:
    await service.deploy("synthetic_states", "synthetic_states_two_ranks")
    return service


async def test_sessions_are_listed_with_their_bytes_and_ended_by_name(states: Running) -> None:
    assert (await states.http.get(PATH)).json() == {"deployment": "synthetic_states", "bytes": 0, "sessions": []}
    for name in ("robot", "a/b c"):
        assert (await states.http.post(TASK, json={"session": name})).status_code == 200
    found = (await states.http.get(PATH)).json()
    assert [session["name"] for session in found["sessions"]] == ["a/b c", "robot"]
    assert found["bytes"] == 8192
    assert (found["sessions"][0]["run"], found["sessions"][0]["idle"]) == (None, 1.5)
    for name in ("robot", "a%2Fb%20c"):
        ended = await states.http.delete(f"{PATH}/{name}")
        assert (ended.status_code, ended.json()) == (202, {"state": "ending"})
        assert (await states.http.delete(f"{PATH}/{name}")).status_code == 404
    assert (await states.http.get(PATH)).json()["sessions"] == []


async def test_a_run_in_a_session_is_shown(states: Running) -> None:
    body = {"deployment": "synthetic_states", "task": "remember", "request": {"session": "s", "params": {"seed": 13}}}
    run = (await states.http.post("/api/v1/runs", json=body)).json()["id"]
    assert (await states.http.get(PATH)).json()["sessions"][0]["run"] == run


async def test_whoever_does_not_answer_is_not_waited_for(states: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ASK_SECONDS", 0.01)
    fake = states.fleet.started[0]
    monkeypatch.setattr(fake, "send", fake.sent.append)
    answer = await states.http.get(PATH)
    assert (answer.status_code, answer.json()["retryable"]) == (503, True)
    asked = fake.sent[-1]
    assert isinstance(asked, m.AskSessions)
    fake.say(m.SessionsTold(number=asked.number, sessions=()))
    await asyncio.sleep(0)
    assert (await states.http.get("/v1/sessions/nothing")).status_code == 404
