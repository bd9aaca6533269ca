"""Sampling parameters of each row's next token.

Shape letters: R rows.
"""

from typing import NamedTuple

from torch import Tensor


class SamplingParams(NamedTuple):
    """Each `[R]`. None: no row uses it."""

    seed: Tensor
    """int64"""
    position: Tensor
    """int64: position of the next token."""
    temperature: Tensor
    """float32; 0: the likeliest token, the first of equals."""
    top_k: Tensor | None = None
    """int64; 0: all."""
    top_p: Tensor | None = None
    """float32, share of the mass that top-k keeps; 1: all."""
    min_p: Tensor | None = None
    """float32: least probability relative to the likeliest token's; 0: all."""
    repetition: Tensor | None = None
    """float32: logits of tokens of the prompt or the output are divided (positive ones) or multiplied by it; 1: off."""
    presence: Tensor | None = None
    """float32: subtracted from the logits of tokens in the output."""
    frequency: Tensor | None = None
    """float32: subtracted once for every occurrence of the token in the output."""

    @property
    def penalised(self) -> bool:
        return not (self.repetition is None and self.presence is None and self.frequency is None)
