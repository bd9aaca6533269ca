"""A change and its row of the audit log are written together; refusals are logged too."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.unit.service.conftest import BASE, Running
from walkgraph.service.access import auditing
from walkgraph.store import keys as stored
from walkgraph.store import queries
from walkgraph.store.session import StoreFull
from walkgraph.store.tables import AuditEntry


async def log(service: Running, query: str = "") -> list[dict[str, Any]]:
    answer = await service.http.get(f"/api/v1/audit{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def told(service: Running, query: str = "") -> list[tuple[str, str, str]]:
    """Oldest first."""
    return [(row["action"], row["target"], row["outcome"]) for row in reversed(await log(service, query))]


async def test_documents_are_told_of(service: Running) -> None:
    put = await service.http.put("/api/v1/graphs/mine", json={"a": 1})
    assert (await service.http.put("/api/v1/graphs/mine", json={"a": 2})).status_code == 412
    await service.http.put("/api/v1/placements/mine", json={})
    etag = put.headers["etag"]
    assert (await service.http.delete("/api/v1/graphs/mine", headers={"If-Match": etag})).status_code == 204
    assert (await service.http.delete("/api/v1/graphs/mine")).status_code == 404
    assert await told(service) == [
        ("graph.put", "mine", "done"),
        ("graph.put", "mine", "refused"),
        ("placement.put", "mine", "done"),
        ("graph.delete", "mine", "done"),
        ("graph.delete", "mine", "refused"),
    ]
    rows = await log(service, "?action=graph.put")
    assert rows[1]["details"] == {"etag": etag.strip('"'), "over": None}
    assert rows[1]["caller"] == "token"
    assert rows[1]["address"] == "127.0.0.1"
    assert rows[0]["reason"].startswith("the graph `mine` was changed by somebody else")


async def test_deployments_are_told_of(service: Running) -> None:
    await service.deploy()
    answer = await service.http.post("/api/v1/deployments", json={"graph": "shapes", "placement": "shapes_one_cpu"})
    assert answer.status_code == 409
    managed = service.services.deployments.get("shapes")
    former = managed.serving
    assert (await service.http.post("/api/v1/deployments/shapes/restart")).status_code == 202
    while managed.serving is former:
        await managed.changed.wait()
    service.fleet.ready = False
    body = {"graph": "shapes", "placement": "shapes_one_cpu"}
    assert (await service.http.put("/api/v1/deployments/shapes", json=body)).status_code == 202
    (await service.fleet.until(3)).failed("no weights")
    await service.services.deployer.settled()
    assert (await service.http.delete("/api/v1/deployments/shapes/next")).status_code == 204
    assert (await service.http.delete("/api/v1/deployments/shapes")).status_code == 204
    assert await told(service) == [
        ("deployment.create", "shapes", "done"),
        ("deployment.create", "shapes", "refused"),
        ("deployment.restart", "shapes", "begun"),
        ("deployment.restart", "shapes", "done"),
        ("deployment.replace", "shapes", "begun"),
        ("deployment.replace", "shapes", "failed"),
        ("deployment.forget", "shapes", "done"),
        ("deployment.delete", "shapes", "done"),
    ]
    first = (await log(service))[-1]
    assert first["details"]["graph"] == "shapes"
    assert first["details"]["placement"] == "shapes_one_cpu"
    assert len(first["details"]["etag"]) == 32
    assert (await log(service, "?outcome=failed"))[0]["reason"] == "no weights"


async def test_keys_are_told_of_with_their_names(service: Running) -> None:
    body = {"name": "robot", "scopes": ["infer", "deploy"]}
    made = (await service.http.post("/api/v1/keys", json=body)).json()
    assert (await service.http.post("/api/v1/keys", json=body)).status_code == 409
    headers = {"Authorization": f"Bearer {made['secret']}"}
    transport = httpx.ASGITransport(app=service.app, client=("10.1.2.3", 5))
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        assert (await client.put("/api/v1/graphs/mine", json={})).status_code == 200
        assert (await client.post("/api/v1/keys", json=body)).status_code == 403
        assert (await client.get("/api/v1/audit")).status_code == 403
    await service.http.delete(f"/api/v1/keys/{made['id']}")
    rows = list(reversed(await log(service)))
    assert [(row["action"], row["outcome"], row["caller"]) for row in rows] == [
        ("key.add", "done", "token"),
        ("key.add", "refused", "token"),
        ("graph.put", "done", made["id"]),
        ("request.deny", "refused", made["id"]),
        ("key.revoke", "done", "token"),
    ]
    assert (rows[2]["address"], rows[2]["caller_name"]) == ("10.1.2.3", "robot")
    assert rows[0]["details"] == {"key": made["id"], "scopes": "deploy,infer"}
    assert (rows[3]["target"], rows[3]["reason"]) == ("POST /api/v1/keys", "it needs the scope `admin`")
    assert rows[4]["details"] == {"name": "robot"}


async def test_who_lets_a_browser_in_is_told_of_without_the_code(service: Running) -> None:
    code = (await service.http.post("/api/v1/studio/codes", json={})).json()["code"]
    answer = await service.http.get("/api/v1/audit?action=studio")
    assert [(row["action"], row["caller"]) for row in answer.json()] == [("studio.code", "token")]
    assert code not in answer.text


async def test_a_change_that_can_not_be_told_is_not_made(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("there is no room")

    with monkeypatch.context() as patched:
        patched.setattr(stored, "add_entries", full)
        assert (await service.http.put("/api/v1/graphs/mine", json={})).status_code == 507
    assert (await service.http.get("/api/v1/graphs/mine")).status_code == 404
    assert await told(service) == []


async def test_who_is_denied_again_and_again_does_not_fill_the_log(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.services.audit._denials = auditing.Meter(18, None)
    made = (await service.http.post("/api/v1/keys", json={"name": "robot", "scopes": ["read"]})).json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    for _ in range(30):
        answer = await service.anybody.put("/api/v1/graphs/mine", json={}, headers=headers)
        assert answer.status_code == 403
    assert len(await log(service, "?action=request.deny")) == 3


async def test_the_log_has_pages_and_bounds(service: Running) -> None:
    fields = {"caller": "token", "caller_name": "", "address": "", "action": "graph.put", "target": "g"}
    # Recent times: entries past their days are removed at any moment.
    times = [time.time() - n for n in range(7)]
    rows = [AuditEntry(at=at, outcome="done", **fields) for at in reversed(times)]
    await service.services.store.write(stored.add_entries, rows)
    seen: list[float] = []
    before = ""
    while page := await log(service, f"?limit=3{before}"):
        seen += [row["at"] for row in page]
        before = f"&before={page[-1]['id']}"
    assert seen == times
    for query in ("limit=0", "limit=1001", "before=0", "action=%25", "outcome=all", "since=-1", "since=nan"):
        assert (await service.http.get(f"/api/v1/audit?{query}")).status_code == 422, query


async def test_the_starter_is_the_services_own(service: Running) -> None:
    row = await service.services.store.read(queries.get_document, "graph", "shapes")
    await service.services.deployer.create("shapes", "shapes", json.loads(row.text), "default", None)
    assert (await log(service))[0]["caller"] == "service"
