"""The linears of one decoder layer for thousands of rows, with the operations right before and after each.

They are behind a protocol, so that weights may have another number format than their inputs: an implementation norms,
gates and rounds rows as its products require.

Shape letters: M rows (B blocks of N), W model width, H query heads, G key/value heads, D head dim, F hidden width.
"""

from collections.abc import Callable
from typing import Protocol, cast

from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.mlp import SwiGLU, gated_product
from walkgraph.layers.linear.packed import UNPACKED, Packed
from walkgraph.layers.linear.sharded import add_product
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm

MLP_ROWS = 8192
"""Rows of an MLP's products at once: more is not faster, and the intermediate result is ten times as wide."""

_DOWN_FEW, _DOWN_ROWS = 4096, 1024
"""Up to this many rows, products with down's weights take 1024 rows at once, as the library's tiles would leave part of
an H200 idle. 4096 rows take 0.89 ms at once and 0.78 ms in four parts; with 8192 rows a step is 1% slower in parts."""


def down_rows(rows: int) -> int:
    """Rows per product with down's weights, for `rows` in total."""
    return _DOWN_ROWS if rows <= _DOWN_FEW else rows


class FlowLinears(Protocol):
    """The linears of one layer and one set of weights. `x` `[M, W]` is the residual stream: contiguous, and added to in
    place."""

    def qkv(self, x: Tensor) -> Tensor:
        """norm, then q, k and v of every row: `[M, (H + 2G) * D]` of x's type, bias included."""
        ...

    def o(self, heads: Tensor, x: Tensor) -> None:
        """x += o_proj(heads). heads `[B, N, H * D]`: contiguous rows, any block stride."""
        ...

    def mlp(self, x: Tensor) -> None:
        """x += down(silu(gate) * up) of the normed x."""
        ...


class AttentionLinears:
    """The linears of attention of `FlowLinears`, with weights in the rows' type, as the packed layer holds them."""

    def __init__(self, layer: DecoderLayer, suffix: str) -> None:
        """Raises RuntimeError for a layer that is not packed."""
        if suffix not in layer.self_attn.packed:
            raise RuntimeError(UNPACKED)
        self._layer, self._suffix = layer, suffix
        self._first = cast(RMSNorm, layer.get_submodule(f"input_layernorm{suffix}"))
        self._second = cast(RMSNorm, layer.get_submodule(f"post_attention_layernorm{suffix}"))

    def qkv(self, x: Tensor) -> Tensor:
        normed = rms_norm(x, self._first.weight, self._first.eps)
        return F.linear(normed, *self._layer.self_attn.packed[self._suffix])

    def o(self, heads: Tensor, x: Tensor) -> None:
        out = self._layer.self_attn.part("o_proj", self._suffix)
        add_product(x, self._layer.shard, heads.reshape(x.shape[0], -1), out.weight)


class PlainFlowLinears(AttentionLinears):
    """Weights in the rows' type, as the packed layer holds them."""

    def __init__(self, layer: DecoderLayer, suffix: str, down_rows: Callable[[int], int] = down_rows) -> None:
        """`down_rows`: rows in total -> rows multiplied by down's weights at once.

        Raises RuntimeError for a layer that is not packed.
        """
        super().__init__(layer, suffix)
        self._down_rows = down_rows
        self._mlp = cast(SwiGLU, layer.get_submodule(f"mlp{suffix}"))
        if self._mlp.gate_up is None:
            raise RuntimeError(UNPACKED)

    def mlp(self, x: Tensor) -> None:
        for rows in x.split(MLP_ROWS):
            normed = rms_norm(rows, self._second.weight, self._second.eps)
            hidden, each = gated_product(normed, self._gate_up.weight), self._down_rows(rows.shape[0])
            for part, between in zip(rows.split(each), hidden.split(each), strict=True):
                add_product(part, self._layer.shard, between, self._mlp.down_proj.weight)

    @property
    def _gate_up(self) -> Packed:
        return cast(Packed, self._mlp.gate_up)
