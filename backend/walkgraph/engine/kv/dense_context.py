"""Dense contexts: the contexts of a batch side by side, each followed by the block that a step attends and does not
keep.

    | context 0 | block 0 | gap | context 1 | block 1 | gap | ...

The memory of a dense context never moves, so CUDA graphs can be captured over it; which sequences are in it changes
between replays. Contexts are copied out of their pages when the rows of the batch change, not at every step: dense keys
are faster to read than pages, and a denoising loop reads them dozens of times.

Shape letters: B rows of a batch, n tokens of a block, S slots of a dense context, H query heads, G key/value heads, D
head dim.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv import flashinfer_dense
from walkgraph.engine.kv.allocator import PAGE, PageFault, pages_for
from walkgraph.engine.kv.pool import Pool, zeros
from walkgraph.layers.attention.flashinfer import GAP

_CONTEXTS = (128, 1024, 4096, 9216, 16384)
"""Mean context tokens of a row that dense contexts are made for."""
_MORE = 8192
"""Beyond the largest of these, capacities are multiples of this."""
NARROW = 64
"""The most queries of a block whose keys are divided among programs: they are too few to fill a GPU."""


class ContextSequence(NamedTuple):
    """A sequence in the batch."""

    pages: Sequence[int]
    length: int
    """Tokens kept in the pages."""
    position: int
    """Rope position of its next token."""
    content: Hashable
    """Identifies its keys and values; while it stays in place with the same content, they are copied only once."""


def capacity_for(lengths: Sequence[int], batch: int, tokens: int) -> int:
    """The capacity of a dense context for contexts of these lengths and `batch` blocks of `tokens`. It is one of a few
    sizes, so that later batches can use the same one."""
    mean = -(-sum(lengths) // batch)
    most = next((size for size in _CONTEXTS if size >= mean), -(-mean // _MORE) * _MORE)
    return batch * (most + tokens)


def dense_context_bytes(shape: CacheShape, batch: int, tokens: int, capacity: int) -> int:
    """Bytes that a `DenseContext` takes on its device."""
    slot = 2 * shape.layers * shape.kv_heads * shape.head_dim * shape.dtype.itemsize
    return slot * (capacity + batch * GAP) + 8 * (batch * (tokens + 1) + tokens + PAGE) + flashinfer_dense.SPACE


class DenseContext:
    """`Block` for up to `batch` sequences of one pool. The sequences are placed before a step. Rows left over pad the
    batch: they have no context and attend their own block."""

    def __init__(self, pool: Pool, batch: int, tokens: int, capacity: int, queries: int | None = None) -> None:
        """`tokens`: those of each row's block. `capacity`: tokens of all contexts plus `batch` blocks. `queries`: the
        tokens of a block that are asked for; None for all."""
        self.batch, self.tokens, self.capacity = batch, tokens, capacity
        self._pool = pool
        shape, device = pool.shape, pool.device
        size = (shape.layers, capacity + batch * GAP, shape.kv_heads, shape.head_dim)
        self._v = zeros(size, shape.dtype, device)
        self.k: Sequence[Tensor] = zeros(size, shape.dtype, device).unbind()
        self.v: Sequence[Tensor] = self._v.unbind()
        self.slots = torch.zeros(batch * tokens, dtype=torch.int64, device=device)
        self.positions = torch.zeros(batch, dtype=torch.int64, device=device)
        self._block, self._page = torch.arange(tokens, device=device), torch.arange(PAGE, device=device)
        self._attention = _attention(batch, tokens if queries is None else queries, shape, device)
        self.captures = not isinstance(self._attention, _RowByRow)
        """True if a step over it may be captured. Otherwise the host passes every kernel the length of a row."""
        self._lengths: list[int] = []
        self._there: dict[int, tuple[int, Hashable]] = {}
        """First slot -> length and content of the context that begins there."""
        self.place(())

    def fits(self, rows: Sequence[ContextSequence]) -> bool:
        tokens = sum(row.length for row in rows) + self.batch * self.tokens
        return len(rows) <= self.batch and tokens <= self.capacity

    def place(self, rows: Sequence[ContextSequence]) -> None:
        """Use `rows`, in this order, in the next steps. Ordered on the current stream; does not wait for the device.

        Raises `PageFault` unless they fit (`fits`).
        """
        if not self.fits(rows):
            raise PageFault(
                f"{len(rows)} rows don't fit a dense context of {self.batch} rows and {self.capacity} tokens"
            )
        lengths = [*(row.length for row in rows), *[0] * (self.batch - len(rows))]
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + length + self.tokens + GAP)
        if lengths != self._lengths:
            self._lay(lengths, starts)
            self._lengths = lengths
        wanted = {start: (row.length, row.content) for start, row in zip(starts, rows, strict=False)}
        missing = [
            (start, row)
            for start, row in zip(starts, rows, strict=False)
            if row.length and self._there.get(start) != wanted[start]
        ]
        self._there = {}
        if missing:
            self._fetch(missing)
        self._there = wanted
        positions = [*(row.position for row in rows), *[0] * (self.batch - len(rows))]
        self.positions.copy_(self._sent(positions))

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[B * n, H, D]`, n being `queries` -> `[B * n, H, D]`."""
        return self._attention(q.to(self._v.dtype), self.k[layer], self.v[layer]).to(q.dtype)

    def _lay(self, lengths: Sequence[int], starts: Sequence[int]) -> None:
        """Set the slots of the blocks, zero the gaps between sequences, and pass the bounds to the attention."""
        blocks = self._sent([start + length for start, length in zip(starts, lengths, strict=False)])
        torch.add(blocks[:, None], self._block, out=self.slots.view(self.batch, self.tokens))
        for stop in starts[1:] if self._lengths else ():  # the first ones are zero, in memory that nothing has touched
            self._v[:, stop - GAP : stop].zero_()
        self._attention.place([at for start, stop in pairwise(starts) for at in (start, stop - GAP)])

    def _fetch(self, rows: Sequence[tuple[int, ContextSequence]]) -> None:
        """Copy contexts out of their pages, in all layers, each to the slots from its start on."""
        sources, targets = [], []
        for start, row in rows:
            pages = self._sent(row.pages[: pages_for(row.length)])
            sources.append((pages[:, None] * PAGE + self._page).flatten()[: row.length])
            targets.append(torch.arange(start, start + row.length, device=self._pool.device))
        source, target = torch.cat(sources), torch.cat(targets)
        for layer, (k, v) in enumerate(zip(self._pool.k, self._pool.v, strict=True)):
            if k.is_cuda:
                from walkgraph.layers.kernels.append import append

                append(k, v, source, self.k[layer], self.v[layer], target)
            else:
                self.k[layer].index_copy_(0, target, k.index_select(0, source))
                self.v[layer].index_copy_(0, target, v.index_select(0, source))

    def _sent(self, numbers: Sequence[int]) -> Tensor:
        """int64 on the device. The copy from pinned memory does not wait for earlier work."""
        device = self._pool.device
        host = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")
        return host.to(device, non_blocking=True)


def _attention(batch: int, queries: int, shape: CacheShape, device: torch.device) -> "_Attention":
    """The fastest attention for blocks with so many queries on the device."""
    if device.type == "cuda" and queries <= NARROW:
        from walkgraph.layers.kernels.narrow_attention import unfit

        if unfit(shape.dtype, shape.head_dim, device) is None:
            return _Narrow(batch, queries, device)
    if flashinfer_dense.unfit(shape, device) is None:
        return flashinfer_dense.Ragged(batch, queries, shape, device)
    return _RowByRow(queries)


class _Attention(Protocol):
    def place(self, bounds: Sequence[int]) -> None:
        """Set start and stop of each row's keys, row by row in rising order."""
        ...

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[B * n, H, D]`, k and v `[S, G, D]` -> `[B * n, H, D]`."""
        ...


class _Narrow:
    """Attends blocks of few tokens, with kernels that read the bounds on the device."""

    def __init__(self, batch: int, queries: int, device: torch.device) -> None:
        from walkgraph.layers.attention.narrow_blocks import NarrowBlocks

        self._blocks = NarrowBlocks(batch, queries, device)

    def place(self, bounds: Sequence[int]) -> None:
        host = torch.tensor(bounds, dtype=torch.int32, pin_memory=True)
        self._blocks.spans.copy_(host.view_as(self._blocks.spans), non_blocking=True)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._blocks(q, k, v)


class _RowByRow:
    """Attends each row with a call of its own, at its own length."""

    def __init__(self, queries: int) -> None:
        self._queries = queries
        self._bounds: Sequence[int] = ()

    def place(self, bounds: Sequence[int]) -> None:
        self._bounds = bounds

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.cat(
            [
                F.scaled_dot_product_attention(
                    mine.transpose(0, 1)[None],
                    k[start:stop].transpose(0, 1)[None],
                    v[start:stop].transpose(0, 1)[None],
                    enable_gqa=q.shape[1] != k.shape[1],
                )[0].transpose(0, 1)
                for mine, start, stop in zip(q.split(self._queries), self._bounds[::2], self._bounds[1::2], strict=True)
            ]
        )
