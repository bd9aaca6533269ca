"""The example of a plug-in, installed as its page says: its own tests, and a picture's edges by a running service."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.support.serving import Service
from walkgraph.client import ProblemError

LISTED = json.dumps(["edges"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A folder of packages with the plug-in in it."""
    found = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", found]
    source = tmp_path_factory.mktemp("source") / "plugin"
    subprocess.run(["cp", "-r", repository / "examples" / "plugin", source], check=True)
    subprocess.run([*pip, source], check=True)
    return found


def test_its_own_tests_pass(site: Path, repository: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(site), "WALKGRAPH_PLUGINS": LISTED}
    example = repository / "examples" / "plugin"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", example, example / "tests"]
    subprocess.run(command, env=environment, check=True, cwd=site)


def test_its_graph_is_deployed_and_finds_edges(site: Path, tmp_path: Path, repository: Path) -> None:
    graph = json.loads((repository / "examples" / "plugin" / "edges.json").read_text())
    picture = Image.new("RGB", (64, 48), "white")
    ImageDraw.Draw(picture).rectangle((16, 12, 47, 35), fill="black")
    data = io.BytesIO()
    picture.save(data, "PNG")
    service = Service(tmp_path / "home", {"PYTHONPATH": str(site), "WALKGRAPH_PLUGINS": LISTED})
    service.up("--no-deploy")
    try:
        with service.client() as client:
            assert "edges.sobel" in {found["name"] for found in client.components()}
            client.deploy(graph, name="edges")
            service.wait_ready("edges")
            [found] = client.task("edges", "edges")(image=data.getvalue(), gain=8.0)["image"]
    finally:
        service.down()
    levels = np.asarray(Image.open(io.BytesIO(found.data)).convert("L"))
    assert levels[24, 16] > 200
    assert levels[24, 32] == 0
    assert levels[2, 2] == 0


def test_what_is_not_listed_is_not_there(site: Path, tmp_path: Path, repository: Path) -> None:
    graph = json.loads((repository / "examples" / "plugin" / "edges.json").read_text())
    service = Service(tmp_path / "home", {"PYTHONPATH": str(site)})
    service.up("--no-deploy")
    try:
        with service.client() as client, pytest.raises(ProblemError) as told:
            client.deploy(graph, name="edges")
    finally:
        service.down()
    assert "unknown_component" in {fault.code for fault in told.value.faults}


def test_one_that_is_not_installed_stops_the_start(tmp_path: Path) -> None:
    environment = {**os.environ, "WALKGRAPH_HOME": str(tmp_path / "home"), "WALKGRAPH_PLUGINS": '["egdes"]'}
    command = [sys.executable, "-m", "walkgraph.cli.main", "up", "--port", "0", "--no-deploy"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 1
    assert "plug-in `egdes`" in answer.stderr
    assert "Traceback" not in answer.stderr
