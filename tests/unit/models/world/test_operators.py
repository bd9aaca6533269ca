from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.operator import Operator
from walkgraph.abi.step import StepBatch
from walkgraph.components import catalogue, families
from walkgraph.engine.engine import Engine
from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Weights
from walkgraph.models.world import scene as world
from walkgraph.models.world.drives import DRIVES
from walkgraph.models.world.operators import ComparePictures, PaintFeatures, Render, SimulateAction, load_painter
from walkgraph.models.world.painter import Painter, PainterConfig, facts
from walkgraph.models.world.picture import picture
from walkgraph.placement.sizes import find_sizes

NAMES = {
    "begin": "RandomScene",
    "drive": "ScriptedActions",
    "truth": "SimulateAction",
    "look": "Render",
    "beside": "ComparePictures",
}
SMALL = PainterConfig(features=12, channels=(8, 8, 4, 4))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of({node: (f"walkgraph.models.world.operators:{name}", {}) for node, name in NAMES.items()}))


def painter() -> Painter:
    torch.manual_seed(0)
    return Painter(SMALL).eval().requires_grad_(False)


def test_the_plan_knows_how_large_a_painter_is() -> None:
    numbers = sum(tensor.numel() for tensor in Painter(PainterConfig()).state_dict().values())
    for source in ("random:world:0", "starter:world"):
        assert find_sizes(families())(Weights(family="world", source=source)).numbers == {"painter": numbers}


def test_what_is_declared_is_what_the_world_has() -> None:
    """Declarations are read without torch, and repeat what lies beside it."""
    known = catalogue()
    assert known["world.scripted_actions"].params["drive"].choices == DRIVES
    assert [str(port.type) for port in known["world.store_scene"].outputs] == [f"state: float[{world.NUMBERS}]"]


def pictures(seed: int, count: int = 2) -> Tensor:
    return torch.rand(count, 3, world.SIDE, world.SIDE, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_a_run_begins_in_the_scene_of_its_seed(engine: Engine) -> None:
    found = outputs(engine, *(call("begin", {}, run=str(seed), seed=seed) for seed in (7, 8)))
    for one, scene in zip(found, world.drawn([7, 8]).numbers(), strict=True):
        assert torch.equal(one["scene"], scene)
        assert torch.equal(one["goal"], picture(world.at_goal(world.Scene.of(scene))))


def test_truth_moves_and_tells_how_far_the_goal_is(engine: Engine) -> None:
    scenes = world.drawn([1, 2])
    actions = torch.tensor([[0.05, -0.02, 0, 0, 0, 0, 0.3]]).repeat(2, 1)
    calls = [
        call("truth", {"scene": scene, "action": action}, run=str(at))
        for at, (scene, action) in enumerate(zip(scenes.numbers(), actions, strict=True))
    ]
    found = outputs(engine, *calls)
    after = world.moved(scenes, actions)
    off = (after.place - after.goal[:, :2]).norm(dim=-1) * world.SIDE
    assert torch.equal(torch.stack([one["scene"] for one in found]), after.numbers())
    assert [float(one["off"]) for one in found] == pytest.approx(off.tolist())
    assert [one["reached"] for one in found] == [False, False]


def test_the_goal_is_reached_at_the_goal() -> None:
    scene = world.at_goal(world.drawn([1])).numbers()
    made = SimulateAction().work({"scene": scene, "action": torch.zeros(1, 7)}, {})
    assert bool(made["reached"])
    assert float(made["off"]) == 0


def test_scenes_and_actions_of_another_size_are_refused(engine: Engine) -> None:
    (answer,) = serve(engine, call("truth", {"scene": torch.zeros(28), "action": torch.zeros(3)}))
    assert answer.error is not None
    assert "action` takes [7], and got [3]" in answer.error.message


@pytest.mark.parametrize(("given", "length"), [(None, 3), (2, 3), (5, 3)])
def test_drives_are_those_that_are_sent_or_named(engine: Engine, given: int | None, length: int) -> None:
    inputs = {} if given is None else {"actions": torch.full((given, 7), 0.01)}
    (found,) = outputs(engine, call("drive", inputs, drive="square", horizon=length, seed=1))
    assert found["actions"].shape == (length, 7)
    sent = (found["actions"] == 0.01).all(1)
    assert sent.sum() == min(given or 0, length)


def test_actions_that_are_none_are_the_clients_fault(engine: Engine) -> None:
    (answer,) = serve(engine, call("drive", {"actions": torch.zeros(6)}, drive="rest", horizon=1, seed=1))
    assert answer.error is not None
    assert answer.error.code == "invalid_input"
    assert "rows of 7 numbers" in answer.error.message


def test_one_action_needs_no_rows(engine: Engine) -> None:
    (found,) = outputs(engine, call("drive", {"actions": torch.full((7,), 0.01)}, drive="square", horizon=2, seed=1))
    assert found["actions"].tolist() == [pytest.approx([0.01] * 7), [0.0] * 7]


def test_pictures_stand_beside_each_other(engine: Engine) -> None:
    left, right = pictures(1)
    poses = {"left_pose": torch.zeros(7), "right_pose": torch.tensor([0.25, 0, 9, 9, 9, 9, 9])}
    both = {"left": left, "right": right}
    (found,) = outputs(engine, call("beside", {**both, **poses}, scale=2))
    assert found["pixels"].shape == (3, 128, 260)
    assert torch.equal(found["pixels"][:, ::2, :128:2], left)
    assert torch.equal(found["pixels"][:, 1::2, -127::2], right)
    assert float(found["off"]) == 16
    (found,) = outputs(engine, call("beside", both, scale=1))
    assert found.keys() == {"pixels"}


def given(operator: Operator) -> dict[str, Tensor]:
    dice = torch.Generator().manual_seed(3)
    scene = world.drawn([3, 4, 5]).numbers()
    some: dict[type, dict[str, Tensor]] = {
        SimulateAction: {"scene": scene, "action": torch.randn(3, 7, generator=dice) * 0.05},
        Render: {"scene": scene},
        PaintFeatures: {"features": torch.randn(3, 64, SMALL.features, generator=dice)},
        ComparePictures: {
            "left": pictures(1, 3),
            "right": pictures(2, 3),
            "left_pose": scene[:, :7],
            "right_pose": scene[:, 7:14],
        },
    }
    return some[type(operator)]


@pytest.mark.parametrize(
    "operator", [SimulateAction(), Render(), PaintFeatures(painter(), torch.float32), ComparePictures()], ids=type
)
def test_a_step_is_the_forward_and_as_its_spec_says(operator: Any) -> None:
    inputs, params = given(operator), {"scale": 2} if isinstance(operator, ComparePictures) else {}
    calls = [call("one", {port: rows[at] for port, rows in inputs.items()}, run=str(at), **params) for at in range(3)]
    spec = operator.step_spec({port: rows[0].to("meta") for port, rows in inputs.items()}, params)
    numbers = torch.zeros(3, dtype=torch.int64)
    batch = StepBatch(
        rows=numbers.int(), inputs=inputs, params={}, seed=numbers, iteration=numbers, variant=spec.variant
    )
    stepped = operator.step(batch).ports
    assert {port: (row.shape, row.dtype) for port, row in spec.outputs.items()} == {
        port: (tuple(rows.shape[1:]), rows.dtype) for port, rows in stepped.items()
    }
    assert spec.inputs.keys() == inputs.keys()
    for at, one in enumerate(operator.forward(calls, None)):
        assert one.keys() == stepped.keys()
        assert all(torch.equal(torch.as_tensor(value), stepped[port][at]) for port, value in one.items())


def test_a_step_needs_all_that_is_always_there() -> None:
    assert Render().step_spec({}, {}) is None
    assert SimulateAction().step_spec({"scene": torch.zeros(28), "action": torch.zeros(3)}, {}) is None


def test_what_is_read_is_what_was_told() -> None:
    """The linear map and its units: features that hold the facts along its directions give them back."""
    scenes, one = world.drawn(list(range(5))), painter()
    inverse = torch.linalg.pinv(one.read.weight)
    features = (facts(scenes) - one.read.bias) @ inverse.T
    read = one.reading(features[:, None].expand(-1, 64, -1))
    assert torch.allclose(read.place, scenes.place, atol=1e-4)
    assert torch.allclose(read.grip, scenes.grip, atol=1e-4)
    assert torch.allclose(read.arrow, scenes.arrow(), atol=1e-4)
    along = torch.where(scenes.axis > 0.5, read.heading[:, 1], read.heading[:, 0])
    assert torch.allclose(along, scenes.heading, atol=1e-3)


def test_what_is_read_has_gradients_also_after_a_reading_without() -> None:
    one = painter().requires_grad_(True)
    with torch.inference_mode():
        one.reading(torch.randn(1, 64, 12))
    one.reading(torch.randn(1, 64, 12)).place.sum().backward()
    assert one.read.weight.grad is not None
    assert one.read.weight.grad.any()


def test_a_painter_is_read_from_its_folder(tmp_path: Path) -> None:
    one = painter()
    save_file(dict(one.state_dict()), tmp_path / "painter.safetensors")
    (tmp_path / "painter.json").write_text(json.dumps({"features": 12, "channels": [8, 8, 4, 4]}))
    features = torch.randn(1, 64, 12)
    assert torch.equal(load_painter(tmp_path)(features), one(features))
    (tmp_path / "painter.json").write_text(json.dumps({"features": 12, "channels": [8, 8]}))
    with pytest.raises(InvalidInput, match="list of four"):
        load_painter(tmp_path)
