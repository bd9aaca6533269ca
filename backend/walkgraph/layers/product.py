"""Products of more rows than a decode step has: those of encoders, of blocks and of prefixes, with what stands after
each.

Shape letters: R rows, N columns of the result, K.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.invariance import is_batch_invariant

Activation = Literal["gelu", "gelu_tanh"]
"""The exact form, by the error function, and the one by tanh."""


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """x `[R, K]`, weight `[N, K]` -> `[R, N]` of x's type: activation(x @ weight.T + bias) + residual.

    `residual` `[R, N]`, contiguous, is given up: without a gradient its memory may hold the result. `gated`: the weight
    is `[2N, K]`, gate rows first, without a bias, and the result activation(gate) * up.
    """
    if x.is_cuda and not torch.is_grad_enabled() and x.dim() == 2:
        result = _tiled(x, weight, bias, activation, residual, gated)
        if result is not None:
            return result
    return plain_product(x, weight, bias, activation=activation, residual=residual, gated=gated)


def plain_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """`product` in torch operations."""
    y = F.linear(x, weight, bias)
    if gated:
        gate, up = y.chunk(2, -1)
        y = _activated(gate, activation) * up
    else:
        y = _activated(y, activation)
    return y if residual is None else residual + y


def _activated(y: Tensor, activation: Activation | None) -> Tensor:
    return y if activation is None else F.gelu(y, approximate="tanh" if activation == "gelu_tanh" else "none")


def _tiled(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None, residual: Tensor | None, gated: bool
) -> Tensor | None:
    """By one launch, where there is a kernel for these and none of the library's is faster."""
    from walkgraph.layers.kernels.product import Ending, launch, programs_of, unfit
    from walkgraph.layers.kernels.product_config import choose

    end = Ending(bias, activation, residual, gated)
    if not programs_of(x.device) or unfit(x, weight, end) is not None:
        return None
    cut = choose(x.shape[0], weight.shape[0], x.shape[1], gated, alike=is_batch_invariant())
    return None if cut is None else launch(cut, x, weight, end)
