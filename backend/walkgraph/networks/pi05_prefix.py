"""pi0.5's prefixes: cameras and text of any runs, read in one forward of few launches.

The rows of all runs are one tensor through all layers, and keys and values go from the product to their pages at once.
What the last layer attends, nobody reads: it makes its keys and values alone.

Shape letters: R rows of all runs, W width, H query heads, G key/value heads, D head dim, F hidden width.
"""

from typing import cast

import torch
from torch import Tensor

from walkgraph.layers.block_attention import Places, Turns, place_heads
from walkgraph.layers.decoder import UNPACKED
from walkgraph.layers.mlp import gated_product
from walkgraph.layers.norm import rms_norm
from walkgraph.layers.product import product
from walkgraph.networks.base import Placed
from walkgraph.networks.pi05 import Pi05
from walkgraph.networks.pi05_layers import GemmaNorm, PrefixLayer


class PrefixRows:
    """Raises RuntimeError for a model that is not packed."""

    def __init__(self, model: Pi05) -> None:
        self._rope, self._shape = model.rope, model.config.shape(model.config.prefix)
        self._layers = [_Layer(cast(PrefixLayer, layer)) for layer in model.language.layers]

    def read(self, x: Tensor, positions: Tensor, to: Placed) -> None:
        """x `[R, W]`, contiguous and given up; positions int64 `[R]`. `to` has a place for every row, and knows what
        each sees."""
        turns = Turns.at(positions[None], self._rope.frequencies(x.device))
        q = x.new_empty(x.shape[0], self._shape.heads, self._shape.head_dim)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            places = Places(q, to.k[index], to.v[index], to.slots)
            if index == last:
                place_heads(layer.keys(x), turns, None, places, 0)
            else:
                place_heads(layer.heads(x), turns, None, places, 0)
                x = layer.after(to(index, q).flatten(1), x)


class _Layer:
    """The products of one layer, with what stands before and after each."""

    def __init__(self, layer: PrefixLayer) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        if "" not in attention.packed or mlp.gate_up is None:
            raise RuntimeError(UNPACKED)
        self._qkv = attention.packed[""].weight
        self._kv = self._qkv[attention.shape.heads * attention.shape.head_dim :]
        self._o, self._gate_up, self._down = attention.part("o_proj", ""), mlp.gate_up.weight, mlp.down_proj
        self._first, self._second = layer.input_layernorm, layer.post_attention_layernorm

    def heads(self, x: Tensor) -> Tensor:
        """`[R, W]` -> `[R, (H + 2G) * D]`."""
        return product(_normed(x, self._first), self._qkv)

    def keys(self, x: Tensor) -> Tensor:
        """`[R, W]` -> `[R, 2G * D]`."""
        return product(_normed(x, self._first), self._kv)

    def after(self, heads: Tensor, x: Tensor) -> Tensor:
        """heads `[R, H * D]`, x `[R, W]`, given up -> `[R, W]`."""
        x = product(heads, self._o.weight, residual=x)
        return product(
            gated_product(_normed(x, self._second), self._gate_up, "gelu_tanh"), self._down.weight, residual=x
        )


def _normed(x: Tensor, norm: GemmaNorm) -> Tensor:
    if norm.scale is None:
        raise RuntimeError(UNPACKED)
    if x.is_cuda:
        return rms_norm(x, norm.scale, norm.eps)
    return rms_norm(x.float(), norm.scale, norm.eps).to(x.dtype)


def embedded(model: Pi05, cameras: list[list[Tensor]], ids: list[Tensor]) -> Tensor:
    """Of every run, embeddings `[p, W]` of the cameras it has and token ids `[n]` -> rows `[R, W]`, run by run."""
    texts = model.embed(torch.cat(ids)).split([len(one) for one in ids])
    runs = zip(cameras, texts, strict=True)
    return torch.cat([part.to(text.dtype) for seen, text in runs for part in (*seen, text)])
