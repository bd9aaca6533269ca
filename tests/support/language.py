"""A language model's logits by each of its forms, without an engine."""

from __future__ import annotations

import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask, dense_attention


def caches(model: LanguageModel, slots: int) -> tuple[list[Tensor], list[Tensor]]:
    llm = model.config
    k, v = ([torch.zeros(slots, llm.kv_heads, llm.head_dim) for _ in range(llm.layers)] for _ in "kv")
    return k, v


class PlacedPrompts:
    """`Placed` for prompts of one length that begin their sequences, at slots in a mixed order."""

    def __init__(self, model: LanguageModel, count: int, length: int) -> None:
        self.k, self.v = caches(model, count * length + 1)
        self.slots = 1 + torch.randperm(count * length, generator=torch.Generator().manual_seed(0))
        self._shape = (count, length)

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        k, v = (cache[layer][self.slots].unflatten(0, self._shape) for cache in (self.k, self.v))
        return dense_attention(q.unflatten(0, self._shape), k, v, causal_mask(self._shape[1])[:, None]).flatten(0, 1)


@torch.inference_mode()
def forwarded(model: LanguageModel, ids: Tensor) -> Tensor:
    """ids `[B, L]` -> logits `[B, L, V]` by one plain forward of all rows."""
    attend = PackedAttend((ids.shape[1],), mask=causal_mask(ids.shape[1]))
    positions = torch.arange(ids.shape[1]).repeat(len(ids))
    return model(ids.flatten(), positions, attend).view(*ids.shape, -1)


@torch.inference_mode()
def read(model: LanguageModel, ids: Tensor) -> Tensor:
    """ids `[B, L]` -> logits `[B, L, V]` by the form that serves prompts."""
    rows = torch.arange(ids.numel())
    positions = torch.arange(ids.shape[1]).repeat(len(ids))
    return model.read(ids.flatten(), positions, rows, PlacedPrompts(model, *ids.shape)).view(*ids.shape, -1)


@torch.inference_mode()
def stepped(model: LanguageModel, ids: Tensor) -> Tensor:
    """ids `[B, L]` -> logits `[B, L, V]`, a token at a time into pages that aren't in their order."""
    rows, pages = len(ids), -(-ids.shape[1] // PAGE)
    table = (torch.arange(rows * pages).flip(0) + 1).to(torch.int32).view(rows, pages)
    none = torch.zeros(rows, dtype=torch.int32)
    k, v = caches(model, (rows * pages + 1) * PAGE)
    slot = PagedSlot(k, v, PagedRows(torch.arange(rows).int(), table, none, none.clone()))
    logits: list[Tensor] = []
    for at in range(ids.shape[1]):
        logits.append(model.step(ids[:, at], slot).clone())
        slot.rows.lengths.add_(1)
        slot.rows.positions.add_(1)
    return torch.stack(logits, 1)
