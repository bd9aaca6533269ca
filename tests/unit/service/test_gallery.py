"""The gallery of the start page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.service.conftest import Running
from walkgraph.service.deployments import gallery


async def listed(service: Running) -> dict[str, dict[str, Any]]:
    answer = await service.http.get("/api/v1/gallery")
    assert answer.status_code == 200, answer.text
    return {row["name"]: row for row in answer.json()}


async def test_graphs_are_shown_with_what_they_take_and_give(service: Running) -> None:
    found = await listed(service)
    shapes = found["shapes"]
    assert {"name": "text_to_image", "label": "Draw from a caption"} in shapes["tasks"]
    assert shapes["modalities_in"] == ["text", "image", "messages"]
    assert shapes["modalities_out"] == ["text", "image"]
    assert (shapes["starter"], shapes["deployable"], shapes["why"], shapes["bundled"]) == (True, True, None, True)
    reach = found["reach"]
    assert (reach["starter"], reach["deployable"], reach["why"]) == (True, True, None)
    assert {"image", "actions"} <= set(reach["modalities_out"])
    world = found["world"]
    assert {"name": "imagine", "label": "Imagine"} in world["tasks"]
    assert (world["starter"], world["deployable"], "image" in world["modalities_out"]) == (True, True, True)
    assert "audio" in found["orpheus"]["modalities_out"]
    assert not found["orpheus"]["starter"]
    assert not found["qwen3_omni"]["deployable"]
    assert found["qwen3_omni"]["why"]
    assert [name for name in ("shapes", "reach", "bagel", "llm", "orpheus", "pi05") if found[name]["random"]] == [
        "bagel",
        "llm",
        "orpheus",
        "pi05",
    ]
    assert not any(found[name]["needs_gpu"] for name in ("shapes", "reach", "world"))
    for name in ("bagel", "llm", "qwen3_omni"):
        assert found[name]["needs_gpu"] == (not found[name]["deployable"])


async def test_a_graph_says_which_server_it_lacks(service: Running) -> None:
    found = await listed(service)
    assert "WALKGRAPH_CALL_HOSTS" in found["fetch_and_describe"]["lacks"]
    assert {row["lacks"] for name, row in found.items() if name != "fetch_and_describe"} == {None}


async def test_drafts_are_shown_whatever_they_hold(service: Running) -> None:
    await service.http.put("/api/v1/graphs/mine", json={"nodes": 3})
    await service.http.patch("/api/v1/graphs/mine", json={"tags": ["x"]})
    mine = (await listed(service))["mine"]
    assert (mine["deployable"], mine["tags"], mine["bundled"], mine["tasks"]) == (False, ["x"], False, [])
    assert mine["why"]


async def test_a_graph_is_judged_once(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await listed(service)
    judged: list[Any] = []
    judge = gallery.judge

    def counted(document: Any, *rest: Any) -> Any:
        judged.append(document["name"])
        return judge(document, *rest)

    monkeypatch.setattr(gallery, "judge", counted)
    await service.http.patch("/api/v1/graphs/shapes", json={"tags": ["x"]})
    after = await listed(service)
    assert after == {**before, "shapes": {**before["shapes"], "tags": ["x"]}}
    assert "shapes" not in judged
    # What lacks its weights may have got them, and the tasks that the agent calls may have changed.
    assert set(judged) <= {
        "agent",
        "fetch_and_describe",
        *(name for name, row in before.items() if not row["deployable"]),
    }
    assert (before["two_settings"]["tags"], before["two_settings"]["modalities_out"]) == (
        ["example"],
        ["image", "text"],
    )
    document = (await service.http.get("/api/v1/graphs/shapes")).json()
    copy = {**document, "name": "mine", "description": "my own"}
    await service.http.put("/api/v1/graphs/mine", json=copy)
    assert (await listed(service))["mine"]["description"] == "my own"
    assert judged.count("mine") == 1
