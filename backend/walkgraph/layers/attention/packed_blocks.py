"""Attention within consecutive blocks of rows. The blocks' bounds are tensors on the device, so one captured graph
serves blocks of any lengths.

Shape letters: R rows, M blocks, H query heads, G key/value heads, D head dim, S slots of a cache.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


class PackedBlocks:
    """Attention within the blocks of one forward, for all its layers."""

    def __init__(self, bounds: Tensor, most: int, heads: int) -> None:
        """bounds: int32 `[M + 1]`, rising from 0: the start of each block, and the end of the last one. `most`: the
        most rows of a block. `heads`: H."""
        self._bounds, self._most, self._heads = bounds, most, heads
        # With one key head, the heads of a row become rows of their own, as all attend the same keys.
        self._folded = bounds * heads

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[R, H, D]`, k and v `[R, G, D]` -> `[R, H, D]`; scaled by D^-0.5. Rows past the last bound get arbitrary
        numbers."""
        if not q.is_cuda or q.dtype == torch.float32:
            return self._plain(q, k, v)
        if self._short(q, k, v):
            from walkgraph.layers.kernels.packed_attention import packed_attention

            return packed_attention(q, k, v, self._bounds, self._most)
        if k.shape[1] == 1:
            rows = q.reshape(-1, 1, q.shape[2])
            return _flash(rows, k, v, self._folded, self._bounds, self._most * self._heads, self._most).view(q.shape)
        if k.shape[1] < self._heads:
            k, v = (part.repeat_interleave(self._heads // k.shape[1], 1) for part in (k, v))
        return _flash(q, k, v, self._bounds, self._bounds, self._most, self._most)

    def paged(self, q: Tensor, slot_k: Tensor, slot_v: Tensor, slots: Tensor) -> Tensor:
        """Like a call, with keys and values in a paged cache, slot_k and slot_v `[S, G, D]`. slots int64 `[R]`, of each
        row: each 16 rows of a block have the slots of a page, in order."""
        if q.is_cuda:
            from walkgraph.layers.kernels.folded_attention import attend_pages, fits

            if fits(q, slot_k, slot_v, len(self._bounds) - 1):
                return attend_pages(q, slot_k, slot_v, self._bounds, slots)
        return self(q, *(cache.index_select(0, slots) for cache in (slot_k, slot_v)))

    def _short(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """True where our kernel serves the blocks: the library's takes twice as long for few rows."""
        from walkgraph.layers.kernels.packed_attention import BLOCKS, MOST, WIDTHS

        width = q.shape[2]
        alike = q.shape == k.shape and q.stride() == k.stride() == v.stride() and q.stride()[1:] == (width, 1)
        return alike and self._most <= MOST and len(self._bounds) <= BLOCKS and width in WIDTHS

    def _plain(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        place = torch.arange(q.shape[0], device=q.device)
        block = (place[:, None] >= self._bounds[1:]).sum(1)
        mask = block[:, None] == block
        k, v = (part.repeat_interleave(self._heads // k.shape[1], 1) for part in (k, v))
        heads = (part.transpose(0, 1)[None] for part in (q, k, v))
        return F.scaled_dot_product_attention(*heads, attn_mask=mask)[0].transpose(0, 1)


def _flash(q: Tensor, k: Tensor, v: Tensor, of_q: Tensor, of_k: Tensor, most_q: int, most_k: int) -> Tensor:
    """PyTorch's kernel for packed sequences, which reads their bounds on the device."""
    given = (q, k, v, of_q, of_k, most_q, most_k, 0.0, False, False)
    return torch.ops.aten._flash_attention_forward(*given)[0]
