"""Rotary positions. Each family turns positions into one pair of tables; `rotate` applies any of them.

Shape letters: R rows, H heads, D head dim, A axes of a position.
"""

import math
from collections.abc import Sequence
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


def interleaved_axes(sections: Sequence[int]) -> Tensor:
    """int64 `[D/2]` on the CPU: the axis by which each pair of dimensions turns.

    Axes take turns until a later axis has the pairs that `sections` gives it; all others turn by the first axis.
    """
    axes = torch.zeros(sum(sections), dtype=torch.int64, device="cpu")
    for axis, pairs in enumerate(sections[1:], start=1):
        axes[axis : pairs * len(sections) : len(sections)] = axis
    return axes


class NeoxRope:
    """Dimension i turns with dimension i + D/2 (the NeoX pairing), by a token's one position, or by one of its A
    positions on several axes."""

    def __init__(
        self, head_dim: int, theta: float, scaling: LongContext | None = None, sections: Sequence[int] = ()
    ) -> None:
        """`sections`: how many of the D/2 pairs turn by each axis; empty if positions have one axis."""
        self._frequencies = {torch.device("cpu"): neox_frequencies(head_dim, theta, scaling)}
        self._axes = {torch.device("cpu"): interleaved_axes(sections)} if sections else {}

    def __call__(self, positions: Tensor) -> Rotation:
        """positions `[R]`, the same on every axis, or `[R, A]`; fractions count."""
        angles = self.angles(positions)[:, None]
        cos, sin = angles.cos(), angles.sin()
        return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    def angles(self, positions: Tensor) -> Tensor:
        """positions `[R]` or `[R, A]` -> float32 `[R, D/2]`, in radians."""
        if positions.dim() == 1:
            return positions[:, None].float() * self.frequencies(positions.device)
        return positions.float()[:, _on(self._axes, positions.device)] * self.frequencies(positions.device)

    def frequencies(self, device: torch.device) -> Tensor:
        """float32 `[D/2]` on the device; copied there once."""
        return _on(self._frequencies, device)


class AxialRope(NeoxRope):
    """Positions `[R, 2]`: a row turns the first half of the pairs, a column the second, at the same frequencies."""

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__(head_dim, theta)
        half = neox_frequencies(head_dim // 2, theta)
        cpu = torch.device("cpu")
        self._frequencies = {cpu: half.repeat(2)}
        self._axes = {cpu: torch.arange(2, device=cpu).repeat_interleave(len(half))}


def _on(copies: dict[torch.device, Tensor], device: torch.device) -> Tensor:
    if device not in copies:
        copies[device] = copies[torch.device("cpu")].to(device)
    return copies[device]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """x `[R, H, D]` rotated by its row's position; computed in float32, returned in x's dtype.

    `roll` by D/2 swaps the halves, and the negated first half of `sin` makes that (-x2, x1): three operations.
    """
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * rotation.cos, swapped, rotation.sin).to(x.dtype)
