"""The page about one's own component, followed from nothing: its commands as they stand, and how long they take."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.documents import Block, Running, blocks_of
from walkgraph.client import Client, RunError
from walkgraph.settings import Settings

PAGE = "extending/ten_minutes.md"
SHOWN = "walkgraph_photo/__init__.py:20: ValueError: a radius of 0 softens nothing"
"""As the page shows it."""


@pytest.fixture(scope="module")
def blocks(repository: Path) -> list[Block]:
    found = blocks_of(PAGE, (repository / "docs" / PAGE).read_text())
    return [block for block in found if block.language in ("bash", "python")]


@pytest.fixture(autouse=True)
def removed() -> Iterator[None]:
    """Nothing stays installed, wherever the page ends."""
    yield
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "uninstall", "-y", "walkgraph-photo"]
    subprocess.run(pip, check=True, capture_output=True)


def test_the_page_shows_the_error_that_is_told(repository: Path) -> None:
    assert f"walkgraph: {SHOWN} (node `soften`)\n" in (repository / "docs" / PAGE).read_text()


def test_the_page_is_followed_to_its_end(
    documented: Running, blocks: list[Block], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    commands = 0
    reached: dict[str, float] = {}
    for block in blocks:
        commands += block.code.count("walkgraph ")
        documented.block(block, tmp_path)
        reached[block.code.strip().splitlines()[-1]] = time.monotonic() - began
        if block.code.startswith("walkgraph restart"):
            fails_at_its_node(documented)
    with capsys.disabled():
        print(f"\n{PAGE}: {commands} commands, {time.monotonic() - began:.1f} s of the machine")
        for line, seconds in reached.items():
            print(f"  {seconds:6.1f} s  {line}")
    sharp, soft, softer = (levels(tmp_path / f"{name}.png") for name in ("circle", "soft", "softer"))
    assert sharp.shape == soft.shape == softer.shape
    assert roughness(soft) < roughness(softer) < roughness(sharp)
    assert "photo" not in (documented.home / ".walkgraph" / "plugins.json").read_text()


def fails_at_its_node(documented: Running) -> None:
    """After the restart: the new ports are there, and errors have their place and no more."""
    with Client.local(Settings(home=documented.home / ".walkgraph")) as client:
        shown = {one["name"]: one for one in client.components()}["photo.soften"]
        assert [port["name"] for port in shown["outputs"]] == ["image", "brightness"]
        run = client.task("soften", "soften")
        with pytest.raises(RunError) as told:
            run(picture=png(64), gain=0)
        assert (told.value.code, told.value.node) == ("node_error", "soften")
        assert SHOWN in told.value.detail
        assert "Traceback" not in json.dumps(told.value.content)
        with pytest.raises(RunError, match="at least 8 pixels") as told:
            run(picture=png(4))
        assert told.value.code == "invalid_input"
    logs = "".join(path.read_text() for path in (documented.home / ".walkgraph" / "d").rglob("deployment.log"))
    assert "Traceback" in logs
    assert "walkgraph_photo/__init__.py" in logs


def png(width: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, 8), "red").save(data, "PNG")
    return data.getvalue()


def levels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("L")).astype(float)


def roughness(picture: np.ndarray) -> float:
    return float(np.abs(np.diff(picture, axis=0)).max())
