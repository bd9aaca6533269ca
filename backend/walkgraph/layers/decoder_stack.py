"""Decoder layers for few rows and short contexts, and a head behind them, as one launch where the GPU has it.

Shape letters: W width, H query heads, G key/value heads, D head dim, F hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import torch
from torch import Tensor

from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.norm.rms_norm import RMSNorm

if TYPE_CHECKING:
    from walkgraph.layers.kernels.decoder_stack import DecoderStack

MOST_ROWS = 16
"""Rows of a launch, at most."""
POSITIONS = 16
"""Of each frame."""


@dataclass(frozen=True)
class StackSizes:
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    layers: int
    eps: float


class LayerWeights(NamedTuple):
    """Contiguous."""

    qkv: Tensor
    """`[(H + 2G) D, W]`"""
    out: Tensor
    """`[W, H D]`"""
    gate_up: Tensor
    """`[2F, W]`: gate rows first."""
    down: Tensor
    """`[W, F]`"""
    before: Tensor
    """`[W]`: of the norm before attention; `after`: of the one before the MLP."""
    after: Tensor
    q_norm: Tensor
    """`[D]`; `k_norm` likewise."""
    k_norm: Tensor

    @classmethod
    def of(cls, layer: DecoderLayer) -> Self | None:
        """The weights of a packed layer, or None if it has other parts: biases, no norms of heads, another MLP."""
        attention, mlp = layer.self_attn, layer.get_submodule("mlp")
        packed = attention.packed[""]
        if packed.bias is not None or not attention.shape.qk_norm or not isinstance(mlp, SwiGLU) or mlp.gate_up is None:
            return None
        names = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
        norms = (cast(RMSNorm, layer.get_submodule(name)).weight for name in names)
        out = attention.part("o_proj", "").weight
        return cls(packed.weight, out, mlp.gate_up.weight, mlp.down_proj.weight, *norms)


def stack_of(
    sizes: StackSizes, positions: int, layers: Sequence[DecoderLayer], norm: Tensor, frequencies: Tensor
) -> "DecoderStack | None":
    """The packed layers as one launch, or None where there is none for them; norm `[W]`: the final one; frequencies
    float32 `[D / 2]`: radians per position; positions: of each frame."""
    if not norm.is_cuda or norm.dtype != torch.bfloat16 or positions != POSITIONS:
        return None
    from walkgraph.layers.kernels.decoder_stack import DecoderStack, unfit

    weights = [one for layer in layers if (one := LayerWeights.of(layer)) is not None]
    if len(weights) < len(layers) or unfit(sizes, norm.device) is not None:
        return None
    return DecoderStack(sizes, weights, norm, frequencies)
