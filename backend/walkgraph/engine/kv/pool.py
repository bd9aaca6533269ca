"""Owns the memory of one paged pool: keys and values of every layer, in slots.

Shape letters: N layers, S slots (pages * PAGE), G key/value heads, D head dim, R rows.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.states import CacheShape
from walkgraph.engine.device.cuda_streams import sent
from walkgraph.engine.kv.allocator import PAGE, PageAllocator


def page_bytes(shape: CacheShape) -> int:
    return PAGE * 2 * shape.layers * shape.kv_heads * shape.head_dim * shape.dtype.itemsize


class Pool:
    """All paged states of one `CacheShape` on a rank share it."""

    def __init__(self, shape: CacheShape, pages: int, device: torch.device) -> None:
        self.shape, self.device = shape, device
        self.pages = PageAllocator(pages)
        self.spare = pages + 1
        """A page of nobody's, where rows that pad a batch write."""
        slots = (pages + 2) * PAGE
        self.k = [self._zeros(slots) for _ in range(shape.layers)]
        self.v = [self._zeros(slots) for _ in range(shape.layers)]

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy-on-write: all slots of pages, every layer."""
        source, target = sent(torch.tensor([sources, targets]), self.device)
        for cache in (*self.k, *self.v):
            pages = cache.view(-1, PAGE, *cache.shape[1:])
            pages.index_copy_(0, target, pages.index_select(0, source))

    def read(self, pages: Sequence[int], length: int) -> Tensor:
        """The first `length` tokens as `[2, N, length, G, D]`."""
        index = slots_of(pages, 0, length, self.device)
        return torch.stack([torch.stack([cache[index] for cache in caches]) for caches in (self.k, self.v)])

    def write(self, pages: Sequence[int], value: Tensor) -> None:
        """The inverse of `read`: `[2, N, length, G, D]` into the first slots of the pages."""
        index = slots_of(pages, 0, value.shape[2], self.device)
        value = value.to(self.device, self.shape.dtype)
        for caches, values in zip((self.k, self.v), value, strict=True):
            for cache, rows in zip(caches, values, strict=True):
                cache[index] = rows

    def _zeros(self, slots: int) -> Tensor:
        shape = (slots, self.shape.kv_heads, self.shape.head_dim)
        if self.device.type != "cpu":
            return torch.zeros(shape, dtype=self.shape.dtype, device=self.device)
        # Unlike torch, numpy leaves zeros to the system, which gives memory page by page as slots are written.
        blank = np.zeros(math.prod(shape) * self.shape.dtype.itemsize, np.uint8)
        return torch.from_numpy(blank).view(self.shape.dtype).view(shape)


def slots_of(pages: Sequence[int], start: int, stop: int, device: torch.device) -> Tensor:
    """int64 slots of the tokens `start <= i < stop` of a sequence."""
    if stop <= start:
        return torch.empty(0, dtype=torch.int64, device=device)
    first = start // PAGE
    # Made on the host and sent without waiting for the device.
    slots = (torch.tensor(pages[first : -(-stop // PAGE)])[:, None] * PAGE + torch.arange(PAGE)).flatten()
    return sent(slots[start - first * PAGE : stop - first * PAGE], device)


class PoolInfo(NamedTuple):
    states: tuple[str, ...]
    """Those that share it."""
    pages: int
    page_tokens: int
    page_bytes: int


def infos(pools: Mapping[str, Pool]) -> list[PoolInfo]:
    """`pools`: by state."""
    states: dict[Pool, list[str]] = {}
    for name, pool in pools.items():
        states.setdefault(pool, []).append(name)
    return [PoolInfo(tuple(names), pool.pages.total, PAGE, page_bytes(pool.shape)) for pool, names in states.items()]
