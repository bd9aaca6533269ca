"""Traces of runs are there while they go on, kept when they are over, and outlive their deployment."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
import structlog

from tests.support.telling import A, activity, forward, packet, phase, sample
from tests.unit.service.conftest import Running
from walkgraph.ids import RunId
from walkgraph.service.observe.trace_sink import BATCH, MAX_ENDED, MAX_WAITING
from walkgraph.store.tables import RunTrace
from walkgraph.store.traces import save_traces
from walkgraph.telemetry import events as e
from walkgraph.wire.answers.traces import Statistics, Why


def tell(service: Running, source: str, *told: e.Any, first: int = 0) -> None:
    label = service.services.deployments.get("shapes").serving.label
    service.services.trace_sink.take(packet(source, first, *told, deployment=label), "shapes", "v1", 100)


async def start(service: Running) -> RunId:
    """A run that goes on until it is ended."""
    body = {"deployment": "shapes", "task": "text_to_image", "request": {"inputs": {"prompt": "a"}, "params": {}}}
    body["request"] = {"inputs": {"prompt": "a"}, "params": {"seed": 13}}
    answer = await service.http.post("/api/v1/runs", json=body)
    assert answer.status_code == 202, answer.text
    return RunId(answer.json()["id"])


async def listed(service: Running, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(60):
        while True:
            found = (await service.http.get("/api/v1/deployments/shapes/traces")).json()
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


async def test_a_run_has_a_trace_from_its_start_on_and_it_is_kept(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    path = f"/api/v1/runs/{run}/trace"
    untold = (await service.http.get(path)).json()
    assert (untold["level"], untold["state"], untold["blocks"]["kind"]) == ("off", "running", [])
    now = time.monotonic()
    tell(service, "conductor", phase(run, "queued", now), phase(run, "started", now))
    tell(service, "rank 0.1", forward((now, now, now + 0.1, now + 0.2), (run,)), sample(run, now + 0.2))
    going = (await service.http.get(path)).json()
    assert (going["state"], going["level"], going["blocks"]["finished"]) == ("running", "full", [200_000])
    assert going["devices"] == ["cpu"]
    assert await listed(service, 0) == []
    tell(service, "conductor", phase(run, "finished", now + 0.3), first=2)
    over = (await service.http.get(path)).json()
    assert (over["state"], over["seconds"]) == ("done", 0.3)
    (row,) = await listed(service, 1)
    assert (row["run"], row["state"], row["level"], row["blocks"], row["recorded"]) == (run, "done", "full", 1, True)
    # From the store now.
    assert (await service.http.get(path)).json() == over
    recording = await service.services.traces.recording(run)
    assert recording is not None
    assert recording == (sample(run, now + 0.2),)
    served = over["served"]
    assert served["ended"] is None
    assert served["received"] <= served["read"] <= served["submitted"] <= served["first_sent"] <= served["last_sent"]
    await service.http.delete("/api/v1/deployments/shapes?grace=0")
    later = (await service.http.get(path)).json()
    assert {**later, "served": {}} == {**over, "served": {}}
    # The service hears of the end after the trace was stored.
    assert later["served"]["ended"] > later["served"]["submitted"] == over["served"]["submitted"]


async def test_a_trace_can_be_had_as_files(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    tell(service, "conductor", phase(run, "queued", 10.0), phase(run, "started", 10.0))
    tell(service, "rank 0.1", activity(run, (10.0, 11.0)))
    for kind, key in (("perfetto", "traceEvents"), ("otlp", "resourceSpans")):
        answer = await service.http.get(f"/api/v1/runs/{run}/trace?format={kind}")
        assert answer.headers["content-disposition"] == f'attachment; filename="{run}.{kind}.json"'
        assert key in answer.json()
    assert (await service.http.get(f"/api/v1/runs/{run}/trace?format=yaml")).status_code == 422


async def test_there_is_none_of_a_run_that_was_never_here(service: Running) -> None:
    answer = await service.http.get(f"/api/v1/runs/{A}/trace")
    assert answer.status_code == 404
    assert "telemetry was off" in answer.text
    assert (await service.http.get("/api/v1/deployments/shapes/traces")).json() == []
    assert await service.services.traces.recording(A) is None


async def test_a_run_of_which_nonsense_was_told_costs_its_own_trace_only(service: Running) -> None:
    await service.deploy()
    runs = [await start(service) for _ in range(2)]
    now = time.monotonic()
    ends = (now, now, now + 0.1, now + 0.2)
    for number, (run, started) in enumerate(zip(runs, (now, 1e300), strict=True)):
        tell(service, "conductor", phase(run, "queued", now), phase(run, "started", started), first=3 * number)
        tell(service, "rank 0.1", forward(ends, (run,)), first=number)
        tell(service, "conductor", phase(run, "finished", now + 0.3), first=3 * number + 2)
    with structlog.testing.capture_logs() as logged:
        (row,) = await listed(service, 1)
        # It waits until the run is dealt with.
        assert await service.services.traces.recording(runs[1]) is None
    assert row["run"] == runs[0]
    assert [(entry["event"], entry["run"]) for entry in logged] == [("trace not made", runs[1])]
    assert (await service.http.get(f"/api/v1/runs/{runs[1]}/trace")).json()["level"] == "off"


async def test_a_run_whose_process_died_has_its_end_from_the_service(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    now = time.monotonic()
    tell(service, "conductor", phase(run, "queued", now), phase(run, "started", now))
    service.fleet.started[0].die(9)
    (row,) = await listed(service, 1)
    assert (row["run"], row["state"]) == (run, "failed")
    assert (await service.http.get(f"/api/v1/runs/{run}/trace")).json()["error"] == "worker_lost"


async def test_runs_that_end_with_the_service_are_kept(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    tell(service, "conductor", phase(run, "queued", 10.0))
    await service.services.trace_sink.close()
    (row,) = await listed(service, 1)
    assert row["run"] == run


async def test_why_a_run_took_its_time_and_what_nodes_do_are_answered(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    tell(service, "conductor", phase(run, "queued", 10.0), phase(run, "started", 10.25))
    tell(service, "rank 0.1", forward((10.25, 10.25, 10.5, 11.0), (run, A)))
    tell(service, "conductor", phase(run, "finished", 11.0), first=2)
    answer = await service.http.get(f"/api/v1/runs/{run}/why")
    found = msgspec.convert(answer.json(), Why)
    assert found["shares"] == {
        "admission": 0.25,
        "queue": 0.0,
        "launch": 0.25,
        "compute": 0.5,
        "transfer": 0.0,
        "wait": 0.0,
    }
    assert [piece["kind"] for piece in found["path"]] == ["admission", "launch", "compute"]
    assert found["bottleneck"] is not None
    assert found["bottleneck"]["lane"] == "llm"
    assert found["profile"]["exact"]
    assert sum(row["seconds"] for row in found["profile"]["shares"]) == pytest.approx(found["profile"]["seconds"])
    await listed(service, 1)
    for _ in range(2):
        answer = await service.http.get("/api/v1/deployments/shapes/statistics?task=text_to_image")
        figures = msgspec.convert(answer.json(), Statistics)
        (node,) = figures["nodes"]
        assert (figures["runs"], node["node"]) == (1, "llm")
        assert (node["p50"], node["busy"], node["share"]) == (500.0, 0.25, 0.75)
    none = (await service.http.get("/api/v1/deployments/shapes/statistics?task=other")).json()
    assert none == {"runs": 0, "nodes": []}
    assert (await service.http.get(f"/api/v1/runs/{A}/why")).status_code == 404


async def test_a_recorded_run_is_kept_where_telemetry_is_off(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    tell(service, "rank 0.1", sample(run, time.monotonic()))
    service.fleet.started[0].finish(await service.fleet.started[0].waiting.get())
    (row,) = await listed(service, 1)
    assert (row["task"], row["state"], row["level"], row["recorded"]) == ("text_to_image", "done", "off", True)
    found = (await service.http.get(f"/api/v1/runs/{run}/trace")).json()
    # As the service has seen them: the run took half a second, and waited for none of it.
    assert found["phases"] == pytest.approx({"queued": 0, "started": 0, "finished": 500_000}, abs=1000)
    assert found["seconds"] == row["seconds"] == pytest.approx(0.5, abs=0.001)
    assert [(end["loop"], end["iterations"], end["reason"]) for end in found["ends"]] == [("tokens", 5, "bound")]


async def test_a_recording_waits_for_what_is_on_its_way_at_the_end(service: Running) -> None:
    await service.deploy()
    run = await start(service)
    now = time.monotonic()
    tell(service, "conductor", phase(run, "queued", now), phase(run, "finished", now + 0.1))
    tell(service, "rank 0.1", sample(run, now + 0.05))
    asking = asyncio.create_task(service.services.traces.recording(run))
    await asyncio.sleep(0.02)
    assert not asking.done()
    tell(service, "rank 0.1", sample(run, now + 0.06), first=1)
    assert await asking == (sample(run, now + 0.05), sample(run, now + 0.06))


async def test_the_list_waits_for_a_run_that_has_just_ended(service: Running) -> None:
    await service.deploy()
    run, going = await start(service), await start(service)
    now = time.monotonic()
    tell(
        service, "conductor", phase(going, "queued", now), phase(run, "queued", now), phase(run, "finished", now + 0.1)
    )
    found = (await service.http.get("/api/v1/deployments/shapes/traces")).json()
    assert [row["run"] for row in found] == [run]


async def test_traces_of_another_version_are_as_if_there_were_none(service: Running) -> None:
    row = RunTrace(
        run=A,
        deployment="shapes",
        task="draw",
        state="done",
        level="full",
        created_at=1.0,
        seconds=1.0,
        blocks=1,
        nbytes=5,
        recorded=True,
        trace=b"other",
        recording=b"other",
    )
    await service.services.store.write(save_traces, [row], 10)
    assert (await service.http.get(f"/api/v1/runs/{A}/trace")).status_code == 404
    assert await service.services.traces.recording(A) is None
    assert (await service.http.get("/api/v1/deployments/shapes/statistics")).json()["runs"] == 0


async def test_runs_that_end_while_a_batch_is_made_are_bounded_at_every_moment(service: Running) -> None:
    await service.deploy()
    now, sink = time.monotonic(), service.services.trace_sink
    for number in range(MAX_ENDED + 25):
        told = [phase(RunId(f"{number:032x}"), what, now + number) for what in ("queued", "finished")]
        tell(service, "conductor", *told, first=2 * number)
        assert sink.given_up == max(0, number + 1 - MAX_ENDED)


@pytest.mark.parametrize(("runs", "given_up"), [(MAX_WAITING, 0), (MAX_WAITING + 40, 40)])
async def test_of_a_burst_the_oldest_go_only_where_too_many_wait(service: Running, runs: int, given_up: int) -> None:
    await service.deploy()
    now = time.monotonic()
    for number in range(runs):
        run = RunId(f"{number:032x}")
        told = [phase(run, what, now + number) for what in ("queued", "finished")]
        tell(service, "conductor", *told, first=2 * number)
    # Something later, by which all of them are known to be whole.
    tell(service, "conductor", phase(RunId(f"{runs:032x}"), "queued", now + runs), first=2 * runs)
    found = await listed(service, BATCH)
    assert service.services.trace_sink.given_up == given_up
    assert int(found[-1]["run"], 16) >= given_up
