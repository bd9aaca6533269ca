"""Named sequences of actions to watch a world with."""

import math

import torch
from torch import Tensor

from walkgraph.models.world.scene import MOST

DRIVES = ("circle", "square", "wander", "rest")
_ROUND = 16
"""Steps of a circle, and of a square."""
_GRIP = 0.05
"""Change of the grip in every step: the colour goes from one end to the other and back."""


def drive(name: str, length: int, seed: int) -> Tensor:
    """float32 `[T, 7]`. Raises ValueError for an unknown name."""
    steps = torch.arange(length)
    actions = torch.zeros(length, 7)
    if name == "circle":
        turn = steps * (2 * math.pi / _ROUND)
        actions[:, :2] = 0.8 * MOST * torch.stack([turn.cos(), turn.sin()], 1)
    elif name == "square":
        sides = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        actions[:, :2] = 0.9 * MOST * sides[steps * 4 // _ROUND % 4]
    elif name == "wander":
        dice = torch.Generator().manual_seed(seed)
        legs = (torch.rand(length // 4 + 1, 2, generator=dice) * 2 - 1) * MOST
        actions[:, :2] = legs.repeat_interleave(4, 0)[:length]
    elif name != "rest":
        raise ValueError(f"no drive `{name}`; use one of {', '.join(DRIVES)}")
    actions[:, 6] = torch.where(steps // _ROUND % 2 == 0, _GRIP, -_GRIP)
    return actions


def cut(actions: Tensor, length: int) -> Tensor:
    """actions `[t, 7]` -> `[T, 7]`: cut to the length, or padded with rest."""
    given = actions[:length].float()
    return torch.cat([given, given.new_zeros(length - len(given), 7)])
