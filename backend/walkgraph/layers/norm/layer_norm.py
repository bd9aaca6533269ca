"""Layer norm, and the sum before it."""

import torch
from torch import Tensor, nn


def added_norm(x: Tensor, y: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x and y `[R, W]` -> x + y (x itself without y), and its norm: float32 statistics of the rounded sum."""
    if x.is_cuda and not torch.is_grad_enabled() and x.is_contiguous() and (y is None or y.is_contiguous()):
        from walkgraph.layers.kernels.layer_norm import norm_rows

        return norm_rows(x, y, norm.weight, norm.bias, norm.eps)
    total = x if y is None else x + y
    return total, norm(total)


def shifted_norm(x: Tensor, shift: Tensor | None, norm: nn.LayerNorm) -> Tensor:
    """x `[R, W]`, shift float32 `[W]` -> norm(x + shift), the sum not rounded.

    A residual stream may leave out the biases of the products added to it: their running sum is the same for every row
    and is free to add here, while adding each bias to the stream would take a pass."""
    if x.is_cuda and not torch.is_grad_enabled() and x.is_contiguous():
        from walkgraph.layers.kernels.layer_norm import shifted_rows

        return shifted_rows(x, shift, norm.weight, norm.bias, norm.eps)
    if shift is None:
        return norm(x)
    weight, bias = norm.weight.float(), norm.bias.float()
    return torch.nn.functional.layer_norm(x.float() + shift, (x.shape[-1],), weight, bias, norm.eps).to(x.dtype)


SUMMED = 64
"""Columns of one sum of a row."""


def row_sums(x: Tensor) -> Tensor:
    """x `[R, W]` -> float32 `[R, W / SUMMED, 2]`: sums of x, and of its squares, over SUMMED columns each."""
    if x.is_cuda and x.is_contiguous():
        from walkgraph.layers.kernels.layer_norm import sum_rows

        return sum_rows(x, SUMMED)
    parts = x.float().unflatten(1, (-1, SUMMED))
    return torch.stack([parts.sum(2), parts.square().sum(2)], 2)
