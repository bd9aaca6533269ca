"""Rotary positions. A family is whatever turns positions into one pair of tables; `rotate` applies any of them.

Shape letters: R rows, H heads, D head dim.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """The tables of one batch of rows, each float32 `[R, 1, D]`."""

    cos: Tensor
    sin: Tensor
    """Its first half is negated: see `rotate`."""


class NeoxRope:
    """One position per token; dimension i turns with dimension i + D/2 (the NeoX pairing), without scaling."""

    def __init__(self, head_dim: int, theta: float) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        self._frequencies = {torch.device("cpu"): 1.0 / theta**exponents}

    def __call__(self, positions: Tensor) -> Rotation:
        angles = positions[:, None, None].float() * self._on(positions.device)
        cos, sin = angles.cos(), angles.sin()
        return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    def _on(self, device: torch.device) -> Tensor:
        if device not in self._frequencies:
            self._frequencies[device] = self._frequencies[torch.device("cpu")].to(device)
        return self._frequencies[device]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """x `[R, H, D]` turned by its row's position; computed in float32, returned in x's dtype.

    `roll` by D/2 swaps the halves, and the negated first half of `sin` makes that (-x2, x1): three operations.
    """
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * rotation.cos, swapped, rotation.sin).to(x.dtype)
