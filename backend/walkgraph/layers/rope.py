"""Rotary positions. Each family turns positions into one pair of tables; `rotate` applies any of them.

Shape letters: R rows, H heads, D head dim.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.checkpoints.decoder import LongContext


class Rotation(NamedTuple):
    """The tables of one batch of rows, each float32 `[R, 1, D]`."""

    cos: Tensor
    sin: Tensor
    """Its first half is negated: see `rotate`."""


def neox_frequencies(head_dim: int, theta: float, scaling: LongContext | None = None) -> Tensor:
    """float32 `[D/2]` on the CPU: radians per position of every pair of dimensions."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    frequencies = 1.0 / theta**exponents
    if scaling is None:
        return frequencies
    turns = scaling.original * frequencies / (2 * math.pi)
    fast = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return frequencies * (fast + (1 - fast) / scaling.factor)


class NeoxRope:
    """One position per token; dimension i turns with dimension i + D/2 (the NeoX pairing)."""

    def __init__(self, head_dim: int, theta: float, scaling: LongContext | None = None) -> None:
        self._frequencies = {torch.device("cpu"): neox_frequencies(head_dim, theta, scaling)}

    def __call__(self, positions: Tensor) -> Rotation:
        angles = positions[:, None, None].float() * self.frequencies(positions.device)
        cos, sin = angles.cos(), angles.sin()
        return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    def frequencies(self, device: torch.device) -> Tensor:
        """float32 `[D/2]` on the device; copied there once."""
        if device not in self._frequencies:
            self._frequencies[device] = self._frequencies[torch.device("cpu")].to(device)
        return self._frequencies[device]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """x `[R, H, D]` rotated by its row's position; computed in float32, returned in x's dtype.

    `roll` by D/2 swaps the halves, and the negated first half of `sin` makes that (-x2, x1): three operations.
    """
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * rotation.cos, swapped, rotation.sin).to(x.dtype)
