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
) -> Tensor:
    """x `[R, K]`, weight `[N, K]` -> `[R, N]` of x's type: activation(x @ weight.T + bias) + residual.

    `residual` `[R, N]`, contiguous, is given up: without a gradient its memory may hold the result.
    """
    if x.is_cuda and not torch.is_grad_enabled() and x.dim() == 2:
        result = _tiled(x, weight, bias, activation, residual)
        return _by_library(x, weight, bias, activation, residual) if result is None else result
    return plain_product(x, weight, bias, activation=activation, residual=residual)


def plain_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: Activation | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """`product` in torch operations."""
    y = F.linear(x, weight, bias)
    if activation is not None:
        y = F.gelu(y, approximate="tanh" if activation == "gelu_tanh" else "none")
    return y if residual is None else residual + y


def _by_library(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None, residual: Tensor | None
) -> Tensor:
    """With what the library can end a product with at once."""
    if activation == "gelu_tanh" and bias is not None:
        y = torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
        return y if residual is None else residual.add_(y)
    if residual is not None and bias is None and activation is None:
        return residual.addmm_(x, weight.t())
    return plain_product(x, weight, bias, activation=activation, residual=residual)


def _tiled(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None, residual: Tensor | None
) -> Tensor | None:
    """By one launch, where there is a kernel for these and none of the library's is faster."""
    from walkgraph.layers.kernels.product import Ending, launch, programs_of, unfit
    from walkgraph.layers.kernels.product_config import choose

    end = Ending(bias, activation, residual)
    if not programs_of(x.device) or unfit(x, weight, end) is not None:
        return None
    cut = choose(x.shape[0], weight.shape[0], x.shape[1], alike=is_batch_invariant())
    return None if cut is None else launch(cut, x, weight, end)
