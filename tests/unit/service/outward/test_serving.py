"""Calls of servers outside, as the service makes them for runs of a deployment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.recording import Asked, Recording, Write, answered, recording
from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeDeployment, FakeFleet
from tests.unit.service.test_task_calls import WAITS, put
from tests.unit.service.test_task_calls import answered as answer_of
from walkgraph.ids import Rank
from walkgraph.service.outward import serving as outward
from walkgraph.service.runs.runs import LiveRun
from walkgraph.settings import Settings
from walkgraph.wire import messages as m


@pytest.fixture
async def server() -> AsyncIterator[Recording]:
    async with recording() as found:
        yield found


@pytest.fixture
async def service(settings: Settings, server: Recording) -> AsyncIterator[Running]:
    allowing = Settings(**{**settings.model_dump(), "call_hosts": (server.origin,)})
    async with serving(allowing, FakeFleet()) as running:
        yield running


def graph(origin: str, **params: Any) -> dict[str, Any]:
    return {
        "format": "walkgraph/graph@1",
        "name": "calling",
        "nodes": {"fetch": {"component": "http.request", "params": {"url": origin, **params}}},
        "walks": {"go": {"body": ["fetch"], "edges": [["fetch.text", "@out.text"]]}},
        "tasks": {
            "go": {
                "outputs": ["text"],
                "params": {"header": {"type": "string", "default": ""}},
                "steps": [{"walk": "go"}],
            }
        },
    }


async def begun(service: Running, origin: str, **params: Any) -> tuple[FakeDeployment, LiveRun]:
    """The deployment of the graph, and a run of it that waits."""
    calling = await put(service, graph(origin, **params))
    request = {"deployment": "calling", "task": "go", "request": {"params": {"seed": WAITS}}}
    answer = await service.http.post("/api/v1/runs", json=request)
    assert answer.status_code == 202, answer.text
    found = service.services.runs.get(answer.json()["id"])
    assert found is not None
    return calling, found


def call(run: LiveRun, origin: str, component: str = "http.request", **more: Any) -> m.CallTask:
    params = {
        "url": origin, "method": "GET", "url_input": "refused", "headers": "", "body": "text", "fail": True,
        "seconds": 60.0, "max_bytes": 1000,
    }  # fmt: skip
    fields: dict[str, Any] = {"outputs": ("text",), "params": {**params, **more.pop("params", {})}, **more}
    place = {"run": run.id, "rank": Rank(0), "step": 0, "use": 0, "iteration": (2,)}
    return m.CallTask(task=component, walk="go", node="fetch", name="fetch", seed=7, **place, **fields)


async def silent(asked: Asked, write: Write) -> None:
    while True:
        await write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(0.01)


async def test_a_call_is_answered(service: Running, server: Recording) -> None:
    calling, run = await begun(service, server.origin)
    calling.say(call(run, server.origin))
    answer = await answer_of(calling)
    assert (answer.outputs, answer.error) == ({"text": m.Small(value="hit")}, None)
    assert (answer.run, answer.rank, answer.iteration, answer.called) == (run.id, 0, (2,), "")


async def test_an_error_is_that_of_the_node(service: Running, server: Recording) -> None:
    calling, run = await begun(service, server.origin)
    calling.say(call(run, "https://elsewhere.example"))
    error = (await answer_of(calling)).error
    assert error is not None
    assert (error.code, error.node, error.walk, error.iteration) == ("refused", "fetch", "go", (2,))
    assert error.message.startswith("`fetch`: nodes may not call `https://elsewhere.example`")


async def test_a_call_ends_in_time(service: Running, server: Recording) -> None:
    server.answers["/"] = silent
    calling, run = await begun(service, server.origin)
    calling.say(call(run, server.origin, params={"seconds": 0.2}))
    calling.say(call(run, server.origin, deadline=0.3))
    told: set[str] = set()
    for number in (1, 2):
        error = (await answer_of(calling, number)).error
        assert error is not None
        assert (error.code, error.retryable) == ("deadline_exceeded", True)
        told.add(error.message.rpartition("within ")[2])
    assert told == {"0.2 s", "0.3 s"}, "its own time, or what is left of the run's"


async def test_the_end_of_a_run_cancels_its_calls(service: Running, server: Recording) -> None:
    server.answers["/"] = silent
    calling, run = await begun(service, server.origin)
    calling.say(call(run, server.origin))
    await server.came.wait()
    run.abort()
    await run.ended()
    await server.ended.wait()
    assert not [one for one in calling.sent if isinstance(one, m.TaskAnswer)]
    calling.say(call(run, server.origin))
    await asyncio.sleep(0)
    assert server.connections == 1, "a call that comes late is not made"


async def test_which_secret_is_sent_is_the_documents_choice(service: Running, server: Recording) -> None:
    calling, run = await begun(service, server.origin, headers="=header")
    calling.say(call(run, server.origin, params={"headers": "X-Key: secret:weather"}))
    error = (await answer_of(calling)).error
    assert error is not None
    assert "can't be named by an expression" in error.message
    assert server.connections == 0


async def test_a_component_of_a_later_version_is_a_typed_error(service: Running, server: Recording) -> None:
    calling, run = await begun(service, server.origin)
    calling.say(call(run, server.origin, "http.later"))
    error = (await answer_of(calling)).error
    assert error is not None
    assert error.code == "not_found"


async def test_an_unexpected_error_answers_without_its_text(
    service: Running, server: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> dict[str, m.Value]:
        raise ZeroDivisionError("what was sent")

    monkeypatch.setattr(outward, "COMPONENTS", {"http.request": broken})
    calling, run = await begun(service, server.origin)
    calling.say(call(run, server.origin))
    error = (await answer_of(calling)).error
    assert error is not None
    assert (error.code, "what was sent" in error.message) == ("internal_error", False)


async def test_what_leaves_in_pieces_is_sent_before_the_answer(service: Running, server: Recording) -> None:
    lines = ['{"choices": [{"delta": {"content": "a"}}]}', '{"choices": [{"delta": {"content": "b"}}]}', "[DONE]"]
    events = "".join(f"data: {line}\n\n" for line in lines)
    server.answers["/v1/chat/completions"] = answered(events, kind="text/event-stream")
    params = {
        "base_url": f"{server.origin}/v1", "model": "x", "key": "", "system": "", "temperature": 1.0, "max_tokens": 0,
        "seeded": False, "json": False,
    }  # fmt: skip
    calling, run = await begun(service, server.origin)
    given = m.Named(items={"text": m.Small(value="hi")})
    calling.say(call(run, "", "openai.chat", params=params, value=given, outputs=("finish",), pieces=("text",)))
    answer = await answer_of(calling)
    pieces = [one for one in calling.sent if isinstance(one, m.TaskPiece)]
    assert [(one.output, one.value) for one in pieces] == [("text", m.Small(value="a")), ("text", m.Small(value="b"))]
    assert set(answer.outputs) == {"finish"}, "the rest has left in pieces"
