"""`walkgraph import`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import bagel_tiny, vjepa2_tiny
from walkgraph.cli import main as cli
from walkgraph.graph.codec import load
from walkgraph.placement.document import decode

Output = pytest.CaptureFixture[str]


@pytest.fixture
def walkgraph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["walkgraph", "import", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0)

    return call


def test_documents_are_written_and_the_way_on_is_told(
    walkgraph: Callable[..., int], capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bagel_tiny.write_folder(tmp_path)
    assert walkgraph(str(folder), "--name", "mine", "-o", "made", "--gpus", "2x141GB") == 0
    told = capsys.readouterr().out
    assert f"WALKGRAPH_CHECKPOINT_ROOTS='[\"{tmp_path}\"]'" in told
    assert "walkgraph deploy made/mine.json made/mine_one_gpu.json" in told
    assert load((tmp_path / "made" / "mine.json").read_bytes()).name == "mine"
    placed = decode(json.loads((tmp_path / "made" / "mine_cfg2_two_gpus.json").read_text()))
    assert placed.graph == "mine"
    monkeypatch.setenv("WALKGRAPH_CHECKPOINT_ROOTS", json.dumps([str(tmp_path)]))
    assert walkgraph(str(folder), "--name", "mine", "-o", "made", "--gpus", "2x141GB") == 0, "the same again is no harm"
    assert "WALKGRAPH_CHECKPOINT_ROOTS" not in capsys.readouterr().out


def test_documents_of_others_are_not_written_over(
    walkgraph: Callable[..., int], capsys: Output, tmp_path: Path
) -> None:
    folder = vjepa2_tiny.write_folder(tmp_path)
    (tmp_path / "vjepa2_tiny.json").write_text("mine")
    assert walkgraph(str(folder)) == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "vjepa2_tiny.json").read_text() == "mine"
    assert not (tmp_path / "vjepa2_tiny_one_cpu.json").exists(), "all or nothing"


def test_what_does_not_fit_is_told_and_nothing_is_written(
    walkgraph: Callable[..., int], capsys: Output, tmp_path: Path
) -> None:
    folder = bagel_tiny.write_folder(tmp_path)
    (folder / "merges.txt").unlink()
    assert walkgraph(str(folder), "-o", "made") == 1
    assert "has no `tokenizer.json`, nor `vocab.json`, `merges.txt`" in capsys.readouterr().err
    assert walkgraph(str(folder), "-o", "made", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["family"], found["ok"], len(found["problems"])) == ("bagel", False, 1)
    assert not (tmp_path / "made").exists()


def test_answers_in_json_hold_the_documents(walkgraph: Callable[..., int], capsys: Output, tmp_path: Path) -> None:
    assert walkgraph(str(vjepa2_tiny.write_folder(tmp_path)), "-o", "made", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert found["parameters"] * 4 == found["bytes"]
    assert found["graph"]["weights"]["vjepa2"]["source"] == "checkpoint:vjepa2-tiny"
    assert [placement["name"] for placement in found["placements"]] == ["vjepa2_tiny_one_cpu"]


def test_wrong_commands_are_told_from_wrong_folders(walkgraph: Callable[..., int], tmp_path: Path) -> None:
    assert walkgraph(str(tmp_path), "--save", "-o", "x") == 2
    assert walkgraph(str(vjepa2_tiny.write_folder(tmp_path)), "--gpus", "lots") == 2
    assert walkgraph("nowhere") == 1
