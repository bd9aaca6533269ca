"""pi0.5 over its bundled graph: cameras, a task and a state in, a chunk of actions out, on the device and stepped."""

import io
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.support.local import LocalDeployment, node_calls
from tests.unit.graphs.test_bundled import GRAPHS
from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.states import States
from walkgraph.graph import codec
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.operators import ActionExpert, random_pi05
from walkgraph.models.pi05.presets import PI05
from walkgraph.placement.document import decode

CONFIG = PI05["pi05-tiny"]
SIDE = CONFIG.picture
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
CAMERAS = ("base", "left_wrist", "right_wrist")
TEXT, STATE = "put_the red\nblock away ", [0.5, -1.0, 0.999, 1.0, -0.25, 0.0]
PLACEMENT = {
    "format": "walkgraph/placement@1",
    "name": "one",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}


@cache
def deployment(*, resident: bool = True) -> LocalDeployment:
    document = json.loads(GRAPHS["pi05"].read_text())
    document["weights"]["pi05"]["source"] = "random:pi05-tiny:3"
    return LocalDeployment(codec.load(document), decode(PLACEMENT), threads=1, resident=resident)


@cache
def model() -> Pi05:
    return random_pi05(CONFIG, 3, device=torch.device("cpu"), dtype=torch.float32)


def levels(camera: str) -> np.ndarray:
    """uint8 `[SIDE, SIDE, 3]`"""
    generator = np.random.default_rng(CAMERAS.index(camera))
    return generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


def encoded(camera: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(levels(camera)).save(buffer, "PNG")
    return buffer.getvalue()


def prompt(text: str = "Task: put the red block away, State: 192 0 255 255 96 128;\nAction: ") -> Tensor:
    return torch.tensor([CONFIG.bos, *text.encode()])


def asked(*cameras: str) -> dict[str, list[Any]]:
    return {
        **{name: [encoded(name)] for name in cameras},
        "instruction": [TEXT],
        "state": [torch.tensor(STATE)],
    }


def drawn(cameras: tuple[str, ...], *, steps: int, horizon: int, width: int, seed: int) -> Tensor:
    """By the whole network in one pass a step, of pictures and a prompt that are put together here."""
    pixels = [torch.from_numpy(levels(name)).movedim(2, 0)[None] / 127.5 - 1 for name in cameras]
    x = torch.randn(1, horizon, 32, generator=torch.Generator().manual_seed(seed))
    for step in range(steps):
        flow = model()(pixels, prompt()[None], None, x, torch.tensor([1 - step / steps]))
        x = x - flow.velocity / steps
    return x[0, :, :width]


def test_a_robot_acts_with_the_cameras_that_it_has() -> None:
    local = deployment()
    runs = {"three": CAMERAS, "two": ("base", "right_wrist"), "one": ("left_wrist",), "blind": ()}
    for run, cameras in runs.items():
        local.submit(run, "act", {"horizon": 6, "action_width": 5, "steps": 4, "seed": 7}, asked(*cameras))
    local.run()
    assert not local.failed
    for run, cameras in runs.items():
        (actions,) = local.outputs[run]["actions"]
        wanted = drawn(cameras, steps=4, horizon=6, width=5, seed=7)
        torch.testing.assert_close(torch.as_tensor(actions), wanted, **CLOSE)


def test_steps_on_the_device_are_those_that_are_called_one_by_one() -> None:
    answers: list[dict[str, Tensor]] = []
    params = {"a": {"steps": 10, "horizon": 15, "seed": 1}, "b": {"steps": 3, "horizon": 15, "seed": 2}}
    params["c"] = {"steps": 10, "horizon": 50, "seed": 3}
    for resident in (True, False):
        local = deployment(resident=resident)
        for run, given in params.items():
            local.submit(run, "act", given, asked("base"))
        local.run()
        assert not local.failed
        answers.append({run: torch.as_tensor(local.outputs[run]["actions"][0]) for run in params})
    for run, given in params.items():
        assert answers[0][run].shape == (given["horizon"], 7)
        torch.testing.assert_close(answers[0][run], answers[1][run], **CLOSE)


def test_the_loop_is_the_engines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of it is a forward of its own, and the prefix is read once."""
    local = deployment()

    def refused(self: ActionExpert, calls: Sequence[Call], states: States) -> list[Outputs]:
        raise AssertionError("a step of the loop came back to the host")

    monkeypatch.setattr(ActionExpert, "forward", refused)
    local.submit("whole", "act", {"steps": 10, "seed": 1}, asked("base", "left_wrist"))
    local.run()
    assert not local.failed
    calls = node_calls(local.times["whole"])
    assert (calls["prefix"], calls["expert"], calls["modulations"]) == (1, 10, 1)
