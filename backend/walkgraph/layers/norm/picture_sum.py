"""Arguments of group normalization: a pending sum, and the norm's weights.

Shape letters: B pictures, C channels, H and W pixels.

*Phases* are the output of an upsampling convolution before its pixels are put in place: `[B, 4 C, h + 1, w + 1]`, where
phase 2 p + q (C channels) at (i + p, j + q) is pixel (2 i + p, 2 j + q) of `[B, C, 2 h, 2 w]`.
"""

from typing import NamedTuple

from torch import Tensor


class PictureSum(NamedTuple):
    """A pending sum, computed in one pass with the operation that follows: held + bias + add."""

    held: Tensor
    """`[B, C, H, W]`, or phases."""
    bias: Tensor | None = None
    """float32 `[C]`"""
    add: Tensor | None = None
    """Shaped like the sum."""
    phases: bool = False

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Shape of the sum."""
        b, c, h, w = self.held.shape
        return (b, c // 4, 2 * h - 2, 2 * w - 2) if self.phases else (b, c, h, w)


class GroupNormWeights(NamedTuple):
    groups: int
    weight: Tensor
    """float32 `[C]`; `bias` likewise."""
    bias: Tensor
    eps: float
