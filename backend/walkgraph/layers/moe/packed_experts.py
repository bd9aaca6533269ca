"""The weights of a layer's experts, laid one after the other, in their own type or in eight bits.

Shape letters: W model width, E experts, F hidden width, N rows and K columns of an expert's matrix.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from walkgraph.layers.linear.fp8 import Scaled
from walkgraph.layers.linear.fp8_format import FP8


class PackedExperts(NamedTuple):
    """The weights of all experts, of which the parameters are views."""

    gate_up: Tensor
    """`[E, 2F, W]`, gate rows first."""
    down: Tensor
    """`[E, W, F]`"""
    gate_up_scale: Tensor | None = None
    """float32 `[E, 2F]`: the factor of each row of weights in eight bits (e4m3)."""
    down_scale: Tensor | None = None
    """float32 `[E, W]`"""

    @property
    def dtype(self) -> torch.dtype:
        return self.down.dtype

    def only(self, index: int) -> Self:
        """One expert's weights, `[1, ...]`."""
        scales = (None if scale is None else scale[index : index + 1] for scale in self[2:])
        return type(self)(self.gate_up[index : index + 1], self.down[index : index + 1], *scales)

    def plain(self, dtype: torch.dtype) -> Self:
        """Weights of this type, without scales."""
        if self.gate_up_scale is None or self.down_scale is None:
            return self
        scaled = ((self.gate_up, self.gate_up_scale), (self.down, self.down_scale))
        return type(self)(*(numbers.to(dtype) * scale[..., None].to(dtype) for numbers, scale in scaled))

    def eight_bits(self) -> Self:
        """The weights in eight bits, with a scale for each row."""
        (gate_up, first), (down, second) = _eight_bits(self.gate_up), _eight_bits(self.down)
        return type(self)(gate_up, down, first, second)


def _eight_bits(weights: Tensor) -> tuple[Tensor, Tensor]:
    """`[E, N, K]` -> e4m3 `[E, N, K]` and the scale of each row, float32 `[E, N]`. Expert by expert: all at once, the
    intermediate float32 numbers would take twice the memory of the weights."""
    numbers = torch.empty(weights.shape, dtype=FP8, device=weights.device)
    scales = torch.empty(weights.shape[:2], dtype=torch.float32, device=weights.device)
    for index, expert in enumerate(weights):
        made = Scaled.of(expert)
        numbers[index], scales[index] = made.numbers, made.scale[:, 0]
    return numbers, scales
