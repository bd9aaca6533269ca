"""Small tensors side by side in one piece of host memory, so that one copy to a device carries them all."""

from collections.abc import Sequence

import torch
from torch import Tensor

ALIGNED = 64
"""Bytes that a tensor's place is a multiple of: kernels are compiled anew for tensors that aren't aligned."""


def packed(values: Sequence[Tensor], *, pin: bool) -> Tensor:
    """Copy tensors of the host into one, uint8 `[n]`. `pin`: into memory that a GPU copies from without waiting."""
    memory = torch.empty(_ends(values)[-1], dtype=torch.uint8, pin_memory=pin)
    for part, value in zip(unpacked(memory, values), values, strict=True):
        part.copy_(value)
    return memory


def unpacked(memory: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in what `packed` made of `like`, or in a copy of it: views."""
    starts = [0, *_ends(like)]
    return [
        memory[start : start + value.nbytes].view(value.dtype).view(value.shape)
        for start, value in zip(starts, like, strict=False)
    ]


def _ends(values: Sequence[Tensor]) -> list[int]:
    ends, end = list[int](), 0
    for value in values:
        end += -(-value.nbytes // ALIGNED) * ALIGNED
        ends.append(end)
    return ends
