"""Captured forwards for prompts that begin their sequences.

Each token attends its own prompt up to itself and no cache, so no page table is read. A plain forward reads prompts
that continue a context.

Shape letters: R tokens of a graph, H query heads, G key/value heads, D head dim, V vocabulary.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.states import CausalRows
from walkgraph.architectures.captured_prompts import PromptForm, PromptInputs, padded
from walkgraph.layers.attention.dense_attention import Attend

SIZES = (32, 64, 128, 256, 512)
"""Tokens of a graph, summed over its prompts."""
MOST = 16
"""The most prompts of a graph."""


class Model(Protocol):
    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend, asked: Tensor) -> Tensor:
        """ids and positions int64 `[R]` -> logits `[asked, V]`."""
        ...


class FreshPrompts(PromptForm):
    """Returns the logits after the last token of each prompt."""

    sizes, most, what = SIZES, MOST, "a prompt of {} tokens"

    def __init__(self, model: Model) -> None:
        self._model = model

    def fits(self, to: CausalRows) -> bool:
        return not any(to.before)

    def blank(self, size: int) -> Sequence[int]:
        return [0] * (2 * size + MOST)

    def numbers(self, size: int, positions: Sequence[int], to: CausalRows) -> Sequence[int]:
        sequence = [index for index, count in enumerate(to.counts) for _ in range(count)]
        ends = [count - 1 for count in accumulate(to.counts)]
        # Padding gets a sequence of its own.
        return [*padded(positions, size), *padded(sequence, size, -1), *ends]

    def read(self, inputs: PromptInputs, to: CausalRows) -> Sequence[Tensor]:
        size = len(inputs.rows)
        positions, sequence, ends = inputs.numbers.split((size, size, MOST))
        return [self._model(inputs.rows, positions, PackedPrompts(to, inputs.slots, sequence), ends)]


class PackedPrompts:
    """`Attend` for prompts without a context; their keys and values go to their slots."""

    def __init__(self, to: CausalRows, slots: Tensor, sequence: Tensor) -> None:
        """`sequence` int64 `[R]`: the prompt of each token."""
        self._to, self._slots = to, slots
        at = torch.arange(len(sequence), device=sequence.device)
        self._mask = ((sequence[:, None] == sequence) & (at[:, None] >= at))[None, None]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[R, H, D]`, k and v `[R, G, D]` -> `[R, H, D]`."""
        slot_k, slot_v = self._to.k[layer], self._to.v[layer]
        slot_k.index_copy_(0, self._slots, k.to(slot_k.dtype))
        slot_v.index_copy_(0, self._slots, v.to(slot_v.dtype))
        group = q.shape[1] // k.shape[1]
        heads = (x.transpose(0, 1)[None] for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
        return F.scaled_dot_product_attention(*heads, attn_mask=self._mask)[0].transpose(0, 1)
