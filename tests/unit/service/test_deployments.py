"""Wanted deployments are started, kept, restored and forgotten."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import Any

import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeDeployment, FakeFleet
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments import deployer, supervisor, versions
from walkgraph.service.deployments.judging import Judged, judge
from walkgraph.settings import Settings

DRAW = "/v1/tasks/shapes/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_FIRST", 0.001)
    monkeypatch.setattr(supervisor, "BACKOFF_LAST", 0.004)


async def test_a_deployment_is_ready_with_its_ranks(service: Running) -> None:
    await service.deploy()
    found = (await service.http.get("/api/v1/deployments/shapes")).json()
    assert found["state"] == "ready"
    assert found["ranks"][0]["device"] == "cpu"
    assert "text_to_image" in found["tasks"]
    assert (await service.http.get("/api/v1/deployments")).json() == [found]
    document = (await service.http.get("/api/v1/deployments/shapes/graph")).json()
    assert document["name"] == "shapes"


@pytest.mark.safety("R11")
async def test_what_cant_be_deployed_starts_nothing(service: Running) -> None:
    bad = {"format": "walkgraph/graph@1", "name": "bad", "nodes": {"x": {"component": "no.such"}}}
    answer = await service.http.post("/api/v1/deployments", json={"graph": bad})
    assert answer.status_code == 422
    assert any(e["pointer"].startswith("/graph/nodes/x") for e in answer.json()["errors"])
    twice = {"graph": "shapes", "placement": "shapes_one_cpu"}
    await service.deploy()
    assert (await service.http.post("/api/v1/deployments", json=twice)).status_code == 409
    assert len(service.fleet.started) == 1
    assert (await service.http.post("/api/v1/deployments", json={"graph": "nothing"})).status_code == 404


@pytest.mark.parametrize("wanted", [False, True])
async def test_the_setting_for_invariant_batches_reaches_the_workers_spec(settings: Settings, wanted: bool) -> None:
    async with serving(settings.model_copy(update={"batch_invariant": wanted}), FakeFleet()) as service:
        await service.deploy()
        assert service.fleet.started[0].spec.batch_invariant is wanted


@pytest.mark.safety("R3")
async def test_a_restarted_service_brings_back_what_is_wanted(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as first:
        await first.deploy()
        before = (await first.http.get("/api/v1/deployments/shapes")).json()
    async with serving(settings, FakeFleet()) as second:
        await second.settled("shapes")
        after = (await second.http.get("/api/v1/deployments/shapes")).json()
        assert after == before | {"revision": after["revision"]}
        assert second.fleet.started[0].spec.plan == first.fleet.started[0].spec.plan
        assert (await second.http.delete("/api/v1/deployments/shapes")).status_code == 204
    async with serving(settings, FakeFleet()) as third:
        assert (await third.http.get("/api/v1/deployments")).json() == []


@pytest.mark.safety("R3")
async def test_what_is_brought_back_together_counts_no_memory_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"graph": "shapes", "placement": "shapes_one_cpu"}
    async with serving(settings, FakeFleet()) as service:
        for name in ("one", "two", "three"):
            assert (await service.http.post("/api/v1/deployments", json={**body, "name": name})).status_code == 202
    reserved: list[int] = []

    def judged(graph: Any, placement: Any, plans: list[Plan], *more: Any) -> Judged:
        reserved.append(len(plans))
        return judge(graph, placement, plans, *more)

    monkeypatch.setattr(versions, "judge", judged)
    async with serving(settings, FakeFleet()) as service:
        for name in ("one", "two", "three"):
            await service.settled(name)
    assert reserved == [0, 1, 2]


@pytest.mark.safety("R3")
async def test_what_is_created_during_the_restore_counts_the_memory_of_what_is_brought_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"graph": "shapes", "placement": "shapes_one_cpu"}
    async with serving(settings, FakeFleet()) as service:
        for name in ("one", "two"):
            assert (await service.http.post("/api/v1/deployments", json={**body, "name": name})).status_code == 202
    reserved: dict[str, list[int]] = {"restored": [], "created": []}
    held = threading.Event()

    def restored(graph: Any, placement: Any, plans: list[Plan], *more: Any) -> Judged:
        reserved["restored"].append(len(plans))
        assert held.wait(60), "the creation has begun"
        return judge(graph, placement, plans, *more)

    def created(graph: Any, placement: Any, plans: list[Plan], *more: Any) -> Judged:
        reserved["created"].append(len(plans))
        return judge(graph, placement, plans, *more)

    monkeypatch.setattr(versions, "judge", restored)
    monkeypatch.setattr(deployer, "judge_anew", created)
    async with serving(settings, FakeFleet()) as service:
        creating = asyncio.create_task(service.http.post("/api/v1/deployments", json={**body, "name": "three"}))
        await asyncio.wait([creating], timeout=0.2)
        held.set()
        assert (await creating).status_code == 202
        for name in ("one", "two", "three"):
            await service.settled(name)
    assert reserved == {"restored": [0, 1], "created": [2]}


async def test_a_fault_of_the_service_itself_is_told_and_can_be_undeployed(settings: Settings) -> None:
    class Broken(FakeFleet):
        async def __call__(self, *_: object) -> FakeDeployment:
            raise ZeroDivisionError("a defect")

    async with serving(settings, Broken()) as service:
        assert (await service.http.post("/api/v1/deployments", json={"graph": "shapes"})).status_code == 202
        await service.services.deployments.get("shapes").changed_after(0, 20)
        found = (await service.http.get("/api/v1/deployments/shapes")).json()
        assert found["state"] == "failed"
        assert "log" in found["reason"]
        assert (await service.http.delete("/api/v1/deployments/shapes")).status_code == 204


async def test_undeploying_drains_and_stops(service: Running) -> None:
    await service.deploy()
    fake = service.fleet.started[0]
    assert (await service.http.delete("/api/v1/deployments/shapes", params={"grace": 3})).status_code == 204
    assert fake.graces == [3.0]
    assert (await service.http.get("/api/v1/deployments/shapes")).status_code == 404
    await service.deploy()
    assert len(service.fleet.started) == 2


@pytest.mark.usefixtures("_impatient")
async def test_a_lost_process_fails_its_runs_and_comes_back(service: Running) -> None:
    await service.deploy()
    managed = service.services.deployments.get("shapes")
    body = {"deployment": "shapes", "task": "text_to_image", "request": {**PROMPT, "params": {"seed": 13}}}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    service.fleet.started[0].die(-9)
    end = await service.services.runs.live(run).ended()
    assert end.error is not None
    assert (end.error.code, end.error.retryable) == ("worker_lost", True)
    while managed.state != "ready" or managed.serving.restarts == 0:
        await managed.changed.wait()
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200


@pytest.mark.safety("R4")
@pytest.mark.usefixtures("_impatient")
async def test_a_crash_loop_ends_as_failed(settings: Settings) -> None:
    fleet = FakeFleet(ready=False)
    async with serving(settings, fleet) as service:
        await service.http.post("/api/v1/deployments", json={"graph": "shapes", "placement": "shapes_one_cpu"})
        managed = service.services.deployments.get("shapes")
        died = 0
        while managed.state != "failed":
            if len(fleet.started) > died and managed.serving.process is not None:
                died += 1
                fleet.started[-1].die(1)
            await asyncio.sleep(0)
        assert len(fleet.started) == supervisor.MAX_RESTARTS + 1
        found = (await service.http.get("/api/v1/deployments/shapes")).json()
        assert "times in a minute" in found["reason"]
        prompt = {"prompt": "a circle"}
        for path, body in ((DRAW, PROMPT), ("/v1/images/generations", prompt)):
            answer = await service.http.post(path, json=body)
            # Nobody is to wait for what needs a hand; who does reads why.
            assert (answer.status_code, answer.headers.get("x-should-retry")) == (503, "false"), answer.text
            assert "retry-after" not in answer.headers
            assert "times in a minute" in answer.text
        assert (await service.http.delete("/api/v1/deployments/shapes")).status_code == 204


class PoorMachine(FakeFleet):
    """Can't start a process while it has no room for it."""

    room = True
    refused = 0

    async def __call__(self, *given: Any) -> FakeDeployment:
        if not self.room:
            self.refused += 1
            self.room = self.refused > 2 * supervisor.MAX_RESTARTS
            raise OSError(errno.EMFILE, "no more files")
        return await super().__call__(*given)


@pytest.mark.safety("R19")
@pytest.mark.usefixtures("_impatient")
async def test_a_process_that_was_lost_while_no_other_can_be_started_comes_back(settings: Settings) -> None:
    fleet = PoorMachine()
    async with serving(settings, fleet) as service:
        await service.deploy()
        managed = service.services.deployments.get("shapes")
        fleet.room = False
        fleet.started[0].die(-9)
        while managed.state != "ready" or managed.serving.restarts == 0:
            await managed.changed.wait()
        assert fleet.refused > supervisor.MAX_RESTARTS
        assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200


@pytest.mark.safety("R19")
@pytest.mark.usefixtures("_impatient")
async def test_what_is_wanted_comes_back_once_a_service_that_restarted_has_room(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as before:
        await before.deploy()
    fleet = PoorMachine()
    fleet.room = False
    async with serving(settings, fleet) as service:
        managed = service.services.deployments.get("shapes")
        while managed.state != "ready":
            await managed.changed.wait()
        assert fleet.refused > supervisor.MAX_RESTARTS
        assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200


@pytest.mark.safety("R19")
async def test_a_new_deployment_that_cant_be_started_fails_at_once(settings: Settings) -> None:
    fleet = PoorMachine()
    fleet.room = False
    async with serving(settings, fleet) as service:
        await service.http.post("/api/v1/deployments", json={"graph": "shapes", "placement": "shapes_one_cpu"})
        managed = service.services.deployments.get("shapes")
        while managed.state != "failed":
            await managed.changed.wait()
        assert fleet.refused == 1


@pytest.mark.usefixtures("_impatient")
async def test_what_waits_for_room_can_be_undeployed(settings: Settings) -> None:
    fleet = PoorMachine()
    async with serving(settings, fleet) as service:
        await service.deploy()
        managed = service.services.deployments.get("shapes")
        fleet.room, fleet.refused = False, -(10**9)
        fleet.started[0].die(-9)
        while managed.state != "starting":
            await managed.changed.wait()
        assert (await service.http.delete("/api/v1/deployments/shapes")).status_code == 204


async def test_readiness_follows_the_deployments(settings: Settings) -> None:
    fleet = FakeFleet(ready=False)
    async with serving(settings, fleet) as service:
        assert (await service.anybody.get("/health/ready")).status_code == 200
        await service.http.post("/api/v1/deployments", json={"graph": "shapes", "placement": "shapes_one_cpu"})
        assert (await service.anybody.get("/health/ready")).status_code == 503
        assert (await service.http.post(DRAW, json=PROMPT)).status_code == 503
        await fleet.some.wait()
        fleet.started[0].ready()
        assert (await service.anybody.get("/health/ready")).status_code == 200
        assert (await service.anybody.get("/health/ready", params={"deployment": "shapes"})).status_code == 200
        assert (await service.anybody.get("/health/ready", params={"deployment": "other"})).status_code == 503
        await service.services.deployer.drain(1.0)
        assert (await service.anybody.get("/health/ready")).status_code == 503
        assert (await service.anybody.get("/health/live")).status_code == 200
        assert (await service.http.post(DRAW, json=PROMPT)).status_code == 503


async def test_a_change_can_be_waited_for(settings: Settings) -> None:
    fleet = FakeFleet(ready=False)
    async with serving(settings, fleet) as service:
        await service.http.post("/api/v1/deployments", json={"graph": "shapes", "placement": "shapes_one_cpu"})
        await fleet.some.wait()
        first = (await service.http.get("/api/v1/deployments/shapes")).json()
        later = asyncio.create_task(service.http.get(f"/api/v1/deployments/shapes?after={first['revision']}"))
        await asyncio.sleep(0.01)
        assert not later.done()
        fleet.started[0].ready()
        assert (await later).json()["state"] == "ready"
        same = await service.http.get("/api/v1/deployments/shapes?after=99&wait=0.01")
        assert same.json()["revision"] == (await later).json()["revision"]
