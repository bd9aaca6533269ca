"""A deployment changes over to another version without a pause, in whatever order things happen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.errors import NotFound
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.service.deployments import deployer, judging, supervisor
from walkgraph.service.deployments.managed import Managed
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.store.session import StoreFull

PATH = "/api/v1/deployments/shapes"
DRAW = "/v1/tasks/shapes/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}
WAITS = {**PROMPT, "params": {"seed": 13}}


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Running]:
    """With one version that serves; later ones are ready when the test says so."""
    async with serving(settings, FakeFleet()) as running:
        await running.deploy()
        running.fleet.ready = False
        yield running


def managed(service: Running) -> Managed:
    return service.services.deployments.get("shapes")


async def changed(service: Running) -> dict[str, Any]:
    """The shapes graph with another description."""
    document = (await service.http.get("/api/v1/graphs/shapes")).json()
    return document | {"description": "changed"}


async def switch(service: Running, graph: Any = None, **query: float) -> dict[str, Any]:
    body = {"graph": graph or await changed(service), "placement": "shapes_one_cpu"}
    answer = await service.http.put(PATH, json=body, params=query)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def until(service: Running, holds: Any) -> dict[str, Any]:
    found = managed(service)
    while not holds(found):
        await found.changed.wait()
    return (await service.http.get(PATH)).json()


async def switched(service: Running) -> dict[str, Any]:
    return await until(service, lambda found: found.next is None)


async def stored(service: Running) -> str:
    (row,) = await service.services.store.read(queries.list_deployments)
    return row.graph_text


async def test_the_old_version_serves_until_the_new_one_is_ready(service: Running) -> None:
    before = (await service.http.get(PATH)).json()
    assert before["next"] is None
    answered = await switch(service)
    assert answered["next"]["state"] == "starting"
    assert answered["revision"] > before["revision"]
    new = await service.fleet.until(2)
    old = service.fleet.started[0]
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
    assert (len(old.sent), len(new.sent)) == (1, 0)
    assert "changed" not in await stored(service)
    assert old.alive
    new.ready()
    after = await switched(service)
    assert (after["state"], after["created_at"]) == ("ready", before["created_at"])
    assert after["digest"] != before["digest"]
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
    assert (len(old.sent), len(new.sent)) == (1, 1)
    await old.gone.wait()
    assert "changed" in await stored(service)
    assert (await service.http.get(f"{PATH}/graph")).json()["description"] == "changed"
    assert new.alive
    (listed,) = (await service.http.get("/api/v1/deployments")).json()
    assert listed["state"] == "ready"


async def test_runs_of_the_old_version_finish(service: Running) -> None:
    old = service.fleet.started[0]
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITS}
    runs = [(await service.http.post("/api/v1/runs", json=body)).json()["id"] for _ in range(2)]
    for _ in runs:
        await old.waiting.get()
    await switch(service, grace=600)
    (await service.fleet.until(2)).ready()
    await switched(service)
    assert old.alive
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
    for run in runs:
        assert old.alive
        old.finish(run)
        assert (await service.services.runs.live(run).ended()).error is None
    await old.gone.wait()
    assert old.graces == [600.0]


async def test_runs_that_outlast_the_grace_end_with_an_error(service: Running) -> None:
    old = service.fleet.started[0]
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITS}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    await old.waiting.get()
    await switch(service, grace=0)
    (await service.fleet.until(2)).ready()
    end = await service.services.runs.live(run).ended()
    assert end.error is not None
    assert (end.error.code, end.error.retryable) == ("shutting_down", True)


@pytest.mark.safety("R11")
async def test_a_new_version_that_fails_leaves_the_old_one_serving(service: Running) -> None:
    await switch(service)
    new = await service.fleet.until(2)
    new.failed("the weights are torn")
    found = await until(service, lambda found: found.next and found.next.state == "failed")
    assert (found["state"], found["next"]["reason"]) == ("ready", "the weights are torn")
    await new.gone.wait()
    assert (await service.http.get(PATH)).json()["next"]["reason"] == "the weights are torn"
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
    assert service.fleet.started[0].graces == []
    assert "changed" not in await stored(service)
    assert (await service.http.delete(f"{PATH}/next")).status_code == 204
    assert (await service.http.get(PATH)).json()["next"] is None
    assert (await service.http.delete(f"{PATH}/next")).status_code == 404
    await switch(service)
    (await service.fleet.until(3)).ready()
    assert (await switched(service))["state"] == "ready"


async def test_a_new_version_that_ends_again_and_again_fails(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_FIRST", 0.001)
    monkeypatch.setattr(supervisor, "BACKOFF_LAST", 0.002)
    await switch(service)
    for count in range(supervisor.MAX_RESTARTS + 1):
        (await service.fleet.until(2 + count)).die(1)
    found = await until(service, lambda found: found.next and found.next.state == "failed")
    assert "times in a minute" in found["next"]["reason"]
    assert (found["state"], found["restarts"]) == ("ready", 0)


async def test_a_second_switch_replaces_the_first(service: Running) -> None:
    await switch(service)
    first = await service.fleet.until(2)
    answered = await switch(service, "shapes")
    assert answered["next"]["state"] == "starting"
    second = await service.fleet.until(3)
    assert not first.alive
    assert first.graces == [0.0]
    assert len(set(service.fleet.directories)) == 3
    # Too late.
    first.ready()
    assert (await service.http.get(PATH)).json()["next"]["state"] == "starting"
    second.ready()
    await switched(service)
    assert "changed" not in await stored(service)
    assert [fake.alive for fake in service.fleet.started] == [False, False, True]


async def test_a_version_waits_for_the_end_of_the_one_it_replaces(service: Running) -> None:
    await switch(service)
    first = await service.fleet.until(2)
    alive: list[bool] = []
    spawn = service.fleet.__class__.__call__

    async def watched(fleet: FakeFleet, *arguments: Any) -> Any:
        alive.append(first.alive)
        return await spawn(fleet, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFleet, "__call__", watched)
        await switch(service)
        await service.fleet.until(3)
    assert alive == [False]


async def test_undeploying_stops_both(service: Running) -> None:
    await switch(service)
    await service.fleet.until(2)
    assert (await service.http.delete(PATH, params={"grace": 3})).status_code == 204
    assert [fake.alive for fake in service.fleet.started] == [False, False]
    assert (await service.http.get(PATH)).status_code == 404
    assert (await service.services.store.read(queries.list_deployments)) == []
    service.fleet.ready = True
    await service.deploy()


async def test_undeploying_ends_a_former_version_that_still_has_runs(service: Running) -> None:
    old = service.fleet.started[0]
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITS}
    await service.http.post("/api/v1/runs", json=body)
    await old.waiting.get()
    await switch(service, grace=600)
    (await service.fleet.until(2)).ready()
    await switched(service)
    assert old.alive
    assert (await service.http.delete(PATH, params={"grace": 0})).status_code == 204
    assert [fake.alive for fake in service.fleet.started] == [False, False]


async def test_a_service_that_restarts_brings_back_what_last_was_ready(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as first:
        await first.deploy()
        first.fleet.ready = False
        await switch(first)
        await first.fleet.until(2)
    assert [fake.alive for fake in first.fleet.started] == [False, False]
    async with serving(settings, FakeFleet()) as second:
        await second.settled("shapes")
        found = (await second.http.get(PATH)).json()
        assert (found["state"], found["next"]) == ("ready", None)
        assert (await second.http.get(f"{PATH}/graph")).json()["description"] != "changed"
        await switch(second)
        await until(second, lambda found: found.next is None)
    async with serving(settings, FakeFleet()) as third:
        await third.settled("shapes")
        assert (await third.http.get(f"{PATH}/graph")).json()["description"] == "changed"


async def test_a_restart_is_a_switch_to_the_same_documents(service: Running) -> None:
    before = (await service.http.get(PATH)).json()
    answer = await service.http.post(f"{PATH}/restart", json={})
    assert answer.status_code == 202
    assert answer.json()["next"]["digest"] == before["digest"]
    (await service.fleet.until(2)).ready()
    after = await switched(service)
    assert after["digest"] == before["digest"]
    await service.fleet.started[0].gone.wait()
    first, second = (replace(fake.spec, telemetry_name="") for fake in service.fleet.started)
    assert first == second
    assert (await service.http.post("/api/v1/deployments/other/restart", json={})).status_code == 404


async def test_telemetry_is_told_of_versions_that_serve_or_did(service: Running) -> None:
    old = service.fleet.started[0]
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITS}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    await old.waiting.get()
    told = service.services.deployments.telemetry_of
    first = told(old.spec.telemetry_name)
    await switch(service, grace=600)
    new = await service.fleet.until(2)
    assert told(new.spec.telemetry_name) is None
    new.ready()
    await switched(service)
    second = told(new.spec.telemetry_name)
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == ("shapes", "shapes")
    assert first != second
    assert told(old.spec.telemetry_name) == first
    old.finish(run)
    await old.gone.wait()
    await service.services.deployer.settled()
    assert told(old.spec.telemetry_name) is None
    assert told("nobody v1") is None


@pytest.mark.safety("R11")
async def test_what_cant_be_deployed_changes_nothing(service: Running) -> None:
    bad = {"format": "walkgraph/graph@1", "name": "bad", "nodes": {"x": {"component": "no.such"}}}
    answer = await service.http.put(PATH, json={"graph": bad})
    assert answer.status_code == 422
    assert any(e["pointer"].startswith("/graph/nodes/x") for e in answer.json()["errors"])
    assert (await service.http.get(PATH)).json()["next"] is None
    assert (await service.http.put("/api/v1/deployments/other", json={"graph": "shapes"})).status_code == 404
    assert len(service.fleet.started) == 1


@pytest.mark.safety("R11")
async def test_the_memory_of_both_must_be_there(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = managed(service).serving.plan
    assert plan is not None
    held = sum(size for rank in plan.ranks for _, size in rank.budget)

    def host(total: int) -> Hardware:
        return Hardware(host="h", cores=2, shm=2**30, devices=(Device(name="cpu", total=total, free=total),))

    monkeypatch.setattr(judging, "find_hardware", lambda: host(held + 2**20))
    answer = await service.http.put(PATH, json={"graph": "shapes", "placement": "shapes_one_cpu"})
    assert answer.status_code == 422
    assert "undeploy first" in answer.json()["detail"]
    assert len(service.fleet.started) == 1
    monkeypatch.setattr(judging, "find_hardware", lambda: host(2 * held))
    await switch(service)
    # What is being replaced leaves its room to the one that takes its place.
    await switch(service)


async def test_the_serving_version_may_be_lost_meanwhile(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_FIRST", 60.0)
    await switch(service)
    new = await service.fleet.until(2)
    service.fleet.started[0].die(-9)
    await until(service, lambda found: found.state == "starting")
    new.ready()
    assert (await switched(service))["state"] == "ready"
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
    assert len(service.fleet.started) == 2


async def test_a_failed_deployment_is_revived_by_a_switch(service: Running) -> None:
    service.fleet.started[0].failed("a worker is gone for good")
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 503
    await switch(service)
    (await service.fleet.until(2)).ready()
    assert (await switched(service))["state"] == "ready"
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200


async def test_a_switch_that_cant_be_recorded_fails(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise StoreFull("there is no room on the disk")

    await switch(service)
    new = await service.fleet.until(2)
    monkeypatch.setattr(queries, "replace_deployment", full)
    new.ready()
    found = await until(service, lambda found: found.next and found.next.state == "failed")
    assert "no room on the disk" in found["next"]["reason"]
    assert found["state"] == "ready"
    await new.gone.wait()
    assert service.fleet.started[0].alive


async def test_a_switch_takes_no_wanted_state_from_a_deployment_that_is_gone(service: Running) -> None:
    row = managed(service).serving.documents.row("other", 1.0)
    with pytest.raises(NotFound):
        await service.services.store.write(queries.replace_deployment, row)
    assert len(await service.services.store.read(queries.list_deployments)) == 1


async def test_a_restart_does_not_undo_a_switch_that_was_first(service: Running) -> None:
    await switch(service)
    new = await service.fleet.until(2)
    async with service.services.deployer._switching.changing:
        new.ready()
        restarted = asyncio.create_task(service.services.deployer.restart("shapes", 0))
        await asyncio.sleep(0)
    await restarted
    last = await service.fleet.until(3)
    assert last.spec.graph["description"] == "changed"
    last.ready()
    await switched(service)
    assert "changed" in await stored(service)


async def test_a_version_that_fails_while_it_is_recorded_does_not_serve(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    replace_deployment = queries.replace_deployment
    recorded: list[str] = []

    def failing(session: Any, row: Any) -> None:
        replace_deployment(session, row)
        if not recorded:
            loop.call_soon_threadsafe(new.failed, "a worker is gone for good")
        recorded.append(row.graph_text)

    before = await stored(service)
    await switch(service)
    new = await service.fleet.until(2)
    monkeypatch.setattr(queries, "replace_deployment", failing)
    new.ready()
    found = await until(service, lambda found: found.next and found.next.state == "failed")
    await service.services.deployer.settled()
    assert len(recorded) == 2
    assert (found["state"], found["next"]["reason"]) == ("ready", "a worker is gone for good")
    assert await stored(service) == before
    assert [fake.alive for fake in service.fleet.started] == [True, False]


async def test_what_is_begun_while_the_service_stops_is_stopped_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging_began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    judge = deployer.judge_anew

    def slow(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(judging_began.set)
        go_on.wait()
        return judge(*arguments)

    async with serving(settings, FakeFleet()) as running:
        await running.deploy()
        monkeypatch.setattr(deployer, "judge_anew", slow)
        switching = asyncio.create_task(switch(running))
        await judging_began.wait()
        closing = asyncio.create_task(running.services.deployer.close(0))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(switching, closing)
        assert not any(fake.alive for fake in running.fleet.started)
        body = {"graph": "shapes", "placement": "shapes_one_cpu"}
        assert (await running.http.put(PATH, json=body)).status_code == 503


async def test_a_version_to_come_gets_no_grace_when_it_is_undeployed(service: Running) -> None:
    await switch(service)
    new = await service.fleet.until(2)
    assert (await service.http.delete(PATH, params={"grace": 3})).status_code == 204
    assert (service.fleet.started[0].graces, new.graces) == ([3.0], [0.0])


async def test_runs_that_outlast_the_draining_are_told_so(service: Running) -> None:
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITS}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    await service.fleet.started[0].waiting.get()
    await service.services.deployer.drain(0)
    end = service.services.runs.live(run).finished
    assert end is not None
    assert end.error is not None
    assert (end.error.code, end.error.retryable) == ("shutting_down", True)
