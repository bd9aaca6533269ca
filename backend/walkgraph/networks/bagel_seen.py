"""What BAGEL keeps of pictures that it sees: keys and values of every layer, and nothing else.

A picture is one block of und rows: BOI, its tokens and EOI, of one position. The rows of all pictures are one tensor
through all layers, and keys and values go from the product to their pages at once.

Shape letters: B pictures, R rows of all, W model width, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.block_attention import Norms, Places, Turns, place_heads
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.flow_linear import PlainFlowLinears
from walkgraph.layers.norm import RMSNorm, rms_norm
from walkgraph.networks.bagel import Bagel
from walkgraph.networks.base import Placed
from walkgraph.networks.mot import UND

EDGES = 2


class SeenPictures:
    """Raises RuntimeError for a model that is not packed."""

    def __init__(self, model: Bagel) -> None:
        self._language = model.language_model.model
        self._layers = [cast(DecoderLayer, layer) for layer in self._language.layers]
        self._linears = [PlainFlowLinears(layer, UND) for layer in self._layers]

    def keep(self, pictures: Sequence[Tensor], edges: Tensor, positions: Tensor, to: Placed) -> None:
        """pictures: tokens `[n, W]` of each; edges `[2, W]`: BOI and EOI, embedded; positions `[B]`. `to` has a place
        for the n + 2 rows of each picture, one picture after the other."""
        parts = [part for picture in pictures for part in (edges[:1], picture.to(edges.dtype), edges[1:])]
        counts, x = [len(picture) + EDGES for picture in pictures], torch.cat(parts)
        turns = Turns.at(positions, self._language.rope.frequencies(x.device))
        shape = self._layers[0].self_attn.shape
        q = x.new_empty(x.shape[0], shape.heads, shape.head_dim)
        last = len(self._layers) - 1
        for index, (layer, linears) in enumerate(zip(self._layers, self._linears, strict=True)):
            places = Places(q, to.k[index], to.v[index], to.slots)
            if index == last:
                _place(_last_keys(layer, x), turns, _norms(layer), places, counts)
                break
            _place(linears.qkv(x), turns, _norms(layer), places, counts)
            linears.o(to(index, q).flatten(1)[None], x)
            linears.mlp(x)


def _place(qkv: Tensor, turns: Turns, norms: Norms, to: Places, counts: Sequence[int]) -> None:
    if len(set(counts)) == 1:
        place_heads(qkv, turns, norms, to, 0)
        return
    parts = zip(qkv.split(counts), to.q.split(counts), to.slots.split(counts), strict=True)
    for at, (rows, q, slots) in enumerate(parts):
        own = Turns(turns.cos[at : at + 1], turns.sin[at : at + 1])
        place_heads(rows, own, norms, to._replace(q=q, slots=slots), 0)


def _last_keys(layer: DecoderLayer, x: Tensor) -> Tensor:
    """`[R, 2G * D]`: what is attended behind them, nobody reads."""
    norm, shape = cast(RMSNorm, layer.get_submodule(f"input_layernorm{UND}")), layer.self_attn.shape
    weight, bias = layer.self_attn.packed[UND]
    skipped = shape.heads * shape.head_dim
    return F.linear(rms_norm(x, norm.weight, norm.eps), weight[skipped:], None if bias is None else bias[skipped:])


def _norms(layer: DecoderLayer) -> Norms:
    q, k = (cast(RMSNorm, layer.self_attn.get_submodule(f"{name}_norm{UND}")) for name in "qk")
    return Norms(q.weight, k.weight, q.eps)
