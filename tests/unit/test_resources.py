"""Bundled documents are found by name, in a checkout and in a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from walkgraph import resources


def test_a_checkout_finds_its_documents_at_the_top(repository: Path) -> None:
    found = resources.bundled("graphs")
    assert found == {path.stem: path for path in sorted((repository / "graphs").glob("*.json"))}


def test_examples_are_graphs_in_a_folder_of_their_own(repository: Path) -> None:
    found = resources.bundled("examples")
    assert found == {path.stem: path for path in (repository / "graphs" / "examples").glob("*.json")}
    assert resources.stored_as_graphs() == resources.bundled("graphs") | found


def test_a_wheel_finds_them_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "_bundled" / "placements"
    folder.mkdir(parents=True)
    for name in ("two_gpu.json", "one_cpu.json", "README.md"):
        (folder / name).write_text("{}")
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path)
    assert list(resources.bundled("placements")) == ["one_cpu", "two_gpu"]
