"""pi0.5's prefixes: cameras and text of any runs, read in one captured forward with few launches.

The rows of all runs are one tensor through all layers, and keys and values go from the product straight to their pages.
Nothing reads the last layer's output, so it computes only its keys and values.

A prefix begins its sequence, so its rows attend each other and no pages. Their slots, and each run's number of rows,
are in tensors that are filled before a replay: one graph per number of rows serves all.

Shape letters: R rows of all runs, W width, H query heads, G key/value heads, D head dim, F hidden width.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.operator import Capture
from walkgraph.abi.states import CausalRows
from walkgraph.architectures.prompts.captured_prompts import (
    CapturedPrompts,
    Numbers,
    PromptAnswers,
    PromptForm,
    PromptInputs,
    padded,
)
from walkgraph.layers.attention.block_attention import place_heads
from walkgraph.layers.attention.heads import HeadTargets, RotaryTable
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.linear.mlp import gated_product
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.product import product
from walkgraph.layers.norm.rms_norm import rms_norm
from walkgraph.models.pi05.layers import GemmaNorm, PrefixLayer
from walkgraph.models.pi05.model import Pi05

SIZES = (128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096)
"""Rows of a graph, summed over its runs: whole tiles of products, up to the most rows of a batch. To launch a forward
part by part takes the host about as long as the device, and meanwhile it launches nothing else."""
MOST = 16
"""The most runs of a graph."""


class Seen(Protocol):
    """The destinations of rows and their attention: `Placed`, or `PackedPrefixes`."""

    @property
    def k(self) -> Sequence[Tensor]: ...

    @property
    def v(self) -> Sequence[Tensor]: ...

    @property
    def slots(self) -> Tensor: ...

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[R, H, D]` -> `[R, H, D]`; scaled by D^-0.5."""
        ...


class PrefixRows:
    """Prefixes as rows. Raises RuntimeError for a model that is not packed."""

    def __init__(self, model: Pi05) -> None:
        self._rope, self.shape = model.rope, model.config.shape(model.config.prefix)
        self._layers = [_Layer(cast(PrefixLayer, layer)) for layer in model.language.layers]

    def read(self, x: Tensor, positions: Tensor, to: Seen) -> None:
        """x `[R, W]`, contiguous and consumed; positions int64 `[R]`. `to` places every row and knows what it
        attends."""
        turns = RotaryTable.at(positions[None], self._rope.frequencies(x.device))
        q = x.new_empty(x.shape[0], self.shape.heads, self.shape.head_dim)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            places = HeadTargets(q, to.k[index], to.v[index], to.slots)
            if index == last:
                place_heads(layer.keys(x), turns, None, places, 0)
            else:
                place_heads(layer.heads(x), turns, None, places, 0)
                x = layer.after(to(index, q).flatten(1), x)


class _Layer:
    """The products of one layer, with the operations before and after each."""

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
        """heads `[R, H * D]`, x `[R, W]`, consumed -> `[R, W]`."""
        x = product(heads, self._o.weight, residual=x)
        inner = gated_product(_normed(x, self._second), self._gate_up, "gelu_tanh")
        return product(inner, self._down.weight, residual=x)


def _normed(x: Tensor, norm: GemmaNorm) -> Tensor:
    if norm.scale is None:
        raise RuntimeError(UNPACKED)
    if x.is_cuda:
        return rms_norm(x, norm.scale, norm.eps)
    return rms_norm(x.float(), norm.scale, norm.eps).to(x.dtype)


class PackedPrefixes:
    """`Seen` for prefixes that begin their sequences."""

    def __init__(self, to: CausalRows, slots: Tensor, bounds: Tensor, most: int, heads: int) -> None:
        """slots int64 `[R]` for keys and values, in each run's pages from their beginning; bounds int32 `[M + 1]` of
        each run's rows, at most `most` per run."""
        self.k, self.v, self.slots = to.k, to.v, slots
        self._blocks = PackedBlocks(bounds, most, heads)

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        return self._blocks.paged(q, self.k[layer], self.v[layer], self.slots)


class PrefixForm(PromptForm):
    """Returns nothing: only a prefix's keys and values are needed."""

    sizes, most, what = SIZES, MOST, "a prefix of {} rows"

    def __init__(self, rows: PrefixRows) -> None:
        self._rows = rows

    def fits(self, to: CausalRows) -> bool:
        return True

    def blank(self, size: int) -> Numbers:
        return np.array([0, *[size] * MOST, *[0] * size])

    def numbers(self, size: int, positions: Sequence[float], to: CausalRows) -> Numbers:
        """Bounds of each run's rows, followed by positions, which begin anew with each run."""
        bounds = padded([0, *accumulate(to.counts)], MOST + 1, sum(to.counts))
        return np.concatenate((bounds, _positions(to)))

    def read(self, inputs: PromptInputs, to: CausalRows) -> PromptAnswers:
        size = len(inputs.rows)
        bounds, positions = inputs.numbers.split((MOST + 1, size))
        packed = PackedPrefixes(to, inputs.slots, bounds.int(), size, self._rows.shape.heads)
        self._rows.read(inputs.rows.clone(), positions, packed)
        return PromptAnswers()


class Prefixes:
    """Prefixes by captured forwards, or by the same work launched directly where no graph fits."""

    def __init__(self, rows: PrefixRows, capture: Capture | None) -> None:
        self._rows, self._captured = rows, CapturedPrompts(PrefixForm(rows), capture)

    def read(self, x: Tensor, to: CausalRows | None) -> bool:
        """x `[R, W]`, run by run, consumed. False if a plain forward must serve them."""
        if to is None or not self._captured.enabled:
            return False
        if self._captured.read(x, (), to) is None:
            self._launched(x, to)
        return True

    def _launched(self, x: Tensor, to: CausalRows) -> None:
        # From pinned memory, so the copies don't wait for the work before them.
        bounds = torch.tensor([0, *accumulate(to.counts)], dtype=torch.int32, pin_memory=x.is_cuda)
        places = torch.from_numpy(_positions(to))
        places = places.pin_memory() if x.is_cuda else places
        bounds, places = (part.to(x.device, non_blocking=True) for part in (bounds, places))
        packed = PackedPrefixes(to, to.slots, bounds, max(to.counts), self._rows.shape.heads)
        self._rows.read(x, places, packed)


def _positions(to: CausalRows) -> Numbers:
    """`[R]`: each row's place in its run."""
    return np.concatenate([np.arange(count, dtype=np.int64) for count in to.counts])


def embedded(model: Pi05, cameras: list[list[Tensor]], ids: list[Tensor]) -> Tensor:
    """Embeddings `[p, W]` of each run's cameras, and each run's token ids `[n]` -> rows `[R, W]`, run by run."""
    texts = model.embed(ids[0] if len(ids) == 1 else torch.cat(ids)).split([len(one) for one in ids])
    runs = zip(cameras, texts, strict=True)
    return torch.cat([part.to(text.dtype) for seen, text in runs for part in (*seen, text)])
