"""Group normalization of pictures in channels-last memory, with the addition before it and SiLU after it.

Shape letters: B pictures, C channels, H and W pixels. Sums and statistics are float32, whatever the pictures are.

*Phases* are the output of an upsampling convolution before its pixels are put in place: `[B, 4 C, h + 1, w + 1]`, where
phase 2 p + q (C channels) at (i + p, j + q) is pixel (2 i + p, 2 j + q) of `[B, C, 2 h, 2 w]`.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.norm.picture_sum import GroupNormWeights, PictureSum


def added(x: PictureSum, *, pad: bool = False) -> Tensor:
    """The sum, rounded once. `pad`: adds a row of zeros at the bottom and a column of zeros on the right."""
    if x.held.is_cuda:
        from walkgraph.layers.kernels import group_norm as kernels

        return kernels.added(x, pad=pad)
    total = _total(x).to(x.held.dtype).contiguous(memory_format=torch.channels_last)
    return F.pad(total, (0, 1, 0, 1)) if pad else total


def add_norm(x: PictureSum, norm: GroupNormWeights, *, silu: bool = True, keep: bool = True) -> tuple[Tensor, Tensor]:
    """(the sum, rounded once; its norm, then SiLU). Without `keep` the first is undefined, and a sum with only a bias
    is never rounded."""
    if x.held.is_cuda:
        from walkgraph.layers.kernels import group_norm as kernels

        return kernels.add_norm(x, norm, silu=silu, keep=keep)
    total, kept = _total(x), x.held
    if keep or x.add is not None or x.phases:
        kept = total.to(x.held.dtype).contiguous(memory_format=torch.channels_last)
        total = kept.float()
    made = F.group_norm(total, norm.groups, norm.weight, norm.bias, norm.eps)
    made = F.silu(made) if silu else made
    return kept, made.to(x.held.dtype).contiguous(memory_format=torch.channels_last)


def _total(x: PictureSum) -> Tensor:
    total = x.held.float()
    if x.phases:
        _, c, h, w = x.size
        parts = [total[:, n * c : (n + 1) * c, p : p + h // 2, q : q + w // 2] for n, (p, q) in enumerate(_PHASES)]
        total = F.pixel_shuffle(torch.stack(parts, 2).flatten(1, 2), 2)
    if x.bias is not None:
        total = total + x.bias.view(-1, 1, 1)
    return total if x.add is None else total + x.add.float()


_PHASES = ((0, 0), (0, 1), (1, 0), (1, 1))
