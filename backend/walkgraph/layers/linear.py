"""Linear layers of a step: an RMS norm before, SwiGLU and a residual after, in one launch where rows are few.

Shape letters: R rows, N columns of the result, K.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

STREAMED = 64
"""Rows up to which the product is bound by reading the weights."""
_MAJOR = 9
"""Compute capability that the kernels are written and measured for: launches that overlap, bulk copies, tensor maps."""


def linear(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    bias: Tensor | None = None,
) -> Tensor:
    """x `[R, K]`, weight `[N, K]` -> `[R, N]` of x's type.

    `norm` `[K]`: x is RMS-normed first. `gated`: the weight is `[2N, K]` (gate rows, then up rows; so is a bias) and
    the result silu(gate) * up. `residual` `[R, N]` is added in float32.
    """
    if x.is_cuda and 0 < x.shape[0] <= STREAMED and x.dtype == weight.dtype == torch.bfloat16:
        result = _streamed(x, weight, norm, eps, residual, gated, bias)
        if result is not None:
            return result
    if norm is not None:
        x = F.rms_norm(x, (x.shape[-1],), norm, eps)
    y = F.linear(x, weight, bias)
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    return y if residual is None else (y.float() + residual).to(x.dtype)


def _streamed(
    x: Tensor,
    weight: Tensor,
    norm: Tensor | None,
    eps: float,
    residual: Tensor | None,
    gated: bool,
    bias: Tensor | None,
) -> Tensor | None:
    from walkgraph.layers.kernels.linear import stream_linear
    from walkgraph.layers.kernels.linear_config import choose

    if torch.cuda.get_device_capability(x.device)[0] != _MAJOR:
        return None
    n = weight.shape[0] // (2 if gated else 1)
    config = choose(x.shape[0], n, x.shape[1], gated)
    x = x.contiguous()
    read = [x, weight] if norm is None else [x, weight, norm]
    if config is None or weight.stride(1) != 1 or weight.stride(0) % 8 or any(t.data_ptr() % 16 for t in read):
        return None
    residual = None if residual is None else residual.contiguous()
    return stream_linear(config, x, weight, norm=norm, eps=eps, residual=residual, gated=gated, bias=bias)
