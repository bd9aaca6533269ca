"""Owns the memory of paged pools: keys and values of every layer, and outputs kept with them, in slots.

Shape letters: N layers, S slots (pages * PAGE), G key/value heads, D head dim, R rows, W numbers of an output's row.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape
from walkgraph.engine.device.cuda_streams import sent
from walkgraph.engine.kv.allocator import PAGE, PageAllocator, PageFault
from walkgraph.engine.kv.prefix import PrefixCache, PrefixKey, PrefixStats
from walkgraph.wire.fault_points import FaultPoints


def page_bytes(shape: CacheShape) -> int:
    return PAGE * shape.numbers * shape.dtype.itemsize


class Pool:
    """The memory that all paged states of one `CacheShape` on a rank share."""

    def __init__(self, shape: CacheShape, pages: int, device: torch.device, faults: FaultPoints | None = None) -> None:
        self.shape, self.device = shape, device
        self.pages = PageAllocator(pages, faults)
        self.spare = pages + 1
        """A page that belongs to nobody: rows that pad a batch write there."""
        slots, heads = (pages + 2) * PAGE, (shape.kv_heads, shape.head_dim)
        self._layers = zeros((2 * shape.layers, slots, *heads), shape.dtype, device)
        """In one piece, so that a few launches copy a page of all layers."""
        self.k = list(self._layers[: shape.layers])
        self.v = list(self._layers[shape.layers :])
        self.outputs = {name: zeros((slots, width), shape.dtype, device) for name, width in shape.outputs}
        """Output -> its rows, `[S, W]`."""

    @property
    def each(self) -> Sequence[Tensor]:
        """The tensors that have a row for each slot."""
        return (*self.k, *self.v, *self.outputs.values())

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole pages, for copy-on-write."""
        source, target = sent(torch.tensor([sources, targets]), self.device)
        for cache in (self._layers, *(rows[None] for rows in self.outputs.values())):
            pages = cache.unflatten(1, (-1, PAGE))
            pages.index_copy_(1, target, pages.index_select(1, source))

    def read(self, pages: Sequence[int], stop: int, start: int = 0) -> Tensor:
        """Read the tokens `start <= i < stop` of a sequence as `[2, N, n, G, D]`."""
        index = slots_of(pages, start, stop, self.device)
        return torch.stack([torch.stack([cache[index] for cache in caches]) for caches in (self.k, self.v)])

    def write(self, pages: Sequence[int], value: Tensor, start: int = 0) -> None:
        """Write `[2, N, n, G, D]` as the tokens of a sequence from `start` on; the inverse of `read`."""
        index = slots_of(pages, start, start + value.shape[2], self.device)
        value = value.to(self.device, self.shape.dtype)
        for caches, values in zip((self.k, self.v), value, strict=True):
            for cache, rows in zip(caches, values, strict=True):
                cache[index] = rows


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros for a table of which perhaps only a part is ever written. On a CPU the rest takes no memory, and no time to
    fill."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # Unlike torch, numpy leaves zeroing to the system, which provides memory page by page as slots are written.
    blank = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(blank).view(dtype).view(*shape)


def slots_of(pages: Sequence[int], start: int, stop: int, device: torch.device) -> Tensor:
    """int64 slots of the tokens `start <= i < stop` of a sequence."""
    return slots_of_each([(pages, start, stop)], device)[0]


def slots_of_each(spans: Sequence[tuple[Sequence[int], int, int]], device: torch.device) -> list[Tensor]:
    """`slots_of` for several sequences: their pages, start and stop. The tensors are views of one."""
    # Made on the host and sent without waiting for the device; by NumPy, whose calls are short.
    each = [numbered_slots(*span) for span in spans]
    if not each:
        return []
    return list(sent(torch.from_numpy(np.concatenate(each)), device).split([len(one) for one in each]))


def numbered_slots(pages: Sequence[int], start: int, stop: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """`slots_of` on the host."""
    if stop <= start:
        return np.empty(0, np.int64)
    first = start // PAGE
    slots = (np.array(pages[first : -(-stop // PAGE)], np.int64)[:, None] * PAGE + np.arange(PAGE)).ravel()
    return slots[start - first * PAGE : stop - first * PAGE]


class PoolInfo(NamedTuple):
    states: tuple[str, ...]
    """Names of the states that share the pool."""
    pages: int
    page_tokens: int
    page_bytes: int


class KVPools:
    """The paged pools of one rank, by state. States of one cache shape share a pool."""

    def __init__(self, pools: Mapping[str, Pool] | None = None, *, prefix_cache: bool = False) -> None:
        """`prefix_cache`: sequences that begin alike share the pages of their common beginning."""
        self.prefix_cache = prefix_cache
        self.by_state: dict[str, Pool] = {}
        self.each: list[Pool] = []
        """Each pool once."""
        self.prefixes: dict[Pool, PrefixCache] = {}
        self.add(pools or {})

    def add(self, pools: Mapping[str, Pool]) -> None:
        """Add pools, by state. None of them may be there already."""
        self.by_state.update(pools)
        for pool in dict.fromkeys(pools.values()):
            self.each.append(pool)
            if self.prefix_cache:
                self.prefixes[pool] = PrefixCache(pool.pages)

    def of(self, key: StateKey) -> Pool:
        pool = self.by_state.get(key.state)
        if pool is None:
            raise PageFault(f"state `{key.state}` has no cache on this rank; have {sorted(self.by_state)}")
        return pool

    def keep_ended(self, pool: Pool, prefix: PrefixKey | None, length: int, pages: Sequence[int]) -> None:
        """Keep the pages of a sequence that ends, with its last one, if nothing of it is in flight."""
        if prefix is not None and prefix.sure == len(prefix.tokens) == length:
            self.prefixes[pool].add(prefix.origin, prefix.tokens, pages, ended=True)

    def pages(self) -> tuple[int, int]:
        """(free, total) pages of all pools. Pages that are only kept for later runs count as free."""
        return sum(pool.pages.free for pool in self.each), sum(pool.pages.total for pool in self.each)

    def infos(self) -> list[PoolInfo]:
        """Sizes of the pools, for the admission of runs."""
        states: dict[Pool, list[str]] = {}
        for name, pool in self.by_state.items():
            states.setdefault(pool, []).append(name)
        return [PoolInfo(tuple(names), one.pages.total, PAGE, page_bytes(one.shape)) for one, names in states.items()]

    def prefix_stats(self) -> PrefixStats:
        """Counts of the prefix caches, summed over all pools."""
        counts = [cache.stats for cache in self.prefixes.values()]
        return PrefixStats(*map(sum, zip(*counts, strict=True)))

    def audit_prefixes(self) -> None:
        """Raise `PageFault` unless the prefix caches have exactly the pages that are kept for them."""
        for cache in self.prefixes.values():
            cache.audit()
