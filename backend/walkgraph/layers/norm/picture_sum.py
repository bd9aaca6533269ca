"""What group normalisation takes: a sum that is still to be made, and the norm's weights.

Shape letters: B pictures, C channels, H and W pixels.

*Phases* are what an upsampling convolution makes before its pixels are in their places: `[B, 4 C, h + 1, w + 1]`, of
which phase 2 p + q (C channels) at (i + p, j + q) is pixel (2 i + p, 2 j + q) of `[B, C, 2 h, 2 w]`.
"""

from typing import NamedTuple

from torch import Tensor


class PictureSum(NamedTuple):
    """What is still to be added up, which is one pass with what follows: held + bias + add."""

    held: Tensor
    """`[B, C, H, W]`, or phases."""
    bias: Tensor | None = None
    """float32 `[C]`"""
    add: Tensor | None = None
    """As the sum."""
    phases: bool = False

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Of the sum."""
        b, c, h, w = self.held.shape
        return (b, c // 4, 2 * h - 2, 2 * w - 2) if self.phases else (b, c, h, w)


class GroupNormWeights(NamedTuple):
    groups: int
    weight: Tensor
    """float32 `[C]`; `bias` likewise."""
    bias: Tensor
    eps: float
