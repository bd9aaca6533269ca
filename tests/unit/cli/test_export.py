"""Graphs to programs and back, for all that are bundled; runs to folders; new graphs and examples."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_service import FakeService
from walkgraph.graph.codec import dumps, load
from walkgraph.resources import bundled, stored_as_graphs

Call = Callable[..., int]
Output = pytest.CaptureFixture[str]
RUN = "3f2a" + "0" * 28
PNG = b"\x89PNG\r\n\x1a\npixels"
PICTURE = {"type": "image", "mime": "image/png", "data": base64.b64encode(PNG).decode()}


@pytest.mark.parametrize("name", bundled("graphs"))
def test_every_graph_comes_back_from_its_program(walkgraph: Call, tmp_path: Path, name: str) -> None:
    program, back = tmp_path / "g.py", tmp_path / "g.json"
    assert walkgraph("export", name, "-o", str(program)) == 0
    assert walkgraph("export", str(program), "-o", str(back)) == 0
    assert back.read_text() == dumps(load(bundled("graphs")[name].read_bytes()))


def test_a_program_prints_its_document(walkgraph: Call, tmp_path: Path) -> None:
    program = tmp_path / "shapes.py"
    assert walkgraph("export", "shapes", "-o", str(program)) == 0
    printed = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    assert printed == dumps(load(bundled("graphs")["shapes"].read_bytes()))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("x = 1", "must define a graph named `graph`"),
        ("graph = 1 / 0", "fails with ZeroDivisionError"),
        ("from walkgraph.graph.build import GraphBuilder\ngraph = GraphBuilder('1').build()", "name"),
    ],
)
def test_programs_that_make_no_graph_are_told(
    walkgraph: Call,
    capsys: Output,
    tmp_path: Path,
    program: str,
    said: str,
) -> None:
    (tmp_path / "p.py").write_text(program)
    assert walkgraph("export", str(tmp_path / "p.py")) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert walkgraph("export", str(tmp_path / "none.py")) == 1
    assert walkgraph("export", "no_such_graph") == 1


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def known(service: FakeService) -> FakeService:
    def found(value: Any) -> httpx.Response:
        return httpx.Response(200, json=value)

    request = {"inputs": {"prompt": ["cmVk"], "image": PICTURE["data"]}, "params": {"seed": 7}}
    service.answers |= {
        ("GET", "/api/v1/runs"): found([{"id": RUN}]),
        ("GET", f"/api/v1/runs/{RUN}"): found({"id": RUN, "deployment": "shapes", "task": "draw", "state": "done"}),
        ("GET", f"/api/v1/runs/{RUN}/request"): found(
            {"run": RUN, "deployment": "shapes", "task": "draw", "request": request, "left_out": []}
        ),
        ("GET", f"/api/v1/runs/{RUN}/result"): found(
            {"run": RUN, "state": "done", "seed": 7, "error": None,
             "outputs": {"image": [PICTURE], "preview": [PICTURE, PICTURE], "text": [{"type": "text", "text": "red"}]}}
        ),
        ("GET", f"/api/v1/runs/{RUN}/trace"): found({"traceEvents": []}),
        ("GET", f"/api/v1/runs/{RUN}/why"): found({"lines": []}),
        ("GET", "/api/v1/deployments/shapes/graph"): found({"name": "shapes"}),
    }  # fmt: skip
    return service


@pytest.mark.usefixtures("known")
def test_a_run_becomes_a_folder(walkgraph: Call, capsys: Output, tmp_path: Path) -> None:
    assert walkgraph("export", "last", "-o", "out", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    folder = tmp_path / "out"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == told["files"]
    assert (folder / "inputs" / "image.png").read_bytes() == PNG
    assert not (folder / "inputs" / "prompt.bin").exists(), "a text that looks like base64 is a text"
    for name in ("image", "preview", "preview-1"):
        assert (folder / "outputs" / f"{name}.png").read_bytes() == PNG
    result = json.loads((folder / "result.json").read_text())
    assert result["outputs"]["image"] == [{"type": "image", "mime": "image/png", "file": "outputs/image.png"}]
    assert result["outputs"]["text"] == [{"type": "text", "text": "red"}]
    assert {"trace.perfetto.json", "trace.otlp.json", "why.json", "graph.json"} <= set(told["files"])
    about = json.loads((folder / "about.json").read_text())
    assert about["walkgraph"]
    assert about["missing"] == told["missing"] == {"placement": "there is no such thing"}
    assert not any("token" in path.read_text() for path in folder.rglob("*.json"))


@pytest.mark.usefixtures("known")
def test_a_folder_that_holds_something_is_left_alone(walkgraph: Call, capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert walkgraph("export", RUN, "-o", "out") == 1
    assert "not empty" in capsys.readouterr().err
    assert walkgraph("export", "3f2a") == 0
    assert (tmp_path / "run-3f2a0000" / "run.json").is_file()


def test_a_run_that_failed_keeps_its_error(known: FakeService, walkgraph: Call, tmp_path: Path) -> None:
    failed = {"run": RUN, "state": "failed", "error": {"code": "nan", "message": "not a number"}, "outputs": {}}
    known.answers["GET", f"/api/v1/runs/{RUN}/result"] = httpx.Response(200, json=failed)
    assert walkgraph("export", RUN, "-o", "out") == 0
    assert json.loads((tmp_path / "out" / "result.json").read_text())["error"]["code"] == "nan"


# ── to begin with ───────────────────────────────────────────────────────────────────────────────


def test_a_new_graph_is_a_copy_under_its_own_name(walkgraph: Call, capsys: Output, service: FakeService) -> None:
    assert walkgraph("new", "mine", "--from", "orpheus") == 0
    made = json.loads(Path("mine.json").read_text())
    assert made["name"] == "mine"
    assert made["walks"] == json.loads(bundled("graphs")["orpheus"].read_text())["walks"]
    assert walkgraph("new", "mine") == 1
    assert "exists already" in capsys.readouterr().err
    assert walkgraph("new", "mine", "--python") == 0
    assert walkgraph("export", "mine.py", "-o", "again.json") == 0
    assert json.loads(Path("again.json").read_text())["name"] == "mine"
    assert walkgraph("new", "not a name") == 1
    assert service.asked == []


def test_examples_say_how_to_run_each_task(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("examples", "--json") == 0
    found = {example["graph"]: example for example in json.loads(capsys.readouterr().out)}
    assert set(found) == set(stored_as_graphs())
    assert found["shapes"]["tasks"]["text_to_image"]["run"] == "walkgraph run shapes text_to_image --prompt TEXT"
    assert "bagel_cfg3" in found["bagel"]["placements"]
    assert walkgraph("examples", "pi05") == 0
    assert "walkgraph deploy pi05" in capsys.readouterr().out
    assert walkgraph("examples") == 0
