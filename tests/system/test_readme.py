"""The README's blocks run as they stand, against a service that was started as the README says."""

from __future__ import annotations

import json
import os
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
    first, rest, python = [documented.block(block, tmp_path) for block in blocks[1:]]
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


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    nowhere = Running(tmp_path, "127.0.0.1:9", dict(os.environ))
    with pytest.raises(AssertionError, match=r"README.md:1\nexit 3"):
        nowhere.block(Block("README.md", 1, "bash", "exit 3\n"), tmp_path)
