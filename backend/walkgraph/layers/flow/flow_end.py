"""How a flow step over few rows ends: the last norm, the map out of the model, and the Euler step, in one launch.

Shape letters: B blocks, t rows of a block, R = B * t, W model width, A numbers of a row.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.norm.modulated import modulated


class Way(NamedTuple):
    """Of every block, float32 `[B]`; they may be columns of a table."""

    time: Tensor
    to: Tensor


class Last(NamedTuple):
    """The last norm, which is modulated, and the map after it."""

    scale: Tensor
    """`[B, W]`; `shift` likewise: their rows may be apart."""
    shift: Tensor
    eps: float
    weight: Tensor
    """float32 `[A, W]`"""
    bias: Tensor
    """float32 `[A]`"""


def velocity(x: Tensor, last: Last) -> Tensor:
    """x `[R, W]` -> float32 `[R, A]`: its norm, scaled and shifted, through the map in float32."""
    return F.linear(modulated(x, last.scale, last.shift, last.eps).float(), last.weight, last.bias)


def moved(actions: Tensor, by: Tensor, way: Way) -> Tensor:
    """Actions and velocity, float32 `[B, t, A]`, of the way's times -> actions at the times that it goes to."""
    return actions + by * (way.to - way.time)[:, None, None]


def end(x: Tensor, last: Last, actions: Tensor, way: Way) -> Tensor:
    """`moved` by the `velocity` of x: x `[R, W]`, actions float32 `[B, t, A]` -> like them."""
    if x.is_cuda and not torch.is_grad_enabled():
        from walkgraph.layers.kernels.flow_end import launch

        return launch(x, last, actions, way)
    return moved(actions, velocity(x, last).view(actions.shape), way)
