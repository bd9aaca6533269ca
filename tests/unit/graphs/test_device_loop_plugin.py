"""A component with a `step` is one file: loops of it run on the device, and nothing else names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.local import LocalDeployment
from walkgraph import components
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.graph import codec
from walkgraph.placement.document import decode

FILE = """
import torch

from walkgraph.graph.catalogue import Component, Param, port
from walkgraph.networks.base import Operator, Row, StepOutputs, StepSpec


class Grow(Operator):
    def forward(self, calls, states):
        return [{"items": call.inputs["items"] * float(call.params["by"]) + 1} for call in calls]

    def step_spec(self, inputs, params):
        items = Row(tuple(inputs["items"].shape), torch.float32)
        return StepSpec(inputs={"items": items}, outputs={"items": items}, params={"by": torch.float32})

    def step_examples(self):
        return ({"items": torch.zeros(3)},)

    def step(self, batch):
        return StepOutputs({"items": batch.inputs["items"] * batch.params["by"][:, None] + 1})


ITEMS = "latents: float[n]"
COMPONENTS = (
    Component(
        name="growth.grow",
        description="Multiplies, and adds one.",
        inputs=(port("items", ITEMS),),
        outputs=(port("items", ITEMS),),
        params={"by": Param(type="number", default=2.0)},
        network="growth.grow:Grow",
        resident=True,
    ),
)
"""

GRAPH: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "growing",
    "nodes": {"grow": {"component": "growth.grow"}},
    "walks": {
        "w": {
            "inputs": {"x": "latents"},
            "body": [{"loop": "rounds", "times": "rounds", "body": ["grow"]}],
            "edges": [["@in.x", "grow.items"], ["grow.items", "grow.items"], ["grow.items", "@out.y"]],
        }
    },
    "tasks": {
        "grow": {
            "inputs": {"x": {"modality": "latents"}},
            "outputs": ["y"],
            "params": {"rounds": {"type": "integer", "default": 4, "min": 1, "max": 20}},
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
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file, and what an installer writes of the package that it is."""
    (tmp_path / "growth").mkdir()
    (tmp_path / "growth" / "grow.py").write_text(FILE)
    told = tmp_path / "growth-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: growth\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[walkgraph.components]\ngrowth = growth.grow\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WALKGRAPH_PLUGINS", '["growth"]')
    monkeypatch.setattr(components, "_known", [])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "growth"]:
        del sys.modules[name]


@pytest.mark.usefixtures("planted")
def test_a_component_with_a_step_runs_in_a_device_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalDeployment(codec.load(GRAPH), decode(PLACEMENT), threads=1)
    (loop,) = local.plan.walks[0].loops
    assert loop.resident
    assert "runs on the device" in loop.why
    (template,) = local.cores[next(iter(local.cores))].loops()
    engine = next(iter(local.engines.values()))
    engine.prepare(template)
    entered: list[LoopCall] = []
    add = engine.add_loop
    monkeypatch.setattr(engine, "add_loop", lambda call: (entered.append(call), add(call)))
    local.submit("r", "grow", {"rounds": 5}, {"x": [torch.ones(3)]})
    local.run()
    assert not local.failed
    assert [call.spec for call in entered] == [template.spec]
    (y,) = local.outputs["r"]["y"]
    assert y.tolist() == [2.0**5 + 2**5 - 1] * 3
