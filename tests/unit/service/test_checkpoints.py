"""The routes of the folders of weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkpoints import language_model, refused
from tests.unit.service.conftest import Running
from walkgraph.importing import surveying
from walkgraph.service import checkpoints
from walkgraph.service.checkpoints import CheckpointFolders


async def test_without_roots_only_what_is_published_is_listed(service: Running) -> None:
    told = (await service.http.get("/api/v1/checkpoints")).json()
    assert (told["roots"], told["found"]) == ([], [])
    assert {"BAGEL", "pi0.5"} <= {offer["title"] for offer in told["offered"]}
    assert (await service.http.get("/api/v1/checkpoints/nothing/documents")).status_code == 404
    assert (await service.http.get("/api/v1/checkpoints/..%2Fx/documents")).status_code in (404, 422)


async def test_a_folder_is_imported_and_then_names_its_graph(service: Running, tmp_path: Path) -> None:
    language_model("qwen3", tmp_path)
    object.__setattr__(service.services, "checkpoints", CheckpointFolders((tmp_path,)))
    (found,) = (await service.http.get("/api/v1/checkpoints")).json()["found"]
    assert (found["graph"], found["fits"], found["problems"], found["graphs"]) == ("qwen3_tiny", True, [], [])
    made = (await service.http.get("/api/v1/checkpoints/qwen3-tiny/documents")).json()
    assert made["graph"]["weights"]["llm"]["source"] == "checkpoint:qwen3-tiny"
    assert [placement["graph"] for placement in made["placements"]] == ["qwen3_tiny"]
    assert (await service.http.put("/api/v1/graphs/qwen3_tiny", json=made["graph"])).status_code == 200
    (found,) = (await service.http.get("/api/v1/checkpoints")).json()["found"]
    assert found["graphs"] == ["qwen3_tiny"]


def test_a_folder_is_read_again_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = language_model("qwen3", tmp_path)
    read: list[Path] = []
    survey = surveying.survey
    monkeypatch.setattr(checkpoints, "survey", lambda path, hardware: read.append(path) or survey(path, hardware))
    shown = CheckpointFolders((tmp_path,))
    assert shown.all(()) == shown.all(())
    assert read == [folder]
    (folder / "config.json").write_text("{}")
    assert shown.all(())["found"][0]["problems"]
    assert read == [folder, folder]
    assert refused(folder)
