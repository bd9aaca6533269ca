"""Tasks over HTTP: refusals, answers, and that a run ends when its client disconnects."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from walkgraph.wire import messages as m

DRAW = "/v1/tasks/shapes/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}


@pytest.fixture
async def shapes(service: Running) -> Running:
    await service.deploy()
    return service


async def test_the_result_has_outputs_timings_and_seed(shapes: Running) -> None:
    answer = await shapes.http.post(DRAW, json={**PROMPT, "params": {"seed": 5, "steps": 4}})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    picture = result["outputs"]["image"][0]
    assert picture["type"] == "image"
    assert picture["mime"] == "image/png"
    assert base64.b64decode(picture["data"]) == PNG
    assert result["outputs"]["text"] == [{"type": "text", "text": "a red circle"}]
    assert result["seed"] == 5
    time = {
        "node": "llm",
        "rank": 0,
        "calls": 3,
        "busy": 0.02,
        "queued": 0.001,
        "walk": "",
        "inside": {},
        "spans": False,
        "kept": 0,
    }
    assert result["times"] == [time]
    submit = shapes.fleet.started[0].sent[0]
    assert isinstance(submit, m.Submit)
    assert submit.inputs == {"prompt": (m.Small(value="a red circle"),)}
    assert submit.params == {"seed": 5, "steps": 4}
    assert submit.deadline == 600.0


async def test_parts_keep_their_order(shapes: Running) -> None:
    data = base64.b64encode(PNG).decode()
    parts = [
        {"type": "image", "data": f"data:image/png;base64,{data}"},
        {"type": "text", "text": "make it blue"},
        {"type": "image", "data": data},
    ]
    answer = await shapes.http.post("/v1/tasks/shapes/edit", json={"inputs": {"parts": parts}})
    assert answer.status_code == 200, answer.text
    submit = shapes.fleet.started[0].sent[0]
    assert isinstance(submit, m.Submit)
    assert [part.modality for part in submit.parts] == ["image", "text", "image"]
    assert submit.parts[0].value == submit.parts[2].value == m.Blob(data=PNG)


REFUSED = [
    ({}, "/inputs/prompt"),
    ({"inputs": {"prompt": 3}}, "/inputs/prompt"),
    ({"inputs": {"promt": "a"}}, "/inputs/promt"),
    ({"inputs": []}, "/inputs"),
    ({"inputs": {"prompt": []}}, "/inputs/prompt"),
    ({"inputs": {"parts": [{"type": "image", "data": "AAAA"}]}}, "/inputs/parts/0"),
    ({"inputs": {"parts": [{"type": "text"}]}}, "/inputs/parts/0"),
    ({**PROMPT, "params": {"steps": 1}}, "/params/steps"),
    ({**PROMPT, "params": {"steps": 201}}, "/params/steps"),
    ({**PROMPT, "params": {"steps": 4.5}}, "/params/steps"),
    ({**PROMPT, "params": {"steps": True}}, "/params/steps"),
    ({**PROMPT, "params": {"renorm": "loud"}}, "/params/renorm"),
    ({**PROMPT, "params": {"seed": -1}}, "/params/seed"),
    ({**PROMPT, "params": {"cfg": 1}}, "/params/cfg"),
    ({**PROMPT, "outputs": ["film"]}, "/outputs"),
    ({**PROMPT, "outputs": []}, "/outputs"),
    ({**PROMPT, "stream": "yes"}, "/stream"),
    ({**PROMPT, "deadline": 0}, "/deadline"),
    ({**PROMPT, "priority": 1000}, "/priority"),
    ({**PROMPT, "session": ""}, "/session"),
    ({**PROMPT, "code": "import os"}, "/code"),
]


@pytest.mark.parametrize(("body", "pointer"), REFUSED)
async def test_a_faulty_request_is_refused_at_its_place(shapes: Running, body: dict, pointer: str) -> None:
    answer = await shapes.http.post(DRAW, json=body)
    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert shapes.fleet.started[0].sent == []


async def test_every_fault_is_told_at_once(shapes: Running) -> None:
    body = {"inputs": {"prompt": 1}, "params": {"steps": 1, "shift": 99}, "outputs": ["film"]}
    errors = (await shapes.http.post(DRAW, json=body)).json()["errors"]
    assert {e["pointer"] for e in errors} == {"/inputs/prompt", "/params/steps", "/params/shift", "/outputs"}


@pytest.mark.parametrize("given", ["http://127.0.0.1/x.png", "file:///etc/passwd", "data:image/png,raw", "%%%", ""])
async def test_media_are_data_never_addresses(shapes: Running, given: str) -> None:
    answer = await shapes.http.post("/v1/tasks/shapes/image_to_text", json={"inputs": {"image": given}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/inputs/image"


async def test_the_schema_agrees_with_the_checks(shapes: Running) -> None:
    """Naive twin: the published JSON Schema accepts and refuses what the service does."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = (await shapes.http.get(DRAW)).json()["schema"]
    validator = jsonschema.Draft202012Validator(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert validator.is_valid({**PROMPT, "params": {"steps": 4, "seed": 1}, "stream": True})
    assert validator.is_valid({"inputs": {"parts": [{"type": "text", "text": "a"}]}})
    for body, pointer in REFUSED:
        assert not validator.is_valid(body), (body, pointer)


async def test_a_stream_tells_events_as_they_come(shapes: Running) -> None:
    for extra, headers in (({"stream": True}, {}), ({}, {"Accept": "text/event-stream"})):
        answer = await shapes.http.post(DRAW, json={**PROMPT, **extra}, headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        names = [lines[0].removeprefix("event: ") for lines in events]
        assert names == ["accepted", "output", "output", "output", "output", "done"]
        output = json.loads(events[1][2].removeprefix("data: "))
        assert output["name"] == "preview"
        assert output["value"]["mime"] == "image/png"


async def test_a_failed_run_is_a_typed_problem(shapes: Running) -> None:
    answer = await shapes.http.post(DRAW, json={**PROMPT, "params": {"seed": 14}})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"] == "urn:walkgraph:problem:numeric-error"
    assert (problem["error"]["node"], problem["error"]["port"]) == ("llm", "velocity")
    streamed = await shapes.http.post(DRAW, json={**PROMPT, "params": {"seed": 14}, "stream": True})
    assert "event: error" in streamed.text


async def test_unknown_deployments_and_tasks_are_not_found(shapes: Running) -> None:
    for path in ("/v1/tasks/nothing/text_to_image", "/v1/tasks/shapes/text_to_video"):
        assert (await shapes.http.post(path, json=PROMPT)).status_code == 404
    assert "did you mean `text_to_image`" in (await shapes.http.post("/v1/tasks/shapes/text_to_imag", json={})).text


async def test_a_run_ends_with_its_client(shapes: Running) -> None:
    request = asyncio.create_task(shapes.http.post(DRAW, json={**PROMPT, "params": {"seed": 13}}))
    fake = shapes.fleet.started[0]
    run = await fake.waiting.get()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    end = await shapes.services.runs.live(run).ended()
    assert end.error is not None
    assert fake.sent[-1] == m.Abort(run=run, reason="disconnected")


async def test_runs_go_on_without_a_client_and_are_remembered(shapes: Running) -> None:
    body = {"deployment": "shapes", "task": "text_to_image", "request": {**PROMPT, "params": {"seed": 13}}}
    made = await shapes.http.post("/api/v1/runs", json=body)
    assert made.status_code == 202
    run = made.json()["id"]
    assert made.json()["state"] == "running"
    assert (await shapes.http.delete(f"/api/v1/runs/{run}")).json() == {"state": "cancelling"}
    await shapes.services.runs.live(run).ended()
    found = (await shapes.http.get(f"/api/v1/runs/{run}")).json()
    assert found["state"] == "cancelled"
    assert found["params"] == {"seed": 13}
    await shapes.services.runs._unsaved.join()
    listed = (await shapes.http.get("/api/v1/runs", params={"state": "cancelled"})).json()
    assert [row["id"] for row in listed] == [run]
    events = await shapes.http.get(f"/api/v1/runs/{run}/events")
    assert "event: error" in events.text


async def test_a_full_queue_is_answered_with_retry_after(shapes: Running) -> None:
    body = {"deployment": "shapes", "task": "text_to_image", "request": {**PROMPT, "params": {"seed": 13}}}
    codes = [(await shapes.http.post("/api/v1/runs", json=body)).status_code for _ in range(256)]
    assert set(codes) == {202}
    full = await shapes.http.post(DRAW, json=PROMPT)
    assert full.status_code == 503
    assert full.headers["retry-after"] == "1"
    assert full.json()["retryable"] is True
    unread = await shapes.http.post(DRAW, content=b"no JSON", headers={"Content-Type": "application/json"})
    assert unread.status_code == 503, "its body isn't read"
