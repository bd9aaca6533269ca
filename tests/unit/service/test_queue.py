"""A caller sees, orders and cancels its own waiting runs, and nobody else's."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.unit.service.conftest import Running

QUEUE = "/api/v1/queue?deployment=shapes"


class Client:
    """Somebody with a key; starts runs that don't end by themselves."""

    def __init__(self, http: httpx.AsyncClient, headers: dict[str, str]) -> None:
        self.http, self.headers = http, headers

    async def ask(self, prompt: str) -> str:
        request = {"inputs": {"prompt": prompt}, "params": {"seed": 13}}
        body = {"deployment": "shapes", "task": "text_to_image", "request": request}
        answer = await self.http.post("/api/v1/runs", json=body, headers=self.headers)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    async def queue(self) -> dict[str, Any]:
        answer = await self.http.get(QUEUE, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def order(self) -> list[tuple[int | None, str]]:
        return [(one["place"], one["said"]) for one in (await self.queue())["runs"]]

    async def move(self, run: str, direction: str) -> httpx.Response:
        body = {"direction": direction}
        return await self.http.post(f"/api/v1/queue/{run}/move", json=body, headers=self.headers)


@pytest.fixture
async def shapes(service: Running) -> Running:
    await service.deploy()
    return service


async def somebody(service: Running, name: str, scopes: tuple[str, ...] = ("infer",)) -> Client:
    made = await service.http.post("/api/v1/keys", json={"name": name, "scopes": list(scopes)})
    return Client(service.anybody, {"Authorization": f"Bearer {made.json()['secret']}"})


async def test_own_runs_are_shown_with_their_places(shapes: Running) -> None:
    me, you = await somebody(shapes, "me"), await somebody(shapes, "you")
    first, second = await me.ask("first"), await me.ask("second")
    await you.ask("yours")
    third = await me.ask("third")
    found = await me.queue()
    assert (found["deployment"], found["waiting"]) == ("shapes", 3)
    assert [(one["run"], one["state"], one["place"], one["up"], one["down"]) for one in found["runs"]] == [
        (first, "running", None, False, False),
        (second, "waiting", 1, False, True),
        (third, "waiting", 3, True, False),
    ]
    assert await you.order() == [(2, "yours")]


async def test_a_run_is_moved_past_own_runs_and_others_stay(shapes: Running) -> None:
    me, you = await somebody(shapes, "me"), await somebody(shapes, "you")
    await me.ask("first")
    second = await me.ask("second")
    await you.ask("yours")
    third = await me.ask("third")
    moved = await me.move(third, "up")
    assert [one["said"] for one in moved.json()["runs"]] == ["first", "third", "second"]
    assert await me.order() == [(None, "first"), (1, "third"), (3, "second")]
    assert await you.order() == [(2, "yours")]
    assert (await me.move(third, "down")).status_code == 200
    assert await me.order() == [(None, "first"), (1, "second"), (3, "third")]
    refused = await me.move(second, "up")
    assert (refused.status_code, "no waiting run of yours before" in refused.json()["detail"]) == (409, True)


async def test_what_has_begun_or_ended_is_not_moved(shapes: Running) -> None:
    me = await somebody(shapes, "me")
    first = await me.ask("first")
    await me.ask("second")
    refused = await me.move(first, "down")
    assert (refused.status_code, "no longer waits" in refused.json()["detail"]) == (409, True)
    assert (await me.move("0" * 32, "down")).status_code == 404
    assert (await me.move(first, "sideways")).status_code == 422


async def test_nobody_moves_the_runs_of_others(shapes: Running) -> None:
    me, chief = await somebody(shapes, "me"), await somebody(shapes, "chief", ("admin",))
    await me.ask("first")
    await me.ask("second")
    third = await me.ask("third")
    for other in (await somebody(shapes, "you"), chief, Client(shapes.http, {})):
        assert (await other.move(third, "up")).status_code == 404
        assert await other.order() == []
    assert await me.order() == [(None, "first"), (1, "second"), (2, "third")]
    reader = await somebody(shapes, "reader", ("read",))
    assert (await reader.move(third, "up")).status_code == 403


async def test_all_own_runs_are_cancelled_at_once(shapes: Running) -> None:
    me, you = await somebody(shapes, "me"), await somebody(shapes, "you")
    mine = [await me.ask("first"), await me.ask("second")]
    yours = await you.ask("yours")
    answer = await me.http.delete(QUEUE, headers=me.headers)
    assert (answer.status_code, answer.json()) == (202, {"cancelling": 2})
    for run in mine:
        await shapes.services.runs.live(run).ended()
        assert shapes.services.runs.live(run).state == "cancelled"
    assert shapes.services.runs.live(yours).state == "running"
    assert (await me.queue())["runs"] == []


async def test_the_token_orders_its_own(shapes: Running) -> None:
    token = Client(shapes.http, {})
    await token.ask("first")
    await token.ask("second")
    third = await token.ask("third")
    assert (await token.move(third, "up")).status_code == 200
    assert await token.order() == [(None, "first"), (1, "third"), (2, "second")]


async def test_there_is_no_queue_of_what_is_not_deployed(shapes: Running) -> None:
    answer = await shapes.http.get("/api/v1/queue?deployment=nothing")
    assert answer.status_code == 404
    assert (await shapes.http.delete("/api/v1/queue?deployment=nothing")).status_code == 404
    assert (await shapes.http.get("/api/v1/queue")).status_code == 422


async def test_a_deployment_that_is_not_serving_shows_no_places(shapes: Running) -> None:
    token = Client(shapes.http, {})
    await token.ask("first")
    shapes.fleet.started[0].failed("it broke")
    assert (await token.queue())["waiting"] == 0
