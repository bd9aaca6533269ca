"""Many rows of any calls through a stack of decoder layers: one tensor, whose keys and values go from the product
straight to their pages. Nothing is read on the host.

Shape letters: B sequences, R rows of all calls, W model width, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Callable, Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.abi.states import Placed
from walkgraph.layers.attention.block_attention import place_heads
from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.step_linear import STREAMED
from walkgraph.layers.moe.flow_linear import row_linears
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm
from walkgraph.layers.rope import NeoxRope

AfterLayer = Callable[[int, Tensor], None]
"""Called with the index of each layer and its output `[R, W]`, which it may change in place."""


class RowLayers:
    """One set of weights of packed layers. Raises RuntimeError for layers that are not packed."""

    def __init__(self, layers: nn.ModuleList, suffix: str, rope: NeoxRope) -> None:
        self._layers = [cast(DecoderLayer, layer) for layer in layers]
        self._suffix, self._rope = suffix, rope
        self._linears = [row_linears(layer, suffix) for layer in self._layers]
        self._first = [cast(RMSNorm, layer.get_submodule(f"input_layernorm{suffix}")) for layer in self._layers]
        self._norms = [_norms(layer, suffix) for layer in self._layers]

    def through(
        self,
        x: Tensor,
        turns: RotaryTable,
        to: Placed,
        counts: Sequence[int] | None = None,
        after: AfterLayer | None = None,
    ) -> Tensor:
        """x `[R, W]`, possibly changed in place -> `[R, W]`. `counts`: number of rows that share a position, for each
        of `turns`; None if these numbers are equal."""
        for index in range(len(self._layers)):
            x = self._layer(index, x, turns, to, counts)
            if after is not None:
                after(index, x)
        return x

    def last_keys(self, x: Tensor, turns: RotaryTable, to: Placed, counts: Sequence[int] | None = None) -> None:
        """`through`, for rows whose output nothing reads: the last layer only keeps their keys and values."""
        last = len(self._layers) - 1
        for index in range(last):
            x = self._layer(index, x, turns, to, counts)
        shape, norm = self._layers[last].self_attn.shape, self._first[last]
        weight, bias = self._layers[last].self_attn.packed[self._suffix]
        skipped = shape.heads * shape.head_dim
        rows = rms_norm(x, norm.weight, norm.eps)
        kv = F.linear(rows, weight[skipped:], None if bias is None else bias[skipped:])
        _place(kv, turns, self._norms[last], _targets(to, last, x.new_empty(x.shape[0], 1, 1)), counts)

    def turns(self, positions: Tensor) -> RotaryTable:
        """positions `[R]`, or `[R, A]` on several axes, or one for each of `counts`."""
        angles = self._rope.angles(positions)
        return RotaryTable(angles.cos(), angles.sin())

    def _layer(self, index: int, x: Tensor, turns: RotaryTable, to: Placed, counts: Sequence[int] | None) -> Tensor:
        layer, linears, shape = self._layers[index], self._linears[index], self._layers[index].self_attn.shape
        few = x.shape[0] <= STREAMED
        q = x.new_empty(x.shape[0], shape.heads, shape.head_dim)
        qkv = layer.self_attn.few_qkv(x, self._first[index], self._suffix) if few else linears.qkv(x)
        _place(qkv, turns, self._norms[index], _targets(to, index, q), counts)
        heads = to(index, q).flatten(1)
        if few:
            return layer.attended(heads, x, self._suffix)
        linears.o(heads[None], x)
        linears.mlp(x)
        return x


def _norms(layer: DecoderLayer, suffix: str) -> HeadNorms | None:
    return HeadNorms.of(layer.self_attn, suffix) if layer.self_attn.shape.qk_norm else None


def _targets(to: Placed, layer: int, q: Tensor) -> HeadTargets:
    return HeadTargets(q, to.k[layer], to.v[layer], to.slots)


def _place(
    qkv: Tensor, turns: RotaryTable, norms: HeadNorms | None, to: HeadTargets, counts: Sequence[int] | None
) -> None:
    if counts is None:
        place_heads(qkv, turns, norms, to, 0)
        return
    parts = zip(qkv.split(counts), to.q.split(counts), to.slots.split(counts), strict=True)
    for at, (rows, q, slots) in enumerate(parts):
        own = RotaryTable(turns.cos[at : at + 1], turns.sin[at : at + 1])
        place_heads(rows, own, norms, to._replace(q=q, slots=slots), 0)
