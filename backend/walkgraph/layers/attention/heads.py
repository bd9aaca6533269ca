"""Arguments for placing heads: rotary tables, norms, and the targets of queries, keys and values.

Shape letters: B rows of a batch, n tokens of a block, T of them that are placed at once, H query heads, G key/value
heads, D head dim, S slots.
"""

from typing import NamedTuple, cast

from torch import Tensor, nn

from walkgraph.layers.norm.rms_norm import RMSNorm


class RotaryTable(NamedTuple):
    """Cosines and sines of every row's block: float32 `[B, D/2]`, or `[B, T, D/2]` per token; NeoX pairing."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, frequencies: Tensor) -> "RotaryTable":
        """positions `[B]` or `[B, T]`, frequencies float32 `[D/2]`: radians per position."""
        angles = positions[..., None].float() * frequencies
        return cls(angles.cos(), angles.sin())


class HeadNorms(NamedTuple):
    """Norms of every query and key head before the rotation: weights `[D]`."""

    q: Tensor
    k: Tensor
    eps: float

    @classmethod
    def of(cls, attention: nn.Module, suffix: str) -> "HeadNorms":
        """The norms of one set of an attention's weights."""
        q, k = (cast(RMSNorm, attention.get_submodule(f"{name}_norm{suffix}")) for name in "qk")
        return cls(q.weight, k.weight, q.eps)


class HeadTargets(NamedTuple):
    """Targets of a batch's blocks, row by row."""

    q: Tensor
    """`[B * n, H, D]`, contiguous."""
    k: Tensor
    """`[S, G, D]`, written at the block's slots; slots contiguous. `v` likewise."""
    v: Tensor
    slots: Tensor
    """int64 `[B * n]`"""
