"""Linear layers of a step: an RMS norm before, SwiGLU and a residual after, in one launch where rows are few.

Shape letters: R rows, N columns of the result, K.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.linear.int4 import Int4Weight, fused

STREAMED = 64
"""Rows up to which reading the weights bounds the product."""
_MAJOR = 9
"""Compute capability that the kernels are written and measured for: overlapping launches, bulk copies, tensor maps."""


def linear(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    bias: Tensor | None = None,
    exact: bool = False,
) -> Tensor:
    """x `[R, K]`, weight `[N, K]`, which may be in four bits -> `[R, N]` of x's type; `exact`: float32, as it was
    summed.

    `norm` `[K]`: x is RMS-normed first. `gated`: the weight is `[2N, K]` (gate rows, then up rows; so is a bias) and
    the result silu(gate) * up. `residual` `[R, N]` is added in float32.

    Under `batch_invariant` a row's result is the same among any rows, up to `STREAMED` of them.
    """
    if isinstance(weight, Int4Weight):
        result = fused(x, weight, norm=norm, eps=eps, residual=residual, gated=gated, bias=bias, exact=exact)
        if result is not None:
            return result
        weight = weight.plain()
    if x.is_cuda and 0 < x.shape[0] <= STREAMED and x.dtype == weight.dtype == torch.bfloat16:
        result = _streamed(x, weight, norm, eps, residual, gated, bias, exact)
        if result is not None:
            return result
    if 0 < x.shape[0] <= STREAMED and is_batch_invariant():
        return _alike(x, residual, lambda rows, own: _plain(rows, weight, norm, eps, own, gated, bias, exact))
    return _plain(x, weight, norm, eps, residual, gated, bias, exact)


def _plain(
    x: Tensor,
    weight: Tensor,
    norm: Tensor | None,
    eps: float,
    residual: Tensor | None,
    gated: bool,
    bias: Tensor | None,
    exact: bool,
) -> Tensor:
    if norm is not None:
        x = F.rms_norm(x, (x.shape[-1],), norm, eps)
    if exact:
        x, weight, bias = x.float(), weight.float(), None if bias is None else bias.float()
    y = F.linear(x, weight, bias)
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    return y if residual is None else (y.float() + residual).to(x.dtype)


def _alike(x: Tensor, residual: Tensor | None, plain: Callable[[Tensor, Tensor | None], Tensor]) -> Tensor:
    """Operations of one shape for any number of rows: a GPU takes the most rows there may be, a CPU one after the
    other. `plain`: takes rows and their residual."""
    rows = x.shape[0]
    if x.is_cuda:
        fill = (0, 0, 0, STREAMED - rows)
        return plain(F.pad(x, fill), None if residual is None else F.pad(residual, fill))[:rows]
    own = [None] * rows if residual is None else residual.split(1)
    return torch.cat([plain(row, mine) for row, mine in zip(x.split(1), own, strict=True)])


def _streamed(
    x: Tensor,
    weight: Tensor,
    norm: Tensor | None,
    eps: float,
    residual: Tensor | None,
    gated: bool,
    bias: Tensor | None,
    exact: bool,
) -> Tensor | None:
    from walkgraph.layers.kernels.linear import stream_linear
    from walkgraph.layers.kernels.linear_config import choose, choose_alike

    if torch.cuda.get_device_capability(x.device)[0] != _MAJOR:
        return None
    n = weight.shape[0] // (2 if gated else 1)
    k = x.shape[1]
    config = choose_alike(n, k, gated) if is_batch_invariant() else choose(x.shape[0], n, k, gated)
    x = x.contiguous()
    read = [x, weight] if norm is None else [x, weight, norm]
    if config is None or weight.stride(1) != 1 or weight.stride(0) % 8 or any(t.data_ptr() % 16 for t in read):
        return None
    residual = None if residual is None else residual.contiguous()
    options = {"norm": norm, "eps": eps, "residual": residual, "gated": gated, "bias": bias, "exact": exact}
    return stream_linear(config, x, weight, **options)
