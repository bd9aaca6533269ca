"""Products of more rows than a decode step has: those of encoders, of blocks and of prefixes, with what stands after
each. They are the library's: from 256 rows to 100,000, tiles of our own were slower on an H200 at all but two of the
shapes that were tried, and there faster by about a microsecond. `walkgraph.layers.fitted_blocks` has those of a few
hundred rows on Hopper, with the norms and sums around them.

Shape letters: R rows, N columns of the result, K.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Literal["gelu", "gelu_tanh"]
"""The exact form by the error function, and the tanh form."""


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: Activation | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """x `[R, K]`, weight `[N, K]` -> `[R, N]` of x's type: activation(x @ weight.T + bias) + residual.

    `residual` `[R, N]`, contiguous, is consumed: without a gradient its memory may hold the result. On CUDA a bias
    beside it takes a pass of its own: see `walkgraph.layers.norm.layer_norm.shifted_norm`.
    """
    if x.is_cuda and not torch.is_grad_enabled() and x.dim() == 2 and x.dtype in (torch.bfloat16, torch.float16):
        return _by_library(x, weight, bias, activation, residual)
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
    """Use the library's product with its fused epilogues."""
    if activation is None and residual is not None and residual.is_contiguous():
        residual.addmm_(x, weight.t())
        return residual if bias is None else residual.add_(bias)
    if activation is None or bias is None:
        return plain_product(x, weight, bias, activation=activation, residual=residual)
    # Its gelu is the tanh form, also for the exact one: rounded to bfloat16 the two differ by 2e-4 (relative L2), and
    # the rounding itself by 1.7e-3.
    y = torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
    return y if residual is None else residual.add_(y)
