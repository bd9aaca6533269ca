"""A page's scratch deployment: it takes up what is drawn in its running process, and nobody else is told of it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.errors import NotFound
from walkgraph.service.deployments import scratches
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.wire import messages as m

ID = "scratch_1"
PATH = f"/api/v1/scratch/{ID}"
DRAW = f"/v1/tasks/{ID}/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}
WAITS = {**PROMPT, "params": {"seed": 13}}


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Running]:
    async with serving(settings, FakeFleet()) as running:
        yield running


async def drawn(service: Running, description: str = "", **more: Any) -> dict[str, Any]:
    document = (await service.http.get("/api/v1/graphs/shapes")).json()
    return document | {"description": description} | more


async def serve(service: Running, description: str = "", path: str = PATH, **more: Any) -> Any:
    body = {"graph": await drawn(service, description, **more), "placement": "shapes_one_cpu"}
    return await service.http.put(path, json=body)


async def started(service: Running, description: str = "") -> None:
    answer = await serve(service, description)
    assert answer.status_code == 200, answer.text
    await service.settled(ID)


def taken_up(service: Running) -> list[m.TakeUp]:
    return [sent for sent in service.fleet.started[-1].sent if isinstance(sent, m.TakeUp)]


async def test_a_changed_graph_is_taken_up_by_the_same_process(service: Running) -> None:
    await started(service)
    answer = await serve(service, "changed")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["state"], answer.json()["scratch"]) == ("ready", True)
    (order,) = taken_up(service)
    assert len(service.fleet.started) == 1
    managed = service.services.deployments.get(ID)
    assert (order.graph["description"], order.telemetry_name) == ("changed", managed.serving.label)
    assert answer.json()["digest"] == order.plan.digest
    assert (await service.http.get(f"/api/v1/deployments/{ID}/graph")).json()["description"] == "changed"
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200


async def test_what_did_not_change_is_not_taken_up_again(service: Running) -> None:
    await started(service)
    assert (await serve(service)).status_code == 200
    assert (await serve(service, layout={"walks": {}})).status_code == 200
    assert taken_up(service) == []


async def test_runs_of_the_former_graph_are_cancelled(service: Running) -> None:
    await started(service)
    waiting = asyncio.create_task(service.http.post(DRAW, json=WAITS))
    await service.fleet.started[0].waiting.get()
    assert (await serve(service, "changed")).status_code == 200
    assert (await waiting).json()["code"] == "cancelled"


async def test_a_graph_that_cannot_be_loaded_leaves_the_former_one(service: Running) -> None:
    await started(service, "good")
    answer = await serve(service, "bad")
    assert answer.status_code == 503
    assert "a tensor is missing" in answer.json()["detail"]
    assert (await service.http.get(f"/api/v1/deployments/{ID}/graph")).json()["description"] == "good"
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
    assert (await serve(service, "bad")).status_code == 503
    assert (await serve(service, "good")).status_code == 200
    assert [order.graph["description"] for order in taken_up(service)] == ["bad", "bad", "good"]


async def test_a_graph_with_problems_is_refused_with_their_places(service: Running) -> None:
    await started(service)
    document = await drawn(service)
    document["nodes"]["text"] = {"component": "no.such"}
    answer = await service.http.put(PATH, json={"graph": document})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/graph/nodes/text")
    assert taken_up(service) == []
    assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200


async def test_other_ranks_need_other_processes(service: Running) -> None:
    await started(service)
    placement = (await service.http.get("/api/v1/placements/shapes_one_cpu")).json()
    nodes = list((await drawn(service))["nodes"])
    groups = [{"nodes": ["*"], "ranks": [0]}, {"nodes": [nodes[0]], "ranks": [1]}]
    two = {**placement, "groups": groups, "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}]}
    answer = await service.http.put(PATH, json={"graph": await drawn(service), "placement": two})
    assert answer.status_code == 200, answer.text
    new = await service.fleet.until(2)
    assert len(new.spec.plan.ranks) == 2
    assert not service.fleet.started[0].alive
    await service.settled(ID)
    assert service.services.deployments.get(ID).state == "ready"


async def test_a_process_that_ends_meanwhile_comes_back_with_what_is_drawn(service: Running) -> None:
    await started(service)
    first = service.fleet.started[0]
    first.takes_up = False
    asked = asyncio.create_task(serve(service, "changed"))
    while not taken_up(service):
        first.some.clear()
        await first.some.wait()
    first.die(1)
    assert (await asked).status_code == 503
    second = await service.fleet.until(2)
    assert second.spec.graph["description"] == "changed"


async def test_its_ranks_take_up_plans_and_keep_results_of_all_nodes(service: Running) -> None:
    await started(service)
    await service.deploy()
    page, clients = (found.spec for found in service.fleet.started)
    settings = service.services.settings
    assert (page.changing, page.limits.kept_bytes) == (True, settings.kept_results)
    limits = clients.limits
    assert (clients.changing, limits.kept_bytes) == (False, settings.kept_results)


async def test_clients_are_not_told_of_it(service: Running) -> None:
    await service.deploy()
    await started(service)
    assert [row["id"] for row in (await service.http.get("/v1/models")).json()["data"]] == ["shapes"]
    assert {row["deployment"] for row in (await service.http.get("/v1/tasks")).json()} == {"shapes"}
    assert service.services.deployments.serving("shapes").id == "shapes"
    rows = await service.services.store.read(queries.list_deployments)
    assert [row.id for row in rows] == ["shapes"], "it isn't stored"
    listed = (await service.http.get("/api/v1/deployments")).json()
    assert {row["id"]: row["scratch"] for row in listed} == {"shapes": False, ID: True}


async def test_it_counts_in_memory(service: Running) -> None:
    await started(service)
    managed = service.services.deployments.get(ID)
    assert managed.plan in service.services.deployments.plans()


async def test_it_ends_with_its_page(service: Running) -> None:
    await started(service)
    assert (await service.http.delete(PATH)).status_code == 204
    assert not service.fleet.started[0].alive
    with pytest.raises(NotFound):
        service.services.deployments.get(ID)
    await started(service)
    assert len(service.fleet.started) == 2


async def test_nothing_of_it_is_kept_once_it_has_ended(service: Running) -> None:
    """A page that is opened and left again and again would leave its plans there each time."""
    ended: list[weakref.ref[Any]] = []
    for number in range(3):
        await started(service, str(number))
        assert (await service.http.post(DRAW, json=PROMPT)).status_code == 200
        assert (await serve(service, f"changed {number}")).status_code == 200
        ended.append(weakref.ref(service.services.deployments.get(ID)))
        assert (await service.http.delete(PATH)).status_code == 204
        service.fleet.started.clear()
    gc.collect()
    assert [one() for one in ended] == [None] * 3


async def test_it_ends_after_a_time_without_use(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratches, "IDLE_SECONDS", 0.05)
    await started(service)
    await service.fleet.started[0].gone.wait()
    await service.services.deployer.scratches.close()
    assert ID not in service.services.deployments


async def test_one_that_runs_is_not_idle(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratches, "IDLE_SECONDS", 0.02)
    await started(service)
    waiting = asyncio.create_task(service.http.post(DRAW, json=WAITS))
    fake = service.fleet.started[0]
    run = await fake.waiting.get()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(fake.gone.wait(), 0.3)
    fake.finish(run)
    assert (await waiting).status_code == 200
    await fake.gone.wait()


async def test_a_new_one_ends_the_one_that_was_unused_for_longest(service: Running) -> None:
    for number in range(scratches.MOST + 1):
        path = f"/api/v1/scratch/page_{number}"
        assert (await serve(service, path=path)).status_code == 200
        await service.settled(f"page_{number}")
    names = {row["id"] for row in (await service.http.get("/api/v1/deployments")).json()}
    assert names == {f"page_{number}" for number in range(1, scratches.MOST + 1)}


async def test_pages_that_begin_together_are_no_more_than_may_be(service: Running) -> None:
    answers = await asyncio.gather(
        *(serve(service, path=f"/api/v1/scratch/page_{number}") for number in range(2 * scratches.MOST))
    )
    assert {answer.status_code for answer in answers} == {200}
    names = [row["id"] for row in (await service.http.get("/api/v1/deployments")).json()]
    assert len(names) == scratches.MOST


async def test_a_page_that_asks_twice_at_once_gets_one(service: Running) -> None:
    answers = await asyncio.gather(serve(service), serve(service), serve(service))
    assert [answer.status_code for answer in answers] == [200] * 3, [answer.text for answer in answers]
    assert len(service.fleet.started) == 1


async def test_it_neither_takes_the_place_of_a_deployment_nor_is_switched_like_one(service: Running) -> None:
    await service.deploy()
    taken = await serve(service, path="/api/v1/scratch/shapes")
    assert taken.status_code == 409
    await started(service)
    body = {"graph": await drawn(service)}
    assert (await service.http.put(f"/api/v1/deployments/{ID}", json=body)).status_code == 409
    assert (await service.http.delete("/api/v1/scratch/shapes")).status_code == 404


async def test_it_is_its_owners(service: Running) -> None:
    await started(service)
    made = (await service.http.post("/api/v1/keys", json={"name": "other", "scopes": ["deploy"]})).json()
    other = {"Authorization": f"Bearer {made['secret']}"}
    body = {"graph": await drawn(service)}
    assert (await service.anybody.put(PATH, json=body, headers=other)).status_code == 409
    assert (await service.anybody.delete(PATH, headers=other)).status_code == 404
