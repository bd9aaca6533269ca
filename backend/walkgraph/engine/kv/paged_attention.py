"""Attention over a paged cache in PyTorch: the reference on every device, and the engine's backend on CPUs.

Keys and values of kept rows go to their slots. Each sequence attends its context, gathered from its pages, and its own
new rows, taken directly; scratch rows are therefore never stored. Indices and masks are made once per forward. If a
whole group is scratch, its contexts can't change between forwards over the same ones, so the padded copies are reused
(a denoising loop gathers its contexts once).

Shape letters: R rows of the batch, B sequences of a group, L new rows of a sequence (padded), P context (padded),
S = P + L, H query heads, G key/value heads, D head dim.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.states import CausalRows, Placed, Segment
from walkgraph.engine.kv.allocator import PAGE, PageFault, pages_for
from walkgraph.engine.kv.pool import Pool, slots_of_each


class PlacedSegment(NamedTuple):
    """A segment, with the pages and length of its sequence."""

    segment: Segment
    new: int
    pages: list[int]
    length: int
    """Tokens of the context, without the new ones."""
    content: int
    """Identifies the context's keys and values."""
    slots: Tensor | None
    """int64 `[new]`: the slots of kept rows; None for scratch."""


def with_slots(segments: Sequence[PlacedSegment], pool: Pool) -> list[PlacedSegment]:
    """The segments, with the slots of the rows that are kept."""
    kept = [one for one in segments if one.segment.keep]
    slots = iter(slots_of_each([(one.pages, one.length, one.length + one.new) for one in kept], pool.device))
    return [one._replace(slots=next(slots)) if one.segment.keep else one for one in segments]


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Tensors behind each other; a single one as it is, since each copy takes the host longer than the device."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def causal_rows(pool: Pool, segments: Sequence[PlacedSegment]) -> CausalRows | None:
    """The rows of segments that are all causal and kept; None for others."""
    return _rows(pool, segments) if all(e.segment.mode == "causal" for e in segments) else None


def begun_rows(pool: Pool, segments: Sequence[PlacedSegment]) -> CausalRows | None:
    """The rows of segments that are all kept blocks of empty sequences; None for others."""
    return _rows(pool, segments) if all(e.segment.mode == "block" and not e.length for e in segments) else None


def _rows(pool: Pool, segments: Sequence[PlacedSegment]) -> CausalRows | None:
    slots = [e.slots for e in segments if e.slots is not None]
    if len(slots) < len(segments):
        return None
    counts, before = [e.new for e in segments], [e.length for e in segments]
    pages = [e.pages[: pages_for(e.length + e.new)] for e in segments]
    return CausalRows(pool.k, pool.v, joined(slots), pool.spare * PAGE, counts, before, pages)


NOT_PLACED = "only rows that are kept, all causal or all blocks, are placed by the network itself"


class PaddedContexts:
    """The padded contexts of recent groups that keep nothing, least recently used first, within a budget of bytes."""

    def __init__(self, budget: int = 64 << 20) -> None:
        self._budget = budget
        self._used = 0
        self._groups: OrderedDict[Hashable, PaddedGroup] = OrderedDict()

    def group(self, pool: Pool, segments: Sequence[PlacedSegment]) -> "PaddedGroup":
        if any(e.segment.keep for e in segments):
            return PaddedGroup(pool, segments)
        key = (id(pool), *((e.content, e.new, e.segment.mode) for e in segments))
        found = self._groups.get(key)
        if found is not None and found.same_rows(segments):
            self._groups.move_to_end(key)
            return found
        group = PaddedGroup(pool, segments)
        if group.bytes <= self._budget:
            self._forget(key)
            group.keep_buffers()
            self._groups[key] = group
            self._used += group.bytes
            while self._used > self._budget:
                self._forget(next(iter(self._groups)))
        return group

    def clear(self) -> None:
        self._groups.clear()
        self._used = 0

    def _forget(self, key: Hashable) -> None:
        old = self._groups.pop(key, None)
        self._used -= old.bytes if old else 0


class PagedAttention:
    """`Attend` for one forward. The transaction that commits it reads `segments`."""

    def __init__(self, pool: Pool, segments: Sequence[PlacedSegment], contexts: PaddedContexts) -> None:
        self.segments = segments
        self._pool = pool
        kept = [e for e in segments if e.slots is not None]
        self._kept = (
            (torch.cat([e.segment.rows for e in kept]), torch.cat([e.slots for e in kept if e.slots is not None]))
            if kept
            else None
        )
        self._groups = [contexts.group(pool, alike) for alike in _alike(segments)]

    def causal(self) -> CausalRows | None:
        return causal_rows(self._pool, self.segments)

    def begun(self) -> CausalRows | None:
        return begun_rows(self._pool, self.segments)

    def placed(self) -> Placed:
        several = {e.segment.mode for e in self.segments if e.new > 1}
        if self._kept is None or any(e.slots is None for e in self.segments) or len(several) > 1:
            raise PageFault(NOT_PLACED)
        return _GatheredRows(self, self._pool, self._kept[1])

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[R, H, D]`, k and v `[R, G, D]` -> `[R, H, D]`."""
        dtype = self._pool.shape.dtype
        k, v = k.to(dtype), v.to(dtype)
        if self._kept is not None:
            rows, slots = self._kept
            self._pool.k[layer].index_copy_(0, slots, k.index_select(0, rows))
            self._pool.v[layer].index_copy_(0, slots, v.index_select(0, rows))
        if len(self._groups) == 1:
            return self._groups[0].attend(layer, q, k, v).index_select(0, self._groups[0].back)
        out = torch.empty_like(q)
        for group in self._groups:
            out.index_copy_(0, group.rows, group.attend(layer, q, k, v).index_select(0, group.real))
        return out


class PoolRows:
    """The part that every `Placed` has: where its rows are stored."""

    def __init__(self, pool: Pool, slots: Tensor) -> None:
        self.slots = slots
        self.k: Sequence[Tensor] = pool.k
        self.v: Sequence[Tensor] = pool.v


class _GatheredRows(PoolRows):
    """`Placed` for a forward whose rows are in order."""

    def __init__(self, attention: PagedAttention, pool: Pool, slots: Tensor) -> None:
        super().__init__(pool, slots)
        self._attention = attention

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        # Writing rows back to the slots that they are read from changes nothing, and one form of attention serves all.
        return self._attention(layer, q, *(cache[layer].index_select(0, self.slots) for cache in (self.k, self.v)))


class PaddedGroup:
    """Sequences of similar lengths, padded to one rectangle."""

    def __init__(self, pool: Pool, segments: Sequence[PlacedSegment]) -> None:
        self._pool = pool
        self._sources = [e.segment.rows for e in segments]
        self._b = len(segments)
        self._l = max(e.new for e in segments)
        p = max(e.length for e in segments)
        self._s = s = p + self._l
        device = pool.device
        self.rows = joined(self._sources)
        """int64: batch rows of the group, sequence by sequence."""
        new = torch.tensor([e.new for e in segments], device=device)
        places = torch.arange(self._l, device=device)
        there = places < new[:, None]
        self.real = there.flatten().nonzero()[:, 0]
        """int64: indices of `rows` among the `B * L` padded rows."""
        starts = new.cumsum(0) - new
        # The results of padded queries are dropped, so any row will do.
        self._queries = self.rows[torch.where(there, starts[:, None] + places, 0).flatten()]
        self.back = torch.empty_like(self.rows)
        """int64 `[R]`: the padded row of each batch row, if this group is the whole batch."""
        if int(self.rows.max()) < self.rows.shape[0]:
            self.back[self.rows] = self.real
        self._tail = self.real // self._l * s + p + self.real % self._l
        self._gather = self._context_slots(segments, p)
        self._mask = self._visible(segments, p, new)
        self._buffers: list[tuple[Tensor, Tensor]] | None = None

    @property
    def bytes(self) -> int:
        shape = self._pool.shape
        return 2 * shape.layers * self._b * self._s * shape.kv_heads * shape.head_dim * shape.dtype.itemsize

    def same_rows(self, segments: Sequence[PlacedSegment]) -> bool:
        return all(mine is placed.segment.rows for mine, placed in zip(self._sources, segments, strict=True))

    def keep_buffers(self) -> None:
        self._buffers = [self._read(layer) for layer in range(self._pool.shape.layers)]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend the group's rows -> `[B * L, H, D]`."""
        keys, values = self._buffers[layer] if self._buffers is not None else self._read(layer)
        keys.index_copy_(0, self._tail, k.index_select(0, self.rows))
        values.index_copy_(0, self._tail, v.index_select(0, self.rows))
        shape = (self._b, self._s, *keys.shape[1:])
        q_BLHD = q.index_select(0, self._queries).to(keys.dtype).view(self._b, self._l, *q.shape[1:])
        out = F.scaled_dot_product_attention(
            q_BLHD.transpose(1, 2),
            keys.view(shape).transpose(1, 2),
            values.view(shape).transpose(1, 2),
            attn_mask=self._mask,
            enable_gqa=q.shape[1] != keys.shape[1],
        )
        return out.transpose(1, 2).reshape(-1, *q.shape[1:]).to(q.dtype)

    def _read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values `[B * S, G, D]`: contexts first, then space for the new rows."""
        return (
            self._pool.k[layer].index_select(0, self._gather),
            self._pool.v[layer].index_select(0, self._gather),
        )

    def _context_slots(self, segments: Sequence[PlacedSegment], p: int) -> Tensor:
        """Slots of the contexts, int64 `[B * S]`. Padding and the places of new rows read slot 0, which holds zeros."""
        device = self._pool.device
        most = -(-p // PAGE)
        pages = torch.tensor(
            [[*e.pages[: -(-e.length // PAGE)], *[0] * (most - -(-e.length // PAGE))] for e in segments],
            dtype=torch.int64,
            device=device,
        )
        slots = (pages[:, :, None] * PAGE + torch.arange(PAGE, device=device)).flatten(1)[:, :p]
        lengths = torch.tensor([e.length for e in segments], device=device)
        slots = torch.where(torch.arange(p, device=device) < lengths[:, None], slots, 0)
        return F.pad(slots, (0, self._l)).flatten()

    def _visible(self, segments: Sequence[PlacedSegment], p: int, new: Tensor) -> Tensor | None:
        """Attention mask, bool `[B, 1, L, S]`; None if every query sees every key."""
        causal = [e.segment.mode == "causal" and e.new > 1 for e in segments]
        if all(e.length == p and e.new == self._l for e in segments) and not any(causal):
            return None
        device = self._pool.device
        lengths = torch.tensor([e.length for e in segments], device=device)[:, None, None]
        key = torch.arange(self._s, device=device) - p
        query = torch.arange(self._l, device=device)[:, None]
        is_causal = torch.tensor(causal, device=device)[:, None, None]
        fresh = torch.where(is_causal, key <= query, key < new[:, None, None])
        return torch.where(key < 0, key + p < lengths, fresh)[:, None]


def _alike(segments: Sequence[PlacedSegment]) -> list[list[PlacedSegment]]:
    """Groups of segments that can be padded to one rectangle with little waste, in a fixed order."""
    groups: dict[tuple[int, int], list[PlacedSegment]] = {}
    for placed in segments:
        key = (_bucket(placed.new, 32) if placed.new > 1 else 0, _bucket(placed.length, 256))
        groups.setdefault(key, []).append(placed)
    return list(groups.values())


def _bucket(n: int, small: int) -> int:
    """The next power of two, at least that of `small`."""
    return 1 << (max(n, small) - 1).bit_length()
