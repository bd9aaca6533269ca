"""Parts of picture autoencoders besides convolutions: a last convolution to few channels, and attention with one wide
head over all pixels.

Shape letters: B pictures, C channels, H and W pixels, N = H * W, O few output channels.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS = 4096
"""The most queries whose scores are held at once."""


def few_channels(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution of 3 by 3 with its sums in float32: x `[B, C, H, W]` channels-last, weight `[O, C, 3, 3]`, bias
    float32 `[O]` -> float32 `[B, O, H, W]`, contiguous."""
    if x.is_cuda:
        from walkgraph.layers.kernels import pixels as kernels

        b, c, h, w = x.shape
        # One product for the nine neighbours, which are put in place afterwards: with so few output channels a
        # convolution's tiles would be mostly empty. Tensor cores take columns in multiples of 16.
        taps = F.pad(weight.permute(2, 3, 0, 1).reshape(-1, c), (0, 0, 0, -9 * len(bias) % 16))
        parts = torch.mm(x.permute(0, 2, 3, 1).reshape(-1, c), taps.t(), out_dtype=torch.float32)
        return kernels.sum_taps(parts, bias, (b, h, w))
    return F.conv2d(x.float(), weight.float(), bias, padding=1).contiguous()


def one_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q, k, v `[B, N, C]` -> `[B, N, C]`; each pixel attends its whole picture, scaled by C^-0.5."""
    if q.is_cuda and q.dtype != torch.float32:
        from walkgraph.layers.kernels import pixels as kernels

        # No fused attention supports a head this wide; the scores of some rows at a time need little memory.
        made = torch.empty_like(q)
        for image in range(len(q)):
            keys = k[image].t()
            for rows, out in zip(q[image].split(_ROWS), made[image].split(_ROWS), strict=True):
                shares = kernels.softmax(torch.mm(rows, keys, out_dtype=torch.float32), q.shape[2] ** -0.5, q.dtype)
                torch.mm(shares, v[image], out=out)
        return made
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
