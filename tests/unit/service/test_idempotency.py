"""A request that is sent again is the same request: over HTTP, and keys alone against a plain list of what was sent."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from walkgraph.errors import ErrorInfo
from walkgraph.ids import RunId
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.runs.idempotency import Handle, Keys
from walkgraph.service.runs.runs import LiveRun
from walkgraph.wire import messages as m

TASK = "/v1/tasks/shapes/text_to_image"
KEY = {"Idempotency-Key": "k-1"}


def body(seed: int = 7, **more: Any) -> dict[str, Any]:
    return {"inputs": {"prompt": "a circle"}, "params": {"steps": 4, "seed": seed}, **more}


def submits(service: Running) -> list[m.Submit]:
    return [message for message in service.fleet.started[0].sent if isinstance(message, m.Submit)]


async def test_the_same_request_again_is_answered_by_the_same_run(service: Running) -> None:
    await service.deploy()
    first = await service.http.post(TASK, json=body(), headers=KEY)
    again = await service.http.post(TASK, json=body(), headers=KEY)
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert first.headers["x-request-id"] == again.headers["x-request-id"] == first.json()["run"]
    assert len(submits(service)) == 1
    fresh = await service.http.post(TASK, json=body())
    assert fresh.json()["run"] != first.json()["run"]
    other = await service.http.post(TASK, json=body(), headers={"Idempotency-Key": "k-2"})
    assert other.json()["run"] != first.json()["run"]


async def test_another_request_with_the_key_is_refused(service: Running) -> None:
    await service.deploy()
    await service.http.post(TASK, json=body(7), headers=KEY)
    for other in (body(8), body(7, priority=1)):
        answer = await service.http.post(TASK, json=other, headers=KEY)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["code"] == "idempotency_conflict"
        assert answer.headers["x-should-retry"] == "false"
    assert len(submits(service)) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "ü"])
async def test_a_key_that_is_none_is_refused(service: Running, key: str) -> None:
    await service.deploy()
    answer = await service.http.post(TASK, json=body(), headers=[(b"Idempotency-Key", key.encode())])
    assert answer.status_code == 422
    assert "Idempotency-Key" in answer.json()["detail"]


async def test_a_retry_joins_while_it_runs(service: Running) -> None:
    await service.deploy()
    fake = service.fleet.started[0]
    asked = [asyncio.create_task(service.http.post(TASK, json=body(13), headers=KEY)) for _ in range(3)]
    run = await fake.waiting.get()
    while service.services.runs.get(run)._clients < 3:  # noqa: ASYNC110 - joining is told to nobody
        await asyncio.sleep(0)
    fake.finish(run)
    answers = await asyncio.gather(*asked)
    assert {answer.json()["run"] for answer in answers} == {run}
    assert len(submits(service)) == 1


async def test_a_request_that_was_refused_leaves_its_key_free(service: Running) -> None:
    await service.deploy()
    bad = body()
    bad["params"]["steps"] = 1000
    assert (await service.http.post(TASK, json=bad, headers=KEY)).status_code == 422
    assert len(service.services.idempotency) == 0
    assert (await service.http.post(TASK, json=body(), headers=KEY)).status_code == 200


@pytest.mark.parametrize(("given", "echoed"), [("abc-1_X", True), ("x" * 65, False), ("a b", False), ("", False)])
async def test_a_request_has_an_id(service: Running, given: str, echoed: bool) -> None:
    answer = await service.http.get("/v1/limits", headers={"X-Request-Id": given})
    assert (answer.headers["x-request-id"] == given) is echoed
    refused = await service.anybody.get("/v1/limits")
    assert refused.status_code == 401
    assert len(refused.headers["x-request-id"]) == 32


URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
ASK = {"model": "shapes", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}]}
DRAW = {"model": "shapes", "prompt": "a circle"}
FORM = {"instruction": (None, "blue")}
PROMPT = {"inputs": [{"name": "prompt", "datatype": "BYTES", "shape": [1], "data": ["a circle"]}]}
SURFACES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"json": ASK}, {"json": {**ASK, "stop": "x"}}),
    ("/v1/chat/completions", {"json": {**ASK, "n": 3}}, {"json": {**ASK, "n": 2}}),
    ("/v1/chat/completions", {"json": {**ASK, "stream": True}}, {"json": {**ASK, "stream": False}}),
    ("/v1/images/generations", {"json": DRAW}, {"json": {**DRAW, "output_format": "webp"}}),
    (
        "/v1/images/edits",
        {"data": {"model": "shapes", "prompt": "blue"}, "files": {"image": ("a.png", PNG, "image/png")}},
        {"data": {"model": "shapes", "prompt": "blue"}, "files": {"image": ("a.png", PNG + b"x", "image/png")}},
    ),
    (
        "/v1/tasks/shapes/edit",
        {"files": {**FORM, "image": ("a.png", PNG, "image/png")}},
        {"files": {**FORM, "image": ("a.png", PNG + b"x", "image/png")}},
    ),
    ("/v2/models/shapes/infer", {"json": PROMPT}, {"json": {**PROMPT, "parameters": {"steps": 9}}}),
    (
        "/api/v1/runs",
        {"json": {"deployment": "shapes", "task": "text_to_image", "request": body()}},
        {"json": {"deployment": "shapes", "task": "text_to_image", "request": body(8)}},
    ),
)


@pytest.mark.parametrize(("path", "sent", "other"), SURFACES, ids=[f"{i} {row[0]}" for i, row in enumerate(SURFACES)])
async def test_every_surface_knows_keys(
    service: Running, path: str, sent: dict[str, Any], other: dict[str, Any]
) -> None:
    await service.deploy()
    answers = [await service.http.post(path, headers=KEY, **sent) for _ in range(2)]
    assert {answer.status_code for answer in answers} <= {200, 202}, answers[0].text
    assert answers[0].headers["x-request-id"] == answers[1].headers["x-request-id"]
    assert len(submits(service)) == sent.get("json", {}).get("n", 1)
    refused = await service.http.post(path, headers=KEY, **other)
    assert refused.status_code in (400, 422)
    assert "idempotency_conflict" in refused.text or path.startswith("/v2")
    assert len(submits(service)) == sent.get("json", {}).get("n", 1)


# ── keys by themselves ──────────────────────────────────────────────────────────────────────────


def live(name: int) -> LiveRun:
    return LiveRun(m.Submit(run=RunId(f"r{name}"), task="t", params={}, inputs={}), "d", lambda _: None)


class Naive:
    """A list of what was sent, gone through from its start."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str, str, Any, LiveRun]] = []

    def run(self, at: float, caller: str, key: str, asked: Any, begin: Any) -> LiveRun | None:
        """None: refused."""
        for then, who, what, request, run in reversed(self.sent):
            if (who, what) != (caller, key) or then <= at - 600:
                continue
            ended_in_vain = run.finished and run.finished.error and run.finished.error.retryable
            if run.abandoned or ended_in_vain:
                break
            return run if request == asked else None
        run = begin()
        self.sent.append((at, caller, key, asked, run))
        return run


def taken(keys: Keys, caller: str, key: str, asked: Any, begin: Any) -> LiveRun | None:
    try:
        handle: Handle = keys.handle(caller, key, asked)
    except Unprocessable:
        return None
    return handle.run(begin)


@pytest.mark.parametrize("seed", range(20))
def test_keys_are_those_of_a_plain_list(seed: int) -> None:
    draw = random.Random(seed)
    clock = 0.0
    keys, naive = Keys(lambda: clock), Naive()
    for number in range(200):
        clock += draw.choice((0.0, 1.0, 50.0, 300.0))
        asked = (draw.choice("xy"), draw.choice("kl"), {"n": draw.randrange(2)})
        made = live(number)
        found = taken(keys, *asked, lambda made=made: made)
        assert found is naive.run(clock, *asked, lambda made=made: made)
        if found is not None and found.finished is None:
            draw.choice((lambda _: None, end, fail, LiveRun.abort))(found)


def end(run: LiveRun) -> None:
    run.take(m.Finished(run=run.id))


def fail(run: LiveRun) -> None:
    error = ErrorInfo(code="worker_lost", message="lost", retryable=True)
    run.take(m.Finished(run=run.id, error=error))


def test_a_client_that_leaves_does_not_end_what_another_waits_for() -> None:
    sent: list[Any] = []
    run = LiveRun(m.Submit(run=RunId("r"), task="t", params={}, inputs={}), "d", sent.append)
    keys = Keys()
    assert taken(keys, "c", "k", 1, lambda: run) is taken(keys, "c", "k", 1, lambda: live(0)) is run
    run.abort("disconnected")
    assert sent == []
    assert not run.abandoned
    run.abort("disconnected")
    assert sent == [m.Abort(run=run.id, reason="disconnected")]
    assert taken(keys, "c", "k", 1, lambda: live(1)) is not run


def test_keys_are_bounded_in_number_and_in_bytes() -> None:
    keys = Keys(most=5, most_bytes=1000)
    runs = [live(i) for i in range(20)]
    for i, run in enumerate(runs):
        assert taken(keys, "c", str(i), i, lambda run=run: run) is run
        assert len(keys) <= 5
    for run in runs[-5:]:
        text = m.Small(value="x" * 400)
        run.take(m.Output(run=run.id, name="text", index=0, value=text))
        end(run)
    last = live(99)
    assert taken(keys, "c", "last", 0, lambda: last) is last
    assert len(keys) == 3
    assert taken(keys, "c", "19", 19, lambda: live(0)) is runs[19]
    assert taken(keys, "c", "15", 15, lambda: last) is last
