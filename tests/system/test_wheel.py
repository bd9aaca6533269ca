"""The wheel carries what a checkout has: code, documents, starters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

READ_BACK = """
import json
from walkgraph import resources, starters
print(json.dumps({
    "graphs": list(resources.bundled("graphs")),
    "placements": list(resources.bundled("placements")),
    "starters": starters.names(),
    "from": resources.__file__,
}))
"""


@pytest.fixture(scope="module")
def unpacked(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    answer = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode == 0, answer.stderr
    [wheel] = folder.glob("walkgraph-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_documents_and_starters_are_found_in_a_wheel(unpacked: Path, repository: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", READ_BACK],
        cwd=unpacked,
        env={"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found = json.loads(answer.stdout)
    assert Path(found["from"]).is_relative_to(unpacked)
    for kind in ("graphs", "placements"):
        assert found[kind] == sorted(path.stem for path in (repository / kind).glob("*.json"))
        assert found[kind]
    folders = (repository / "backend" / "walkgraph" / "starters").glob("*/config.json")
    assert found["starters"] == sorted(path.parent.name for path in folders)


def test_every_tracked_file_of_the_package_is_in_the_wheel(unpacked: Path, repository: Path) -> None:
    command = ["git", "-C", repository, "ls-files", "backend/walkgraph"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    missing = [name for name in tracked if not (unpacked / Path(name).relative_to("backend")).exists()]
    assert missing == []


def test_the_command_is_declared(unpacked: Path) -> None:
    [entries] = unpacked.glob("walkgraph-*.dist-info/entry_points.txt")
    assert "walkgraph = walkgraph.cli.main:main" in entries.read_text()


def test_the_editors_wheel_carries_its_bundle_and_streamlits_manifest(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    answer = subprocess.run(
        command, cwd=repository / "editor", capture_output=True, text=True, timeout=600, check=False
    )
    assert answer.returncode == 0, answer.stderr
    [wheel] = tmp_path.glob("walkgraph_editor-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert len([name for name in names if re.fullmatch(r"walkgraph_editor/ui_dist/index-[\w-]+\.js", name)]) == 1
    assert "walkgraph_editor/pyproject.toml" in names
    assert not [name for name in names if "node_modules" in name]
