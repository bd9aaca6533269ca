"""The kernel of poses against its twin: in Triton's interpreter, where a CPU's functions stand for the device's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from torch import Tensor

from walkgraph.layers.kernels import poses
from walkgraph.layers.poses import plain_move


def of_numpy(function: Any) -> Any:
    def called(*given: Any) -> Any:
        one = given[0].handle
        return tl.core.tensor(type(one)(function(*(part.handle.data for part in given)), one.dtype), given[0].type)

    return called


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    if device != "cpu":
        return
    names = {"sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "atan2": np.arctan2}
    library = SimpleNamespace(**{name: of_numpy(function) for name, function in names.items()})
    monkeypatch.setattr(poses, "libdevice", library)


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


def near(pose: Tensor, action: Tensor, device: str) -> None:
    found = poses.move(pose.to(device), action.to(device), 1e-7).cpu()
    wanted = plain_move(pose, action)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_poses_and_actions_of_any_layout(device: str) -> None:
    pose, action = random(1, 50, 7), random(2, 50, 3, 7)
    near(pose, action[:, 1], device)
    near(pose[:, None], action, device)
    near(action.transpose(0, 1).contiguous().transpose(0, 1), action[:, :1], device)
    near(random(3, 1, 7), random(4, 7, 1).T, device)


def test_angles_at_the_poles(device: str) -> None:
    pose, action = random(1, 4, 7), random(2, 4, 7)
    pose[:, 4] = torch.tensor([1, -1, 1, -1]) * torch.pi / 2
    action[:, 3:6] = 0
    near(pose, action, device)
    assert not poses.move(pose.to(device), action.to(device), 1e-7)[:, 5].any()
