"""The library of blueprints over REST, and what makes and copies them."""

from __future__ import annotations

from typing import Any

from tests.unit.service.conftest import Running

EMPTY: dict[str, Any] = {"name": "mine"}


async def test_a_walk_goes_through_the_library_into_another_graph(service: Running) -> None:
    asked = {"graph": "shapes", "walk": "decode"}
    entry = (await service.http.post("/api/v1/blueprints/entry", json=asked)).json()
    assert entry["format"] == "walkgraph/blueprint@1"
    stored = await service.http.put("/api/v1/blueprints/decode", json=entry)
    assert stored.status_code == 200
    assert (await service.http.put("/api/v1/blueprints/decode", json=entry)).status_code == 412
    assert [row["name"] for row in (await service.http.get("/api/v1/blueprints")).json()] == ["decode"]
    kept = await service.http.post("/api/v1/blueprints/decode/versions", json={"note": "first"})
    assert kept.status_code == 201
    taken = (await service.http.post("/api/v1/blueprints/take", json={"graph": EMPTY, "blueprint": "decode"})).json()
    assert taken["name"] == "decode"
    assert taken["graph"]["blueprints"]["decode"]["origin"] == {"name": "decode", "version": stored.json()["etag"]}
    other = entry | {"description": "Changed."}
    again = await service.http.put("/api/v1/blueprints/decode", json=other, headers={"If-Match": stored.json()["etag"]})
    asked = {"graph": taken["graph"], "blueprint": "decode", "replaces": "decode"}
    updated = (await service.http.post("/api/v1/blueprints/take", json=asked)).json()["graph"]
    assert updated["blueprints"]["decode"]["origin"]["version"] == again.json()["etag"]
    assert (await service.http.delete("/api/v1/blueprints/decode")).status_code == 204
    assert (await service.http.get("/api/v1/blueprints/decode")).status_code == 404
    missing = await service.http.post("/api/v1/blueprints/take", json={"graph": EMPTY, "blueprint": "decode"})
    assert missing.status_code == 404


async def test_a_selection_is_packed_and_unpacked(service: Running) -> None:
    asked = {"graph": "shapes", "walk": "decode", "items": ["/body/0"], "name": "reader"}
    packed = await service.http.post("/api/v1/blueprints/pack", json=asked)
    assert packed.status_code == 200, packed.text
    graph = packed.json()["graph"]
    assert "reader" in graph["blueprints"]
    found = (await service.http.post("/api/v1/graphs/check", json=graph)).json()
    assert [one for one in found["problems"] if one["severity"] == "error"] == []
    again = await service.http.post("/api/v1/blueprints/unpack", json={"graph": graph, "node": "reader"})
    assert "blueprints" not in again.json()["graph"]


async def test_what_can_not_be_done_says_why(service: Running) -> None:
    for path, body, status in (
        ("pack", {"graph": "shapes", "walk": "none", "items": ["/body/0"], "name": "x"}, 422),
        ("pack", {"graph": "shapes", "walk": "decode", "items": ["/body/77"], "name": "x"}, 422),
        ("unpack", {"graph": "shapes", "node": "llm"}, 422),
        ("take", {"graph": EMPTY, "blueprint": {"name": "x"}}, 422),
        ("entry", {"graph": "shapes", "blueprint": "none"}, 422),
        ("entry", {"graph": {"name": 1}, "walk": "x"}, 422),
        ("pack", {"graph": "none", "walk": "decode", "items": ["/body/0"], "name": "x"}, 404),
    ):
        answer = await service.http.post(f"/api/v1/blueprints/{path}", json=body)
        assert answer.status_code == status, (path, body)
        assert answer.json()["detail"]
