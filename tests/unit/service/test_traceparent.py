"""A run takes part in its caller's trace: the header is kept with it, and answered with the run's own span."""

from __future__ import annotations

import pytest

from tests.unit.service.conftest import Running
from walkgraph.telemetry import traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = f"00-{TRACE}-{SPAN}-01"
DRAW = "/v1/tasks/shapes/text_to_image"
BODY = {"inputs": {"prompt": "a red circle"}}


@pytest.mark.parametrize("seed", [7, 14])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_of_a_task_names_the_runs_span(service: Running, stream: bool, seed: int) -> None:
    await service.deploy()
    body = {**BODY, "params": {"seed": seed}, "stream": stream}
    answer = await service.http.post(DRAW, json=body, headers={"traceparent": CALLER})
    told = traceparent.parse(answer.headers["traceparent"])
    [run] = (await service.http.get("/api/v1/runs")).json()
    assert told == traceparent.of_run(run["id"], traceparent.parse(CALLER))
    assert told is not None
    assert (told.trace, told.sampled) == (TRACE, True)
    assert service.services.runs.live(run["id"]).parent == CALLER


@pytest.mark.parametrize("header", [None, "", "00-junk", CALLER.upper(), f"{CALLER}-more"])
async def test_a_run_without_a_caller_begins_a_trace(service: Running, header: str | None) -> None:
    await service.deploy()
    headers = {} if header is None else {"traceparent": header}
    asked = {"deployment": "shapes", "task": "text_to_image", "request": BODY}
    answer = await service.http.post("/api/v1/runs", json=asked, headers=headers)
    run = answer.json()["id"]
    assert answer.headers["traceparent"] == traceparent.write(traceparent.of_run(run, None))
    assert service.services.runs.live(run).parent == ""


async def test_other_answers_have_none(service: Running) -> None:
    await service.deploy()
    headers = {"traceparent": CALLER}
    assert "traceparent" not in (await service.http.get("/api/v1/runs", headers=headers)).headers
    assert "traceparent" not in (await service.http.post(DRAW, json={}, headers=headers)).headers


async def test_a_replay_takes_part_in_the_trace_of_who_asked_for_it(service: Running) -> None:
    await service.deploy()
    run = (await service.http.post(DRAW, json=BODY)).json()["run"]
    answer = await service.http.post(f"/api/v1/runs/{run}/replay", json={}, headers={"traceparent": CALLER})
    assert answer.status_code == 202, answer.text
    again = service.services.runs.live(answer.json()["id"])
    assert again.parent == CALLER
    assert answer.headers["traceparent"] == traceparent.write(traceparent.of_run(again.id, traceparent.parse(CALLER)))
