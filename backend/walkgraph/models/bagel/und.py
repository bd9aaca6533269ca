"""Forwards of BAGEL's und set alone: text, and pictures that it sees.

The rows of all calls are one tensor through all layers, and keys and values go from the product straight to their
pages. Text is causal, with one position per row. A picture is one block with one position, BOI, its tokens and EOI;
only its keys and values are kept.

Shape letters: B pictures, R rows of all calls, W model width, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.states import Placed
from walkgraph.layers.attention.block_attention import place_heads
from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import PlainFlowLinears
from walkgraph.layers.linear.step_linear import STREAMED
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import UND
from walkgraph.models.bagel.rows import EDGES


class UndRows:
    """Forwards of the und set's rows. Raises RuntimeError for a model that is not packed."""

    def __init__(self, model: Bagel) -> None:
        self._model, self._language = model, model.language_model.model
        self._layers = [cast(DecoderLayer, layer) for layer in self._language.layers]
        self._linears = [PlainFlowLinears(layer, UND) for layer in self._layers]
        self._first = [cast(RMSNorm, layer.get_submodule(f"input_layernorm{UND}")) for layer in self._layers]
        self._norms = [HeadNorms.of(layer.self_attn, UND) for layer in self._layers]

    def see(self, pictures: Sequence[Tensor], edges: Tensor, positions: Tensor, to: Placed) -> None:
        """Append pictures. pictures: tokens `[n, W]` of each; edges int64 `[2]`: BOI and EOI; positions `[B]`. `to`
        places the n + 2 rows of each picture, one picture after the other."""
        first, last = self._model.embed_text(edges).split(1)
        x = torch.cat([part for tokens in pictures for part in (first, tokens.to(first.dtype), last)])
        counts = [len(tokens) + EDGES for tokens in pictures]
        counts = counts if len(set(counts)) > 1 else None
        turns = self._turns(positions)
        x = self._through(x, turns, counts, to, len(self._layers) - 1)
        places = _places(to, len(self._layers) - 1, x.new_empty(x.shape[0], 1, 1))
        _place(_last_keys(self._layers[-1], self._first[-1], x), turns, self._norms[-1], places, counts)

    def read(self, ids: Tensor, positions: Tensor, asked: Tensor, to: Placed) -> Tensor:
        """Append text of any calls: ids and positions int64 `[R]`; asked int64 `[K]`: rows whose states are needed ->
        those states, normed, `[K, W]`. Nothing is read on the host."""
        x = self._through(self._model.embed_text(ids), self._turns(positions), None, to, len(self._layers))
        return self._language.norm(x[asked])

    def _through(self, x: Tensor, turns: RotaryTable, counts: Sequence[int] | None, to: Placed, layers: int) -> Tensor:
        """The first layers: x `[R, W]`, possibly changed in place -> `[R, W]`. `counts`: number of rows that share a
        position, for each of `turns`; None if these numbers are equal."""
        shape, few = self._layers[0].self_attn.shape, x.shape[0] <= STREAMED
        q = x.new_empty(x.shape[0], shape.heads, shape.head_dim)
        for index in range(layers):
            layer, linears = self._layers[index], self._linears[index]
            qkv = layer.self_attn.few_qkv(x, self._first[index], UND) if few else linears.qkv(x)
            _place(qkv, turns, self._norms[index], _places(to, index, q), counts)
            heads = to(index, q).flatten(1)
            if few:
                x = layer.attended(heads, x, UND)
            else:
                linears.o(heads[None], x)
                linears.mlp(x)
        return x

    def _turns(self, positions: Tensor) -> RotaryTable:
        return RotaryTable.at(positions, self._language.rope.frequencies(positions.device))


def _places(to: Placed, layer: int, q: Tensor) -> HeadTargets:
    return HeadTargets(q, to.k[layer], to.v[layer], to.slots)


def _place(qkv: Tensor, turns: RotaryTable, norms: HeadNorms, to: HeadTargets, counts: Sequence[int] | None) -> None:
    if counts is None:
        place_heads(qkv, turns, norms, to, 0)
        return
    parts = zip(qkv.split(counts), to.q.split(counts), to.slots.split(counts), strict=True)
    for at, (rows, q, slots) in enumerate(parts):
        own = RotaryTable(turns.cos[at : at + 1], turns.sin[at : at + 1])
        place_heads(rows, own, norms, to._replace(q=q, slots=slots), 0)


def _last_keys(layer: DecoderLayer, norm: RMSNorm, x: Tensor) -> Tensor:
    """`[R, 2G * D]`: only keys and values, as nothing reads the last layer's output."""
    shape = layer.self_attn.shape
    weight, bias = layer.self_attn.packed[UND]
    skipped = shape.heads * shape.head_dim
    return F.linear(rms_norm(x, norm.weight, norm.eps), weight[skipped:], None if bias is None else bias[skipped:])
