"""Layer norm, and the sum before it."""

import torch
from torch import Tensor, nn


def added_norm(x: Tensor, y: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x and y `[R, W]` -> x + y (x itself without y), and that normed: statistics in float32 of the rounded sum."""
    if x.is_cuda and not torch.is_grad_enabled() and x.is_contiguous() and (y is None or y.is_contiguous()):
        from walkgraph.layers.kernels.layer_norm import norm_rows

        return norm_rows(x, y, norm.weight, norm.bias, norm.eps)
    total = x if y is None else x + y
    return total, norm(total)
