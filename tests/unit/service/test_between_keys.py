"""One key learns nothing of another's runs, and changes none: every route and socket, found in the application."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.routing import APIWebSocketRoute

from tests.unit.service.conftest import Running
from tests.unit.service.sockets import connect
from tests.unit.service.test_access import routes

pytestmark = pytest.mark.safety("S4")
NOBODY = "0" * 32
SECRET = "what only the first key has asked"
BODIES: dict[str, Any] = {
    "/replay": {},
    "/steer": {"action": "pause"},
    "/approval": {"approved": True, "number": 0},
    "/move": {"direction": "up"},
}
"""Bodies of mutations, by the end of their path."""


class Held(NamedTuple):
    http: httpx.AsyncClient
    secret: str


@asynccontextmanager
async def key(service: Running, name: str, *scopes: str) -> AsyncIterator[Held]:
    made = (await service.http.post("/api/v1/keys", json={"name": name, "scopes": [*scopes]})).json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    transport = httpx.ASGITransport(app=service.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=service.http.base_url, headers=headers) as http:
        yield Held(http, made["secret"])


async def started(by: Held, *, waits: bool) -> str:
    request = {"inputs": {"prompt": SECRET}, "params": {"seed": 13 if waits else 7}}
    body = {"deployment": "shapes", "task": "text_to_image", "request": request}
    answer = await by.http.post("/api/v1/runs", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def of_runs(service: Running) -> list[tuple[str, str]]:
    """(method, path) of everything that names a run."""
    found = [
        (method.upper(), path)
        for path, methods in service.app.openapi()["paths"].items()
        for method in methods
        if "{run}" in path
    ]
    assert len(found) >= 12, found
    return found


@pytest.mark.parametrize("waits", [True, False], ids=["a run that waits", "a run that is over"])
async def test_a_run_of_another_key_is_as_one_that_never_was(service: Running, waits: bool) -> None:
    await service.deploy()
    async with key(service, "one", "infer") as one, key(service, "two", "infer") as two:
        run, own = await started(one, waits=waits), await started(two, waits=waits)
        assert set(BODIES) <= {"/" + path.rpartition("/")[2] for _, path in of_runs(service)}
        for method, path in of_runs(service):
            body = next((one for end, one in BODIES.items() if path.endswith(end)), None)
            given = body if method in ("POST", "PUT", "PATCH") else None
            answers: list[tuple[int, str]] = []
            for named in (run, NOBODY):
                filled = path.replace("{run}", named).replace("{other}", own)
                answer = await two.http.request(method, filled, json=given)
                answers.append((answer.status_code, answer.text.replace(named, "RUN")))
            assert answers[0] == answers[1], (method, path)
            assert answers[0][0] == 404, (method, path, answers[0])
        other = await two.http.get(f"/api/v1/runs/{own}/differences/{run}")
        assert other.status_code == 404
        live = service.services.runs.live(run)
        assert (live.finished is None) == waits
        assert live.paused is None


async def test_a_socket_tells_of_another_keys_run_what_it_tells_of_none(service: Running) -> None:
    await service.deploy()
    sockets = [route.path for route in routes(service.app.routes) if isinstance(route, APIWebSocketRoute)]
    (path,) = [path for path in sockets if "{run}" in path]
    async with key(service, "one", "infer") as one, key(service, "two", "infer") as two:
        run = await started(one, waits=True)
        told: list[str] = []
        for named in (run, NOBODY):
            protocols = (f"bearer.{two.secret}",)
            async with connect(service.app, path.replace("{run}", named), token=False, protocols=protocols) as socket:
                told.append(str(await socket.rest()).replace(named, "RUN"))
        assert told[0] == told[1]
        assert "not_found" in told[0]


async def test_no_list_tells_a_key_of_the_runs_of_another(service: Running) -> None:
    """Nothing that a key with `infer` alone may read holds a name or a word of them."""
    await service.deploy()
    async with key(service, "one", "infer") as one, key(service, "two", "infer") as two:
        runs = [await started(one, waits=True), await started(one, waits=True), await started(one, waits=False)]
        read = 0
        for path, methods in service.app.openapi()["paths"].items():
            if "get" not in methods or "{run}" in path:
                continue
            filled = re.sub(r"\{\w+\}", "shapes", path)
            answer = await two.http.get(f"{filled}?deployment=shapes")
            assert answer.status_code < 500, (path, answer.text)
            read += answer.status_code == 200
            assert not any(named in answer.text for named in (*runs, SECRET)), path
        assert read >= 8
        mine = (await one.http.get("/api/v1/queue?deployment=shapes")).text
        assert SECRET in mine, "which is where it would stand"


async def test_nobody_cancels_the_queue_of_another(service: Running) -> None:
    await service.deploy()
    async with key(service, "one", "infer") as one, key(service, "two", "infer", "deploy") as two:
        runs = [await started(one, waits=True) for _ in range(3)]
        for by in (two.http, service.http):
            answer = await by.delete("/api/v1/queue?deployment=shapes")
            assert (answer.status_code, answer.json()) == (202, {"cancelling": 0})
        assert all(service.services.runs.live(run).finished is None for run in runs)


async def test_a_name_that_is_not_there_tells_no_name_of_a_scratch_deployment(service: Running) -> None:
    """The deployment is the page's of another caller, and is left out of lists for clients."""
    await service.deploy()
    document = (await service.http.get("/api/v1/graphs/shapes")).json()
    body = {"graph": document, "placement": "shapes_one_cpu"}
    assert (await service.http.put("/api/v1/scratch/scratch_of_a_page", json=body)).status_code == 200
    await service.settled("scratch_of_a_page")
    async with key(service, "one", "infer") as one:
        for method, path, given in (
            ("POST", "/v1/tasks/nobody/text_to_image", {"inputs": {"prompt": "x"}}),
            ("POST", "/v1/chat/completions", {"model": "nobody", "messages": [{"role": "user", "content": "x"}]}),
            ("GET", "/v1/models/nobody", None),
            ("GET", "/v2/models/nobody", None),
            ("GET", "/api/v1/queue?deployment=nobody", None),
        ):
            answer = await one.http.request(method, path, json=given)
            assert answer.status_code == 404, (path, answer.text)
            assert "scratch_of_a_page" not in answer.text, path
