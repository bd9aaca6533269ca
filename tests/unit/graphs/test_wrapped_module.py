"""A module of torch in a plug-in: its weights are found, counted, loaded once for all nodes that name them, and batched
across nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.support.local import LocalDeployment
from walkgraph import components, plugins
from walkgraph.errors import Refused
from walkgraph.graph import codec
from walkgraph.placement.document import decode
from walkgraph.service.deployments.judging import judge

FILE = '''
from typing import Annotated

from torch import Tensor, nn

from walkgraph import wrap

Rows = Annotated[Tensor, "latents: float[n, 4]"]


@wrap.module
class Brew(nn.Module):
    """Mixes the numbers of each row."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, width), nn.Linear(width, 4)

    def forward(self, rows: Rows, *, gain: float = 1.0) -> Rows:
        return self.two(self.one(rows)) * gain
'''
GRAPH: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "brewed",
    "weights": {"brew": {"family": "brew_brew", "source": "checkpoint:brewery"}},
    "nodes": {
        "first": {"component": "brew.brew", "weights": "brew", "params": {"width": 6}},
        "second": {"component": "brew.brew", "weights": "brew", "params": {"width": 6, "gain": "=gain"}},
    },
    "walks": {
        "w": {
            "inputs": {"x": "latents"},
            "body": ["first", "second"],
            "edges": [["@in.x", "first.rows"], ["first.latents", "second.rows"], ["second.latents", "@out.y"]],
        }
    },
    "tasks": {
        "mix": {
            "inputs": {"x": {"modality": "latents"}},
            "outputs": ["y"],
            "params": {"gain": {"type": "number", "default": 2.0}},
            "steps": [{"walk": "w", "with": {"x": "@task.x"}}],
        }
    },
}
PLACEMENT = {
    "format": "walkgraph/placement@1",
    "name": "p",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of checkpoints, with the weights of the plug-in, which is installed."""
    (tmp_path / "brewing.py").write_text(FILE)
    told = tmp_path / "brewing-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: brewing\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[{plugins.FUNCTIONS}]\nbrew = brewing\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WALKGRAPH_PLUGINS", '["brew"]')
    monkeypatch.setattr(components, "_known", [])
    (tmp_path / "roots" / "brewery").mkdir(parents=True)
    save_file(tensors(), tmp_path / "roots" / "brewery" / "model.safetensors")
    yield tmp_path / "roots"
    sys.modules.pop("brewing", None)


def tensors() -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(3)
    shapes = {"one.weight": (6, 4), "one.bias": (6,), "two.weight": (4, 6), "two.bias": (4,)}
    return {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}


def plainly(rows: torch.Tensor, gain: float) -> torch.Tensor:
    there = tensors()
    for factor in (1.0, gain):
        inner = rows @ there["one.weight"].T + there["one.bias"]
        rows = (inner @ there["two.weight"].T + there["two.bias"]) * factor
    return rows


def test_a_plan_counts_its_weights_once(root: Path) -> None:
    judged = judge(GRAPH, PLACEMENT, (), (root,))
    assert judged.graph_problems == judged.placement_problems == ()
    assert judged.deployable
    assert judged.plan is not None
    lines = dict(judged.plan.ranks[0].budget)
    assert lines["weights brew"] == 4 * sum(value.numel() for value in tensors().values())


def test_it_runs_with_the_weights_of_its_folder(root: Path) -> None:
    local = LocalDeployment(codec.load(GRAPH), decode(PLACEMENT), threads=1, roots=(root,))
    given = {str(n): torch.randn(n % 2 + 1, 4, generator=torch.Generator().manual_seed(n)) for n in range(4)}
    for run, rows in given.items():
        local.submit(run, "mix", {"gain": 3.0}, {"x": [rows]})
    local.run()
    assert not local.failed
    for run, rows in given.items():
        (y,) = local.outputs[run]["y"]
        torch.testing.assert_close(y, plainly(rows, 3.0))


def test_weights_that_are_not_there_keep_it_from_being_deployed(root: Path) -> None:
    for source, code in (("checkpoint:other", "no_weights"), ("random:any:0", "unknown_size")):
        document = json.loads(json.dumps(GRAPH))
        document["weights"]["brew"]["source"] = source
        judged = judge(document, PLACEMENT, (), (root,))
        assert code in {problem.code for problem in judged.graph_problems}
        assert judged.deployable == (code == "unknown_size")


def test_what_init_reads_must_be_a_literal(root: Path) -> None:
    document = json.loads(json.dumps(GRAPH))
    document["nodes"]["second"]["params"]["width"] = "=3 + 3"
    with pytest.raises(Refused, match="parameter `width` is read when the node is loaded"):
        LocalDeployment(codec.load(document), decode(PLACEMENT), threads=1, roots=(root,))
