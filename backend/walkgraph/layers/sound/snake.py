"""The snake activation with the addition before it, and noise by place: one launch each on a GPU."""

import math

import torch
from torch import Tensor

from walkgraph.layers.sampling import draw

_TINY = 1e-9
_BITS = 23


def snake(x: Tensor, alpha: Tensor, add: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """s + sin(alpha s)^2 / (alpha + 1e-9) with s = x + add + bias: x, add float32 `[B, C, T]`; alpha, bias `[C]`."""
    if x.is_cuda:
        from walkgraph.layers.kernels import snake as kernels

        return kernels.snake(x, alpha, add, bias, None, keep=False)[1]
    return _snake(_sum(x, add, bias, None), alpha)


def add_snake(
    x: Tensor, alpha: Tensor, add: Tensor, bias: Tensor | None = None, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(s, its snake) with s = x + (add + bias) * scale: `scale` `[B, T]` for all channels; None is 1."""
    if x.is_cuda:
        from walkgraph.layers.kernels import snake as kernels

        kept, made = kernels.snake(x, alpha, add, bias, scale, keep=True)
        return x if kept is None else kept, made
    total = _sum(x, add, bias, scale)
    return total, _snake(total, alpha)


def snake_beta(
    x: Tensor, alpha: Tensor, beta: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """s + sin(e^alpha s)^2 / (e^beta + 1e-9) with s = x + bias, computed in float32: x `[B, T, C]` with the channels
    last, alpha, beta, bias `[C]` -> `[B, T, C]` of x's type, or `out`."""
    out = torch.empty_like(x) if out is None else out
    if x.is_cuda:
        from walkgraph.layers.kernels import snake as kernels

        kernels.snake_beta(x, alpha, beta, bias, out)
        return out
    s = x.float() if bias is None else x.float() + bias.float()
    wave = (s * alpha.float().exp()).sin_().square_()
    height = (beta.float().exp() + _TINY).reciprocal()
    if out.dtype == s.dtype:
        return torch.addcmul(s, wave, height, out=out)
    return out.copy_(torch.addcmul(s, wave, height))


def half_turns(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers that `snake_beta` makes of its parameters, float32 `[C]`: half turns of the sine per unit,
    e^alpha / pi, and the height of its square."""
    return alpha.float().exp() / math.pi, (beta.float().exp() + _TINY).reciprocal()


def place_noise(seed: Tensor, stream: int, first: Tensor, places: int) -> Tensor:
    """Uniform in (-1, 1), float32 `[B, places]`, determined by `seed` `[B]`, `stream` and the numbers of the places
    from int64 `first` `[B]` on. It has 23 bits, so it never is an end of the interval."""
    if seed.is_cuda:
        from walkgraph.layers.kernels import snake as kernels

        return kernels.place_noise(seed, stream, first, places)
    at = first[:, None] + torch.arange(places)
    bits = draw(seed[:, None], torch.tensor(stream), at) & (2**_BITS - 1)
    return (bits.float() + 0.5) * 2.0 ** (1 - _BITS) - 1


def _snake(s: Tensor, alpha: Tensor) -> Tensor:
    wide = alpha.view(-1, 1)
    return torch.addcmul(s, (s * wide).sin_().square_(), (wide + _TINY).reciprocal())


def _sum(x: Tensor, add: Tensor | None, bias: Tensor | None, scale: Tensor | None) -> Tensor:
    if add is not None and bias is not None:
        add = add + bias.view(-1, 1)
    elif bias is not None:
        add = bias.view(-1, 1)
    if add is None:
        return x
    return x + add if scale is None else torch.addcmul(x, add, scale[:, None])
