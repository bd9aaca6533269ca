"""A layer of an encoder without gradients: attention within blocks of rows, then a feed-forward block, each after a
norm. Each norm adds the product before it, so that a layer is seven launches, and two more where heads are rotated.

A family's modules have the names of its checkpoint; they give their weights as `EncoderWeights`.

Shape letters: R rows, W width, H heads, D head dim.
"""

from typing import NamedTuple

from torch import Tensor, nn

from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.linear.product import Activation, product
from walkgraph.layers.norm.layer_norm import added_norm
from walkgraph.layers.rope import Rotation, rotate


class EncoderWeights(NamedTuple):
    norm: nn.LayerNorm
    """Before attention."""
    qkv: tuple[Tensor, Tensor | None]
    """Weight `[3W, W]` and bias: queries, keys, values."""
    heads: int
    out: nn.Linear
    mlp_norm: nn.LayerNorm
    fc1: nn.Linear
    fc2: nn.Linear
    activation: Activation


class EncoderRows(NamedTuple):
    """The residual stream between two layers."""

    x: Tensor
    """`[R, W]`"""
    more: Tensor | None = None
    """`[R, W]`: a product that the next norm adds to it."""

    def layer(self, index: int, weights: EncoderWeights, attend: Attend, rotation: Rotation | None) -> "EncoderRows":
        """The rows after a layer; `rotation` turns queries and keys."""
        x, normed = added_norm(self.x, self.more, weights.norm)
        q, k, v = (part.unflatten(1, (weights.heads, -1)) for part in product(normed, *weights.qkv).chunk(3, 1))
        if rotation is not None:
            # Kernels want queries, keys and values of one layout, and the rotated ones are contiguous.
            q, k, v = rotate(q, rotation), rotate(k, rotation), v.contiguous()
        seen = product(attend(index, q, k, v).flatten(1), weights.out.weight, weights.out.bias)
        x, normed = added_norm(x, seen, weights.mlp_norm)
        hidden = product(normed, weights.fc1.weight, weights.fc1.bias, activation=weights.activation)
        return EncoderRows(x, product(hidden, weights.fc2.weight, weights.fc2.bias))

    def whole(self) -> Tensor:
        """The stream, with what the next norm would add."""
        return self.x if self.more is None else self.x + self.more

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        return added_norm(self.x, self.more, norm)[1]
