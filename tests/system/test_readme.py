"""The README's blocks run as they stand, against a service that was started as the README says."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.support.documents import Block, Running, blocks_of


@pytest.fixture(scope="module")
def blocks(repository: Path) -> list[Block]:
    """The README's code that can be run."""
    text = (repository / "README.md").read_text()
    return [block for block in blocks_of("README.md", text) if block.language in ("bash", "python")]


def test_the_first_block_starts_everything(blocks: list[Block]) -> None:
    assert (blocks[0].language, blocks[0].code) == ("bash", "./dev up\n")


def test_every_block_runs(documented: Running, blocks: list[Block], tmp_path: Path) -> None:
    first, films, rest, python, openai, session, *watching = [documented.block(block, tmp_path) for block in blocks[1:]]
    assert first
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.size[0] >= 16
        assert len(picture.convert("RGB").getcolors(64 * 64) or ()) > 1
    assert rest == ""
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert [value["type"] for value in answer["outputs"]["image"]] == ["image"]
    for name in ("circle", "blue"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size == (64, 64)
    assert {"preview 0", "image 0"} <= set(python.splitlines())
    assert "plan of `shapes`" in python
    assert "circle" in openai
    assert len((tmp_path / "speech.mp3").read_bytes()) > 1000
    acted(films, session, tmp_path)
    watched(watching, tmp_path)


def acted(films: str, session: str, folder: Path) -> None:
    """Two films, and chunks of actions for what was seen, the last included."""
    assert "reached: yes" in films
    for name, most in (("reach", 1 + 24), ("world", 16)):
        with Image.open(folder / f"{name}.png") as film:
            assert 3 <= getattr(film, "n_frames", 1) <= most
    answered = re.findall(r"^what was seen at (\d+) asks for \[-?[\d.e-]+, -?[\d.e-]+\]$", session, re.MULTILINE)
    assert answered[-1] == "19"
    assert len(answered) == len(session.splitlines())


def watched(printed: list[str], folder: Path) -> None:
    """What the blocks about watching have shown and written."""
    traces, stopped, _ = printed
    assert "text_to_image on shapes: done" in traces
    assert "RANK" in traces
    assert "identical: " in traces
    assert json.loads((folder / "run.perfetto.json").read_text())["traceEvents"]
    assert json.loads((folder / "run.otlp.json").read_text())["resourceSpans"]
    held, why = stopped.splitlines()
    assert held == "held before vae_decoder"
    assert why.startswith("Of its ")
    metrics = (folder / "metrics.txt").read_text()
    for name in ("walkgraph_time_to_first_token_seconds_count", "walkgraph_kv_cache_usage_perc"):
        assert f'{name}{{deployment="shapes"' in metrics


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    nowhere = Running(tmp_path, "127.0.0.1:9", dict(os.environ))
    with pytest.raises(AssertionError, match=r"README.md:1\nexit 3"):
        nowhere.block(Block("README.md", 1, "bash", "exit 3\n"), tmp_path)
