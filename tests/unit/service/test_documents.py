"""Graphs and placements as documents: drafts over bundled ones, guarded by etags."""

from __future__ import annotations

from typing import Any

from tests.unit.service.conftest import Running
from walkgraph.graph.codec import dump

DRAFT = {"format": "walkgraph/graph@1", "name": "mine", "nodes": {"x": {"unfinished": True}}}


async def _bundled(service: Running) -> set[str]:
    return {row["name"] for row in (await service.http.get("/api/v1/graphs")).json() if row["bundled"]}


async def test_a_draft_over_a_bundled_graph_spares_the_original(service: Running) -> None:
    assert {"shapes", "bagel"} <= await _bundled(service)
    original = await service.http.get("/api/v1/graphs/shapes")
    assert (await service.http.put("/api/v1/graphs/shapes", json=DRAFT)).status_code == 412
    same = await service.http.put(
        "/api/v1/graphs/shapes", json=original.json(), headers={"If-Match": original.headers["etag"]}
    )
    drawn = await service.http.put("/api/v1/graphs/shapes", json=DRAFT, headers={"If-Match": same.headers["etag"]})
    assert drawn.status_code == 200
    assert "shapes" not in await _bundled(service)
    versions = (await service.http.get("/api/v1/graphs/shapes/versions")).json()
    assert [row["note"] for row in versions] == ["as it comes with Walkgraph"]
    kept = await service.http.get(f"/api/v1/graphs/shapes/versions/{versions[0]['id']}")
    assert kept.json() == original.json()
    assert (await service.http.delete("/api/v1/graphs/shapes")).status_code == 204
    assert "shapes" in await _bundled(service)
    assert (await service.http.get("/api/v1/graphs/shapes")).text == original.text


async def test_documents_have_tags(service: Running) -> None:
    async def listed(kind: str, name: str) -> dict[str, Any]:
        return next(row for row in (await service.http.get(f"/api/v1/{kind}")).json() if row["name"] == name)

    await service.http.put("/api/v1/graphs/mine", json=DRAFT)
    before = await listed("graphs", "mine")
    assert before["tags"] == []
    for name in ("mine", "shapes"):
        answer = await service.http.patch(f"/api/v1/graphs/{name}", json={"tags": ["pictures", "Zürich", "pictures"]})
        assert answer.status_code == 200
        assert answer.json()["tags"] == ["pictures", "Zürich"]
    assert await listed("graphs", "mine") == {**before, "tags": ["pictures", "Zürich"]}
    assert (await listed("graphs", "shapes"))["bundled"]
    await service.http.put("/api/v1/graphs/mine", json={"name": "two"}, headers={"If-Match": before["etag"]})
    await service.http.put("/api/v1/graphs/shapes", json=DRAFT, headers={"If-Match": "*"})
    await service.http.delete("/api/v1/graphs/shapes")
    for name in ("mine", "shapes"):
        assert (await listed("graphs", name))["tags"] == ["pictures", "Zürich"]
    await service.http.patch("/api/v1/placements/shapes_one_cpu", json={"tags": ["cpu"]})
    assert (await listed("placements", "shapes_one_cpu"))["tags"] == ["cpu"]
    for bad in (
        {},
        {"tags": "x"},
        {"tags": [""]},
        {"tags": [" "]},
        {"tags": ["a\nb"]},
        {"tags": ["\x00"]},
        {"tags": ["x" * 41]},
        {"tags": ["x"] * 21},
        {"text": "{}"},
    ):
        assert (await service.http.patch("/api/v1/graphs/mine", json=bad)).status_code == 422
    assert (await service.http.patch("/api/v1/graphs/none", json={"tags": []})).status_code == 404


async def test_a_draft_keeps_what_it_was_given_and_needs_its_etag(service: Running) -> None:
    made = await service.http.put("/api/v1/graphs/mine", json=DRAFT)
    assert made.status_code == 200
    assert (await service.http.get("/api/v1/graphs/mine")).json() == DRAFT
    blind = await service.http.put("/api/v1/graphs/mine", json={"name": "other"})
    assert blind.status_code == 412
    assert blind.json()["type"] == "urn:walkgraph:problem:conflict"
    etag = made.headers["etag"]
    again = await service.http.put("/api/v1/graphs/mine", json={"name": "two"}, headers={"If-Match": etag})
    assert again.status_code == 200
    assert again.headers["etag"] != etag
    stale = await service.http.put("/api/v1/graphs/mine", json={"name": "three"}, headers={"If-Match": etag})
    assert stale.status_code == 412


async def test_equal_content_has_an_equal_etag(service: Running) -> None:
    one = await service.http.put("/api/v1/placements/a", json={"name": "a", "groups": []})
    two = await service.http.put("/api/v1/placements/b", json={"name": "a", "groups": []})
    assert one.headers["etag"] == two.headers["etag"]


async def test_versions_are_kept_once_and_given_back(service: Running) -> None:
    await service.http.put("/api/v1/graphs/mine", json=DRAFT)
    first = (await service.http.post("/api/v1/graphs/mine/versions", json={"note": "good"})).json()
    second = (await service.http.post("/api/v1/graphs/mine/versions", json={"note": "same"})).json()
    assert first["id"] == second["id"]
    await service.http.put("/api/v1/graphs/mine", json={"name": "two"}, headers={"If-Match": "*"})
    await service.http.post("/api/v1/graphs/mine/versions", json={})
    listed = (await service.http.get("/api/v1/graphs/mine/versions")).json()
    assert [row["note"] for row in listed] == ["", "good"]
    old = await service.http.get(f"/api/v1/graphs/mine/versions/{first['id']}")
    assert old.json() == DRAFT


async def test_a_deleted_draft_is_gone(service: Running) -> None:
    await service.http.put("/api/v1/graphs/mine", json=DRAFT)
    assert (await service.http.delete("/api/v1/graphs/mine")).status_code == 204
    gone = await service.http.get("/api/v1/graphs/mine")
    assert gone.status_code == 404
    assert gone.headers["content-type"] == "application/problem+json"


async def test_check_tells_every_problem_with_its_place(service: Running) -> None:
    answer = (await service.http.post("/api/v1/graphs/check", json=DRAFT)).json()
    assert answer["ok"] is False
    assert any(p["pointer"].startswith("/nodes/x") for p in answer["problems"])
    for anything in ([], "text", 3, {"nodes": []}):
        assert (await service.http.post("/api/v1/graphs/check", json=anything)).json()["ok"] is False


async def test_bundled_graphs_check_and_draw(service: Running) -> None:
    for row in (await service.http.get("/api/v1/graphs")).json():
        document = (await service.http.get(f"/api/v1/graphs/{row['name']}")).json()
        report = (await service.http.post("/api/v1/graphs/check", json=document)).json()
        assert report["ok"], (row["name"], report)
    drawing = await service.http.get("/api/v1/graphs/shapes/drawing")
    assert drawing.text.startswith("flowchart LR\n")
    walk = await service.http.get("/api/v1/graphs/shapes/drawing", params={"walk": "image_gen_cfg"})
    assert '["loop denoise: steps - 1 times"]' in walk.text


async def test_a_plan_comes_with_its_bytes_or_with_every_problem(service: Running) -> None:
    good = (await service.http.post("/api/v1/plans", json={"graph": "shapes", "placement": "shapes_one_cpu"})).json()
    assert good["ok"]
    assert good["ranks"][0]["device"] == "cpu"
    assert "llm" in good["ranks"][0]["nodes"]
    assert good["drawing"]
    default = (await service.http.post("/api/v1/plans", json={"graph": "shapes"})).json()
    assert default["ok"]
    assert default["placement"]["groups"]
    placement = {
        "format": "walkgraph/placement@1",
        "name": "p",
        "groups": [{"nodes": ["nobody"], "ranks": [3]}],
        "ranks": [],
    }
    bad = (await service.http.post("/api/v1/plans", json={"graph": "shapes", "placement": placement})).json()
    assert not bad["ok"]
    assert {p["code"] for p in bad["problems"]} >= {"unknown_node", "unknown_rank"}
    assert all(p["pointer"].startswith("/placement") for p in bad["problems"])


async def test_a_plan_tells_which_states_change_rank(service: Running) -> None:
    apart = {"graph": "bagel", "placement": "bagel_read_apart_two_gpus", "hardware": "2x141GB"}
    between = (await service.http.post("/api/v1/plans", json=apart)).json()["copies"]
    assert {(c["state"], c["walk"], c["source"], c["target"]) for c in between} >= {("main", None, 1, 0)}
    assert all(0 < c["bytes"] <= c["largest"] for c in between)
    forked = {"graph": "bagel", "placement": "bagel_cfg3", "hardware": "3x141GB"}
    inside = (await service.http.post("/api/v1/plans", json=forked)).json()["copies"]
    assert ("main", "prefill_text", 0, 1) in {(c["state"], c["walk"], c["source"], c["target"]) for c in inside}


async def test_a_plan_tells_where_every_loop_is_iterated(service: Running) -> None:
    async def loops(graph: str) -> dict[tuple[str, str], tuple[bool, str]]:
        body = {"graph": graph, "hardware": "1x141GB"}
        rows = (await service.http.post("/api/v1/plans", json=body)).json()["loops"]
        found = {(row["walk"], row["loop"]): (row["resident"], row["why"]) for row in rows}
        assert len(found) == len(rows)
        return found

    speech = await loops("orpheus")
    assert set(speech) == {("decode", "tokens")}
    resident, why = speech["decode", "tokens"]
    assert resident
    assert why.startswith("`tokens` runs on the device")
    resident, why = (await loops("shapes"))["image_gen", "denoise"]
    assert resident
    assert why.endswith("`preview` and `preview_out` follow, stepped")
    reason = "stepped: `grow`, in `column` inside it, can't be iterated on the device"
    assert (await loops("synthetic_loops"))["nested", "row"] == (False, reason)


async def test_a_plan_tells_of_loops_inside_loops_and_also_where_it_does_not_fit(service: Running) -> None:
    body = {"graph": "vjepa2_ac", "placement": "vjepa2_ac_one_gpu", "hardware": "1x8GB"}
    told = (await service.http.post("/api/v1/plans", json=body)).json()
    assert not told["ok"]
    loops = {row["loop"]: row for row in told["loops"] if row["walk"] == "plan"}
    task = (await service.http.get("/api/v1/graphs/vjepa2_ac")).json()["tasks"]["plan"]
    for loop, within in (("rounds", None), ("frames", "rounds")):
        assert loops[loop]["resident"]
        assert loops[loop]["within"] == within
        assert loops[loop]["usual"] == [task["params"][{"rounds": "rounds", "frames": "horizon"}[loop]]["default"]]


async def test_a_plan_has_what_bars_and_lanes_are_drawn_from(service: Running) -> None:
    body = {"graph": "bagel", "placement": "bagel_cfg3", "hardware": "3x141GB"}
    good = (await service.http.post("/api/v1/plans", json=body)).json()
    assert good["ok"], good["problems"]
    assert [(d["name"], d["hypothetical"]) for d in good["devices"]] == [
        ("cpu", False), ("cuda:0", True), ("cuda:1", True), ("cuda:2", True),
    ]  # fmt: skip
    for rank in good["ranks"]:
        assert 0 < sum(rank["budget"].values()) <= rank["capacity"]
    crossing = [route for route in good["routes"] if route["source"] != route["target"]]
    assert {route["transport"] for route in crossing} == {"cuda_ipc", "inline"}
    document = (await service.http.get("/api/v1/graphs/bagel")).json()
    for route in good["routes"]:
        _, walks, walk, edges, index = route["pointer"].split("/")
        assert (walks, walk, edges) == ("walks", route["walk"], "edges")
        assert document["walks"][walk]["edges"][int(index)]


async def test_what_does_not_fit_is_drawn_and_says_what_would(service: Running) -> None:
    body = {"graph": "bagel", "hardware": "1x24GB"}
    bad = (await service.http.post("/api/v1/plans", json=body)).json()
    assert not bad["ok"]
    (problem,) = (p for p in bad["problems"] if p["code"] == "does_not_fit")
    assert "on another device, or use one with" in problem["message"]
    rank = next(rank for rank in bad["ranks"] if rank["device"] == "cuda:0")
    assert sum(rank["budget"].values()) > rank["capacity"] == 24 * 10**9
    assert bad["digest"] is None
    answer = await service.http.post("/api/v1/plans", json={"graph": "bagel", "hardware": "lots"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/hardware"


async def test_a_graph_is_given_as_python(service: Running) -> None:
    named = (await service.http.post("/api/v1/graphs/python", json={"graph": "shapes"})).json()
    document = (await service.http.get("/api/v1/graphs/shapes")).json()
    assert (await service.http.post("/api/v1/graphs/python", json={"graph": document})).json() == named
    made: dict[str, Any] = {}
    exec(named["text"], made)
    assert dump(made["graph"]) == document
    bad = await service.http.post("/api/v1/graphs/python", json={"graph": DRAFT})
    assert bad.status_code == 422
    assert any(e["pointer"].startswith("/graph/nodes/x") for e in bad.json()["errors"])


async def test_a_request_is_simulated(service: Running) -> None:
    async def simulated(**body: Any) -> dict[str, Any]:
        answer = await service.http.post("/api/v1/graphs/simulate", json={"graph": "shapes", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    found = await simulated(task="text_to_image", params={"steps": 20}, parts=["text"])
    assert found["ok"]
    assert found["params"]["cfg_text_scale"] == 5.0
    (lane,) = found["lanes"]
    taken = [(step["pointer"], step["walk"], step["as"]) for step in lane["steps"] if step["taken"]]
    assert taken == [("/steps/0/text/0", "prefill_text", None), ("/steps/1/first/0", "image_gen_cfg", None)]
    assert lane["steps"][0]["part"] == {"modality": "text", "index": 0}
    drawing = lane["steps"][1]
    assert drawing["loops"] == {"denoise": 19}
    uses = {use["use"]: use for use in drawing["uses"]}
    assert uses["llm_cfg_text"]["taken"] is None
    assert uses["llm_cfg_text"]["iterations"] == 16
    assert uses["preview"]["why"] == "preview_every > 0 is false: preview_every = 0"

    wrong = await simulated(task="text_to_image", params={"steps": 1}, inputs={"prompt": 1})
    assert not wrong["ok"]
    assert [(p["code"], p["pointer"]) for p in wrong["problems"]] == [("invalid_input", "/params/steps")]
    broken = await simulated(graph=DRAFT, task="x")
    assert not broken["ok"]
    assert all(p["pointer"].startswith("/graph") for p in broken["problems"])
    many = {"graph": "shapes", "task": "text_to_image", "parts": ["text"] * 65}
    assert (await service.http.post("/api/v1/graphs/simulate", json=many)).status_code == 422


async def test_the_palette_and_the_schemas_are_served(service: Running) -> None:
    palette = (await service.http.get("/api/v1/components")).json()
    backbone = next(c for c in palette if c["name"] == "bagel.backbone")
    assert backbone["available"]
    assert any(port["name"] == "latents" for port in backbone["inputs"])
    assert (await service.http.get("/api/v1/components/bagel.backbone")).json() == backbone
    assert (await service.http.get("/api/v1/components/none.such")).status_code == 404
    for path in ("/schemas/graph-v1.json", "/schemas/placement-v1.json"):
        assert (await service.http.get(path)).json()["$schema"].startswith("https://json-schema.org/")
