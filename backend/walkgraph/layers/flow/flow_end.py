"""The end of a flow step over few rows: the last norm, the map out of the model and the Euler step, in one launch.

Shape letters: B blocks, t rows of a block, R = B * t, W model width, A numbers of a row.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead
from walkgraph.layers.norm.modulated import modulated


def velocity(x: Tensor, head: VelocityHead) -> Tensor:
    """x `[R, W]` -> float32 `[R, A]`: its norm, scaled and shifted, through the map in float32."""
    return F.linear(modulated(x, head.scale, head.shift, head.eps).float(), head.weight, head.bias)


def moved(actions: Tensor, by: Tensor, interval: FlowInterval) -> Tensor:
    """Actions and velocity, float32 `[B, t, A]`, at the interval's `time` -> actions at its `to`."""
    return actions + by * (interval.to - interval.time)[:, None, None]


def end(x: Tensor, head: VelocityHead, actions: Tensor, interval: FlowInterval) -> Tensor:
    """`moved` by the `velocity` of x: x `[R, W]`, actions float32 `[B, t, A]` -> like them."""
    if x.is_cuda and not torch.is_grad_enabled():
        from walkgraph.layers.kernels.flow_end import launch

        return launch(x, head, actions, interval)
    return moved(actions, velocity(x, head).view(actions.shape), interval)
