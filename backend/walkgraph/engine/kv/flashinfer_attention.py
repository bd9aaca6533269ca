"""Attention over a paged cache with FlashInfer's kernels, for forwards on CUDA that keep all their new rows.

Keys and values of the new rows go to their slots first. Each group of sequences then attends its pages, including the
new rows. A group is planned once per forward, from arrays on the host; every layer reads the plan. `unfit` decides what
FlashInfer can't serve, which stays with `paged_attention`.

Shape letters: R rows of the batch, B sequences of a group, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.states import CacheShape, CausalRows, Placed
from walkgraph.engine.device.cuda_streams import sent_together
from walkgraph.engine.kv.allocator import PAGE, PageFault, pages_for
from walkgraph.engine.kv.paged_attention import (
    NOT_PLACED,
    PlacedSegment,
    PoolRows,
    begun_rows,
    causal_rows,
    joined,
)
from walkgraph.engine.kv.pool import Pool, numbered_slots
from walkgraph.layers.attention.flashinfer import GAP
from walkgraph.layers.attention.paged_blocks import WIDTHS, paged_block_attention

Kind = Literal["decode", "causal", "block", "dense"]
"""How keys are read: from pages, for single tokens, causal rows and blocks; or side by side, for many rows."""

_SPACE = 128 << 20
"""Bytes for partial results. All plans of a device share them, because its launches are on one stream."""
_DENSE = 192
"""From this many new rows on, keys are copied side by side before they are attended."""
_BLOCK = 512
"""The largest block, in tokens, that the kernel of the steps attends; for larger ones FlashInfer's is faster."""
_TURNS = 6
"""The most plans of one kind that may be in use at once."""
_DECODE_GROUPS = (1, 2, 3, 4, 8)
"""Query heads per key head that the decode kernel without tensor cores supports."""


def unfit(shape: CacheShape, segments: Sequence[PlacedSegment], available: bool) -> str | None:
    """Why FlashInfer can't serve this forward; None if it can."""
    if not available:
        return "FlashInfer is not installed"
    if shape.dtype not in (torch.bfloat16, torch.float16):
        return f"FlashInfer does not support caches in {shape.dtype}"
    if shape.head_dim not in (64, 128, 256):
        return f"FlashInfer does not support heads of {shape.head_dim} numbers"
    if not all(placed.segment.keep for placed in segments):
        return "rows that are attended and not kept have no pages for FlashInfer to read"
    return None


class Layout(NamedTuple):
    """The sequences of one group in FlashInfer's form: int32 on the host, except `rows`."""

    kind: Kind
    rows: Tensor
    """int64, on the device: batch rows of the group, sequence by sequence."""
    queries: Tensor
    """`[B + 1]`: where each sequence's rows start in `rows`."""
    starts: Tensor
    """`[B + 1]`: where each sequence's pages start in `pages`."""
    pages: Tensor
    last: Tensor
    """`[B]`: tokens in the last page, including the new ones."""
    lengths: Tensor
    """`[B]`: tokens, including the new ones."""


def layouts(segments: Sequence[PlacedSegment]) -> list[Layout]:
    """The groups of a forward: one of single tokens, or one of causal segments and one of blocks.

    A single token is both causal and a block, so beside longer segments it joins a group that exists anyway.
    """
    if all(placed.new == 1 for placed in segments):
        return [_layout("decode", segments)]
    several: list[PlacedSegment] = [e for e in segments if e.new > 1]
    kinds: list[Kind] = [kind for kind in ("causal", "block") if any(e.segment.mode == kind for e in several)]
    return [
        _layout(kind, [e for e in segments if (e.segment.mode if e.new > 1 else kinds[0]) == kind]) for kind in kinds
    ]


def _layout(kind: Kind, segments: Sequence[PlacedSegment]) -> Layout:
    lengths = [placed.length + placed.new for placed in segments]
    held = [placed.pages[: pages_for(length)] for placed, length in zip(segments, lengths, strict=True)]
    sources = [placed.segment.rows for placed in segments]
    return Layout(
        kind,
        joined(sources),
        _starts([placed.new for placed in segments]),
        _starts([len(pages) for pages in held]),
        _numbers([page for pages in held for page in pages]),
        _numbers([(length - 1) % PAGE + 1 for length in lengths]),
        _numbers(lengths),
    )


def _starts(counts: Sequence[int]) -> Tensor:
    return torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)


@dataclass(slots=True)
class _Turn:
    """A wrapper, and the number of the plan in it."""

    wrapper: Any
    plans: int = 0
    copied: torch.cuda.Event | None = None
    """Reached when the device has read the plan that the wrapper keeps in pinned memory."""

    def planned(self) -> int:
        """Record that a plan was launched. Returns its number, for `of`."""
        self.copied = torch.cuda.Event()
        self.copied.record()
        return self.plans

    def of(self, plan: int) -> Any:
        """The wrapper, while that plan is in it. Raises `PageFault` if a later plan replaced it."""
        if self.plans != plan:
            raise PageFault(f"more than {_TURNS} forwards began before all layers of this one were launched")
        return self.wrapper


@dataclass(slots=True)
class Workspace:
    """FlashInfer's wrappers and memory on one device."""

    device: torch.device
    _space: Tensor | None = None
    _turns: dict[tuple[Kind, bool], list[_Turn]] = field(default_factory=dict[tuple[Kind, bool], list[_Turn]])

    def take(self, kind: Kind, tensor_cores: bool) -> _Turn:
        """The wrapper with the oldest plan."""
        turns = self._turns.setdefault((kind, tensor_cores), [])
        if not turns:
            # All at the first use, during warm-up: each pins memory, which takes milliseconds.
            turns += [_Turn(self._made(kind, tensor_cores)) for _ in range(_TURNS)]
        turn = turns.pop(0)
        turns.append(turn)
        if turn.copied is not None:
            turn.copied.synchronize()
        turn.plans += 1
        return turn

    def _made(self, kind: Kind, tensor_cores: bool) -> Any:
        import flashinfer  # pyright: ignore[reportMissingImports]

        if self._space is None:
            self._space = torch.zeros(_SPACE, dtype=torch.uint8, device=self.device)
        if kind == "decode":
            return flashinfer.BatchDecodeWithPagedKVCacheWrapper(self._space, "NHD", use_tensor_cores=tensor_cores)
        if kind == "dense":
            return flashinfer.BatchPrefillWithRaggedKVCacheWrapper(self._space, "NHD", backend="auto")
        return flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._space, "NHD", backend="auto")


class FlashInferAttention:
    """`Attend` for one forward. The transaction that commits it reads `segments`."""

    def __init__(self, pool: Pool, segments: Sequence[PlacedSegment], workspace: Workspace) -> None:
        self.segments = segments
        self._pool, self._workspace = pool, workspace
        self._turns: list[tuple[_Turn, int]] = []

    # What follows is made when it is needed first: captured forwards read only `causal` or `begun`.

    @cached_property
    def _groups(self) -> list[Layout]:
        return layouts(self.segments)

    @cached_property
    def _rows(self) -> Tensor:
        return joined([placed.segment.rows for placed in self.segments])

    @cached_property
    def _slots(self) -> Tensor:
        return joined([placed.slots for placed in self.segments if placed.slots is not None])

    def causal(self) -> CausalRows | None:
        return causal_rows(self._pool, self.segments)

    def begun(self) -> CausalRows | None:
        return begun_rows(self._pool, self.segments)

    def placed(self) -> Placed:
        if len(self._groups) != 1:
            raise PageFault(NOT_PLACED)
        if self._pool.shape.head_dim in WIDTHS and blocks_of(self._groups[0], self.segments):
            return PlacedBlocks(self._pool, self.segments, self._slots)
        if self._groups[0].kind == "decode" or len(self._slots) < _DENSE:
            return _PagedRows(self, self._pool, self._slots)
        return _DenseRows(
            self._pool, self.segments, self._slots, self._workspace, causal=self._groups[0].kind != "block"
        )

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[R, H, D]`, k and v `[R, G, D]` -> `[R, H, D]`."""
        from walkgraph.layers.kernels.append import append

        dtype = self._pool.shape.dtype
        append(k.to(dtype), v.to(dtype), self._rows, self._pool.k[layer], self._pool.v[layer], self._slots)
        out = torch.empty_like(q)
        for index, group in enumerate(self._groups):
            out.index_copy_(0, group.rows, self.attended(layer, index, q.index_select(0, group.rows)))
        return out

    def attended(self, layer: int, group: int, q: Tensor) -> Tensor:
        """Attend the rows of a group, sequence by sequence. Their keys and values must be in their slots."""
        if not self._turns:
            self._turns = [self._planned(each, q.shape[1]) for each in self._groups]
        turn, plan = self._turns[group]
        caches = tuple(cache[layer].unflatten(0, (-1, PAGE)) for cache in (self._pool.k, self._pool.v))
        mine = q.to(self._pool.shape.dtype)
        return turn.of(plan).run(mine, caches, out=torch.empty_like(mine)).to(q.dtype)

    def _planned(self, group: Layout, heads: int) -> tuple[_Turn, int]:
        shape = self._pool.shape
        # The plan says whether rows are causal; the wrapper is the same for both.
        kind: Kind = "block" if group.kind == "causal" else group.kind
        turn = self._workspace.take(kind, heads // shape.kv_heads not in _DECODE_GROUPS)
        sizes = heads, shape.kv_heads, shape.head_dim, PAGE
        where = group.starts, group.pages, group.last
        if group.kind == "decode":
            turn.wrapper.plan(*where, *sizes, q_data_type=shape.dtype, seq_lens=group.lengths)
        else:
            causal = group.kind == "causal"
            turn.wrapper.plan(
                group.queries, *where, *sizes, causal=causal, q_data_type=shape.dtype, seq_lens=group.lengths
            )
        return turn, turn.planned()


class _PagedRows(PoolRows):
    """`Placed` for a forward of one group whose rows are in order."""

    def __init__(self, attention: FlashInferAttention, pool: Pool, slots: Tensor) -> None:
        super().__init__(pool, slots)
        self._attention = attention

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        return self._attention.attended(layer, 0, q)


def blocks_of(group: Layout, segments: Sequence[PlacedSegment]) -> bool:
    """True if a forward has only blocks of one size, as captured steps append them, so that one kernel serves both."""
    counts = {placed.new for placed in segments}
    return group.kind == "block" and len(counts) == 1 and counts.pop() <= _BLOCK


class _Standing(NamedTuple):
    """`layers.attention.paged_blocks.Rows` for a forward's sequences."""

    rows: Tensor
    pages: Tensor
    lengths: Tensor


class PlacedBlocks(PoolRows):
    """`Placed` for a forward of blocks with equal numbers of tokens."""

    def __init__(self, pool: Pool, segments: Sequence[PlacedSegment], slots: Tensor) -> None:
        super().__init__(pool, slots)
        self._dtype, self._tokens = pool.shape.dtype, segments[0].new
        most = max(len(placed.pages) for placed in segments)
        pages = [[*placed.pages, *[pool.spare] * (most - len(placed.pages))] for placed in segments]
        standing = (range(len(segments)), pages, [placed.length for placed in segments])
        self._rows = _Standing(*(_numbers(each).to(pool.device, non_blocking=True) for each in standing))

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        mine = q.to(self._dtype).contiguous()
        return paged_block_attention(mine, self.k[layer], self.v[layer], self._rows, self._tokens, page=PAGE).to(
            q.dtype
        )


class _DenseRows(PoolRows):
    """`Placed` for a forward of one group with many rows. Before each attention, all keys of the layer are copied side
    by side: the kernel reads them a fifth faster that way."""

    def __init__(
        self, pool: Pool, segments: Sequence[PlacedSegment], slots: Tensor, workspace: Workspace, *, causal: bool
    ) -> None:
        super().__init__(pool, slots)
        self._causal, self._shape, self._workspace = causal, pool.shape, workspace
        lengths = [placed.length + placed.new for placed in segments]
        starts = [0, *accumulate(length + GAP for length in lengths)]
        size = (starts[-1], pool.shape.kv_heads, pool.shape.head_dim)
        self._dense_k, self._dense_v = (torch.empty(size, dtype=pool.shape.dtype, device=pool.device) for _ in range(2))
        spans = list(zip(starts, lengths, strict=False))
        numbered = (
            [numbered_slots(placed.pages, 0, length) for placed, length in zip(segments, lengths, strict=True)],
            [np.arange(at, at + n) for at, n in spans],
            [np.arange(at + n, at + n + GAP) for at, n in spans],
        )
        joined = [torch.from_numpy(np.concatenate(each)) for each in numbered]
        self._sources, self._targets, gaps = sent_together(joined, pool.device)
        self._dense_v.index_fill_(0, gaps, 0)
        # The gaps between sequences are passed as sequences without queries.
        ends = [0, *accumulate(placed.new for placed in segments)]
        self._queries = _numbers([0, *(end for end in ends[1:] for _ in range(2))])
        self._keys = _numbers([*(bound for start, n in spans for bound in (start, start + n)), starts[-1]])
        self._turn: tuple[_Turn, int] | None = None

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        from walkgraph.layers.kernels.append import append

        if self._turn is None:
            self._turn = self._planned(q.shape[1])
        turn, plan = self._turn
        append(self.k[layer], self.v[layer], self._sources, self._dense_k, self._dense_v, self._targets)
        return turn.of(plan).run(q.to(self._shape.dtype), self._dense_k, self._dense_v).to(q.dtype)

    def _planned(self, heads: int) -> tuple[_Turn, int]:
        turn = self._workspace.take("dense", tensor_cores=True)
        sizes = heads, self._shape.kv_heads, self._shape.head_dim
        turn.wrapper.plan(self._queries, self._keys, *sizes, causal=self._causal, q_data_type=self._shape.dtype)
        return turn, turn.planned()


def _numbers(values: Sequence[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)
