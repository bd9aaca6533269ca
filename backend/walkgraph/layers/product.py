"""Products of more rows than a decode step has: those of encoders, of blocks and of prefixes, with what stands after
each.

Shape letters: R rows, N columns of the result, K.
"""

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

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
