"""Blocks of tokens that a step appends to a paged cache, and their attention: every token of a block attends its
sequence's earlier tokens and the whole block.

CPUs, and shapes that the kernels don't support, use the plain forms below; CUDA uses one kernel per function.

Shape letters: B sequences of a batch, n tokens of a block, T rows of the tables, P pages of a row, S slots (pages *
page size), H query heads, G key/value heads, D head dim, L tokens of a context with its block.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.paged_rows import BlockRows
from walkgraph.layers.invariance import is_batch_invariant

WIDTHS = (64, 128)
"""Head widths that the attention kernel supports."""
_GRID = 65535
"""The most sequences times heads of a launch."""


class Places(NamedTuple):
    """The arguments of `place_block` besides the block."""

    cos: Tensor
    sin: Tensor
    slot_k: Tensor
    slot_v: Tensor
    rows: BlockRows
    tokens: int
    page: int = 16

    def placed(self, qkv: Tensor) -> Tensor:
        """`place_block` of a block."""
        return place_block(qkv, self.cos, self.sin, self.slot_k, self.slot_v, self.rows, self.tokens, page=self.page)


def place_block(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    slot_k: Tensor,
    slot_v: Tensor,
    rows: BlockRows,
    tokens: int,
    *,
    page: int = 16,
) -> Tensor:
    """Turn queries and keys, and write keys and values to the tokens from each sequence's `lengths` on -> q
    `[B * n, H, D]`.

    qkv `[B * n, (H + 2G) * D]`: queries, keys, values, head-major, before the rotation. cos and sin float32
    `[B, n, D]`, broadcast where a stride is 0: y[2i] = x[2i] cos[2i] - x[2i+1] sin[2i], y[2i+1] = x[2i+1] cos[2i+1] +
    x[2i] sin[2i+1], rounded once. slot_k and slot_v `[S, G, D]`: one layer of the pool, written in place. tokens: n.
    page: slots of a page.

    The rows of one batch belong to different sequences, except for the table's last row, which may pad a batch: the
    content of its pages is meaningless.
    """
    if qkv.is_cuda and placeable(qkv, slot_k) and alike(cos, sin, slot_k, slot_v):
        from walkgraph.layers.kernels.paged_blocks import place

        return place(qkv, cos, sin, slot_k, slot_v, rows, tokens, page)
    return plain_place(qkv, cos, sin, slot_k, slot_v, rows, tokens, page=page)


def paged_block_attention(
    q: Tensor, slot_k: Tensor, slot_v: Tensor, rows: BlockRows, tokens: int, *, page: int = 16
) -> Tensor:
    """q `[B * n, H, D]`, turned -> `[B * n, H, D]`; scaled by D^-0.5.

    Every row of sequence b attends the first `lengths[rows[b]]` tokens of its pages and the n = `tokens` after them,
    which are placed already. On CUDA nothing is read on the host: a captured launch serves every length."""
    if q.is_cuda and attendable(q, slot_k, slot_v, rows, page):
        from walkgraph.layers.kernels.paged_blocks import attend

        return attend(q, slot_k, slot_v, rows, tokens, page)
    if is_batch_invariant():
        count = rows.rows.shape[0]
        parts = zip(range(count), q.split(tokens), strict=True)
        return torch.cat(
            [plain_attention(part, slot_k, slot_v, rows, tokens, page=page, of=(b, b + 1)) for b, part in parts]
        )
    return plain_attention(q, slot_k, slot_v, rows, tokens, page=page)


def plain_place(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    slot_k: Tensor,
    slot_v: Tensor,
    rows: BlockRows,
    tokens: int,
    *,
    page: int = 16,
) -> Tensor:
    """`place_block` in torch operations, the rotation in float32."""
    groups, width = slot_k.shape[1:]
    heads = qkv.shape[1] // width - 2 * groups
    turned = qkv[:, : (heads + groups) * width].view(-1, tokens, heads + groups, width // 2, 2).float()
    even, odd = turned.unbind(-1)
    cos_even, cos_odd = cos[:, :, None].unflatten(-1, (-1, 2)).unbind(-1)
    sin_even, sin_odd = sin[:, :, None].unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack([even * cos_even - odd * sin_even, odd * cos_odd + even * sin_odd], -1)
    q, k = pairs.flatten(-2).flatten(0, 1).to(qkv.dtype).split([heads, groups], 1)
    index = rows.rows.long()
    at = rows.lengths[index].long()[:, None] + torch.arange(tokens, device=qkv.device)
    pages = rows.pages[index].long().gather(1, (at // page).clamp(max=rows.pages.shape[1] - 1))
    slots = (pages * page + at % page).flatten()
    slot_k[slots] = k.to(slot_k.dtype)
    slot_v[slots] = qkv[:, (heads + groups) * width :].unflatten(1, (groups, width)).to(slot_v.dtype)
    return q.contiguous()


def plain_attention(
    q: Tensor,
    slot_k: Tensor,
    slot_v: Tensor,
    rows: BlockRows,
    tokens: int,
    *,
    page: int = 16,
    of: tuple[int, int] | None = None,
) -> Tensor:
    """`paged_block_attention` in torch operations, of all sequences or of those `of` from, to; q are theirs."""
    index = rows.rows.long() if of is None else rows.rows[slice(*of)].long()
    ends = rows.lengths[index].long() + tokens
    pages, equal = rows.pages[index], False
    if not q.is_cuda:
        # Values can be read on the host here, so unneeded pages are left out, and so is the mask if lengths are equal.
        longest = int(ends.max())
        equal, pages = bool((ends == longest).all()), pages[:, : -(-longest // page)]
    k, v = _kept(slot_k, pages, page), _kept(slot_v, pages, page)
    mask = None
    if equal:
        k, v = k[:, :, : int(ends[0])], v[:, :, : int(ends[0])]
    else:
        inside = torch.arange(k.shape[2], device=q.device) < ends[:, None]
        mask = inside[:, None, None]
        # Slots past the end hold leftovers, possibly NaN; their weight is 0.
        v = v.masked_fill(~inside[:, None, :, None], 0)
        k = k.masked_fill(~inside[:, None, :, None], 0)
    out = F.scaled_dot_product_attention(
        q.view(-1, tokens, *q.shape[1:]).transpose(1, 2),
        k.to(q.dtype),
        v.to(q.dtype),
        attn_mask=mask,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2).flatten(0, 1)


def _kept(slots: Tensor, pages_BP: Tensor, page: int) -> Tensor:
    """`[B, G, P * page, D]`, copied page by page."""
    whole = slots.view(-1, page, *slots.shape[1:])
    return whole.index_select(0, pages_BP.flatten()).view(pages_BP.shape[0], -1, *slots.shape[1:]).transpose(1, 2)


def placeable(qkv: Tensor, slot_k: Tensor) -> bool:
    """True if the kernel can place tensors of these shapes."""
    width = slot_k.shape[2]
    return width & (width - 1) == 0 and width <= 256 and qkv.stride(1) == 1 and slot_k.stride()[1:] == (width, 1)


def alike(cos: Tensor, sin: Tensor, slot_k: Tensor, slot_v: Tensor) -> bool:
    """True if sines are laid out like cosines and values like keys, as the kernels require."""
    same = cos.stride() == sin.stride() and slot_k.stride() == slot_v.stride()
    return same and cos.stride(2) == 1 and cos.dtype == sin.dtype == torch.float32


def attendable(q: Tensor, slot_k: Tensor, slot_v: Tensor, rows: BlockRows, page: int) -> bool:
    """True if the kernel supports these shapes."""
    groups, width = slot_k.shape[1:]
    return (
        q.dtype in (torch.bfloat16, torch.float16)
        and slot_k.dtype == q.dtype
        and width in WIDTHS
        and page == 16
        and q.shape[1] % groups == 0
        and slot_k.stride() == slot_v.stride()
        and slot_k.stride()[1:] == (width, 1)
        and rows.rows.shape[0] * q.shape[1] <= _GRID
    )
