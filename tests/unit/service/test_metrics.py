"""Prometheus metrics: its parser accepts them, every run counts once, labels are few, and they need a token."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.service.conftest import Running
from walkgraph.ids import Rank, RunId
from walkgraph.service.observe import metrics as told
from walkgraph.service.observe.metrics import Metrics
from walkgraph.telemetry import events as e
from walkgraph.wire import messages as m

DRAW = "/v1/tasks/shapes/text_to_image"
OF_TASK = {"deployment": "shapes", "task": "text_to_image"}
Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


async def scrape(service: Running) -> Found:
    answer = await service.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found: Found = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation, family.name
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(found: Found, name: str, **labels: str) -> float | None:
    return found.get(f"walkgraph_{name}", {}).get(tuple(sorted(labels.items())))


async def draw(service: Running, seed: int = 7, task: str = "text_to_image") -> int:
    body = {"inputs": {"prompt": "a red circle"}, "params": {"seed": seed}}
    return (await service.http.post(f"/v1/tasks/shapes/{task}", json=body)).status_code


async def test_every_run_is_counted_once(service: Running) -> None:
    await service.deploy()
    assert [await draw(service) for _ in range(3)] == [200] * 3
    assert await draw(service, seed=14) == 422
    found = await scrape(service)
    assert value(found, "request_success_total", **OF_TASK, finished_reason="stop") == 3
    assert value(found, "request_failure_total", **OF_TASK, code="numeric_error") == 1
    assert value(found, "e2e_request_latency_seconds_count", **OF_TASK) == 4
    assert value(found, "e2e_request_latency_seconds_sum", **OF_TASK) == pytest.approx(1.5)
    assert value(found, "request_queue_time_seconds_sum", **OF_TASK) == pytest.approx(0.3)
    assert value(found, "time_to_first_token_seconds_count", **OF_TASK) == 3
    assert value(found, "inter_token_latency_seconds_count", **OF_TASK) == 9
    assert value(found, "deployment_up", deployment="shapes") == 1
    assert value(found, "worker_up", deployment="shapes", rank="0") == 1
    assert value(found, "worker_restarts_total", deployment="shapes", rank="0") == 0
    assert value(found, "num_requests_running", deployment="shapes") == 0
    assert found["process_resident_memory_bytes"]


async def test_answers_that_their_count_cut_or_playback_caught_up_with_are_told_apart(service: Running) -> None:
    await service.deploy()
    assert [await draw(service, seed) for seed in (15, 15, 7)] == [200] * 3
    found = await scrape(service)
    assert value(found, "request_success_total", **OF_TASK, finished_reason="length") == 2
    assert value(found, "playback_seconds_total", **OF_TASK) == 60
    assert value(found, "playback_underruns_total", **OF_TASK) == 4
    assert value(found, "playback_late_seconds_total", **OF_TASK) == 0.5
    assert value(found, "request_success_total", **OF_TASK, finished_reason="stop") == 1


async def test_a_cancelled_run_is_told_apart(service: Running) -> None:
    await service.deploy()
    body = {"inputs": {"prompt": "x"}, "params": {"seed": 13}}
    asked = {"deployment": "shapes", "task": "text_to_image", "request": body}
    run = (await service.http.post("/api/v1/runs", json=asked)).json()["id"]
    await service.fleet.started[0].waiting.get()
    await service.http.delete(f"/api/v1/runs/{run}")
    live = service.services.runs.live(run)
    await live.ended()
    found = await scrape(service)
    assert value(found, "request_success_total", **OF_TASK, finished_reason="abort") == 1
    assert value(found, "time_to_first_token_seconds_count", **OF_TASK) is None


async def test_what_is_refused_is_counted_by_reason(service: Running) -> None:
    await service.deploy()
    assert await draw(service, task="nothing") == 404
    assert (await service.http.post(DRAW, json={})).status_code == 422
    assert (await service.http.post("/v1/tasks/unknown/x", json={})).status_code == 404
    run = service.services.deployments.get("shapes").serving.submit(
        m.Submit(run=RunId("e" * 32), task="text_to_image", params={"seed": 13}, inputs={})
    )
    error = m.ErrorInfo(code="overloaded", message="full", retryable=True)
    run.take(m.Rejected(run=run.id, error=error))
    found = await scrape(service)
    assert found["walkgraph_admission_rejections_total"] == {
        (("deployment", "shapes"), ("reason", "not_found")): 1,
        (("deployment", "shapes"), ("reason", "invalid_input")): 1,
        (("deployment", "shapes"), ("reason", "overloaded")): 1,
    }
    assert value(found, "e2e_request_latency_seconds_count", **OF_TASK) is None


async def test_packets_are_counted_under_the_names_of_the_plan(service: Running) -> None:
    await service.deploy()
    managed = service.services.deployments.get("shapes")
    plan = managed.serving.plan
    assert plan is not None
    walk = next(walk for walk in plan.walks if walk.edges)
    transfer = e.Transfer(
        run=RunId("a" * 32), source=Rank(0), target=Rank(1), walk=walk.name, edge=walk.edges[0].index, stream=False,
        step=0, key=(), transport="shm", count=1, nbytes=64, at=0.0,
    )  # fmt: skip
    version = managed.serving.label.partition(" ")[2]
    packet = e.Packet(deployment="", source="rank 0.1", first=0, dropped=2, wall=0.0, events=(transfer,))
    service.services.metrics.take(packet, "shapes", version, 0)
    found = await scrape(service)
    [(labels, nbytes)] = found["walkgraph_edge_bytes_total"].items()
    assert nbytes == 64
    assert " -> " in dict(labels)["edge"]
    assert value(found, "telemetry_dropped_total", deployment="shapes", source="rank 0") == 2


async def test_a_deployment_that_is_gone_goes_after_a_while(service: Running) -> None:
    await service.deploy()
    now = [0.0]
    services = service.services
    metrics = Metrics(services.deployments, services.hub, {}, now=lambda: now[0])
    services.runs._heard = metrics.heard
    await draw(service)
    assert b'finished_reason="stop"' in metrics.render("")[0]
    await service.http.delete("/api/v1/deployments/shapes")
    metrics.render("")
    now[0] = told.KEEP_SECONDS - 1
    assert b'finished_reason="stop"' in metrics.render("")[0]
    now[0] = told.KEEP_SECONDS + 1
    assert b"shapes" not in metrics.render("")[0]


async def test_the_form_is_the_readers_choice(service: Running) -> None:
    await service.deploy()
    await asyncio.gather(*(draw(service) for _ in range(2)))
    answer = await service.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in parse_open_metrics(answer.text)}
    assert families["walkgraph_request_success"].type == "counter"
    assert families["walkgraph_node_execution_seconds"].type == "histogram"


async def test_only_who_has_the_token_reads_it(service: Running) -> None:
    assert (await service.anybody.get("/metrics")).status_code == 401
