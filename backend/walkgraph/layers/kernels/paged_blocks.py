"""`walkgraph.layers.attention.paged_blocks` on a GPU: the division of the work, and the launches.

The kernels are in `walkgraph.layers.kernels.paged_block_kernels` and `paged_many_kernels`; shape letters as in
`walkgraph.layers.attention.paged_blocks`.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels import block_attention
from walkgraph.layers.kernels.gpu import can_overlap, is_compiled
from walkgraph.layers.kernels.paged_block_kernels import REST, attend_kernel, place_kernel
from walkgraph.layers.kernels.paged_many_kernels import attend_many_kernel
from walkgraph.layers.kernels.workspaces import Workspaces

if TYPE_CHECKING:
    from walkgraph.layers.attention.paged_rows import BlockRows

_COUNTERS = 1 << 16
TAIL = 16
"""The most queries past the last whole tile that form a small tile."""
JOINED_TAIL = 8
"""The most queries past the last whole tile that join it: 16 would take registers from all its threads."""

_MANY = 4096
"""From this many tokens on, a program places several."""

counters = Workspaces(lambda device: torch.zeros(_COUNTERS, dtype=torch.int32, device=device), "attend blocks")
"""int32, zero between launches; per device and stream."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How the attention of a batch is split up; decided from shapes alone, so a captured launch serves every length."""

    m: int
    """Queries of a tile."""
    block: int = 64
    """Keys of a block."""
    splits: int = 1
    """The most programs that share the keys of a tile."""
    least: int = 256
    """The least keys of a share: shorter sequences have fewer shares."""
    warps: int = 4
    stages: int = 3
    joined: bool = False
    """Queries past the last whole tile join it, on the keys that it reads, and a program attends all keys: for batches
    that fill a GPU many times over."""
    registers: int | None = None
    """The most registers per thread for heads of 64 numbers; None: the compiler decides."""
    pdl: bool = True


ALIKE = Cut(m=64, splits=8)
"""The cut of every batch under `batch_invariant`: the order of a sequence's sums depends only on its length."""


CUTS: dict[int, Cut] = {
    64: Cut(m=64, splits=4, stages=4),
    512: Cut(m=64, splits=2, least=512),
    8192: Cut(m=64, joined=True, registers=128),
}
"""Largest number of sequences times query heads -> the fastest cut on an H200, for blocks of 258 and contexts of up to
7740."""


def choose(batch: int, heads: int, context: int) -> Cut:
    """`context`: the most tokens that a row's pages hold."""
    if is_batch_invariant():
        return ALIKE
    pairs = batch * heads
    cut = CUTS[min((n for n in CUTS if n >= pairs), default=max(CUTS))]
    return replace(cut, splits=max(1, min(cut.splits, context // cut.least)))


def place(
    qkv: Tensor, cos: Tensor, sin: Tensor, slot_k: Tensor, slot_v: Tensor, rows: "BlockRows", tokens: int, page: int
) -> Tensor:
    """`layers.attention.paged_blocks.place_block`, for tensors that are `placeable` and `alike`."""
    groups, width = slot_k.shape[1:]
    heads = qkv.shape[1] // width - 2 * groups
    q = torch.empty((qkv.shape[0], heads, width), dtype=qkv.dtype, device=qkv.device)
    kernel: Any = place_kernel
    overlap = can_overlap()
    each = 1 if qkv.shape[0] < _MANY else 2
    kernel[(-(-qkv.shape[0] // each),)](
        qkv, cos, sin, q, slot_k, slot_v, rows.rows, rows.pages, rows.lengths, qkv.shape[0], tokens, qkv.stride(0),
        cos.stride(0), cos.stride(1), slot_k.stride(0), rows.pages.shape[1], H=heads, G=groups, D=width,
        HEADS=_power(max(heads, groups)), EACH=each, PAGE=page, PDL=overlap, num_warps=4, launch_pdl=overlap,
    )  # fmt: skip
    return q


def attend(
    q: Tensor, slot_k: Tensor, slot_v: Tensor, rows: "BlockRows", tokens: int, page: int, cut: Cut | None = None
) -> Tensor:
    """`layers.attention.paged_blocks.paged_block_attention`, split by `cut`, or as is fastest if None."""
    (count, heads, width), groups, reach = q.shape, slot_k.shape[1], rows.pages.shape[1]
    batch = count // tokens
    if cut is None and not is_batch_invariant():
        q = q.contiguous()
        if (hopper := block_attention.cut_for(q, slot_k, slot_v, rows, tokens, page)) is not None:
            return block_attention.launch(q, slot_k, slot_v, rows, tokens, hopper)
    cut = cut or choose(batch, heads, reach * page)
    out = torch.empty((count, heads, width), dtype=q.dtype, device=q.device)
    if cut.joined:
        kernel: Any = attend_many_kernel
        whole = tokens // cut.m if tail_of(cut, tokens) else -(-tokens // cut.m)
        kernel[(whole, batch * heads)](
            q.contiguous(), slot_k, slot_v, rows.rows, rows.pages, rows.lengths, out, tokens, reach,
            SLOT=slot_k.stride(0), **constants(cut, tokens, heads, groups, width, page),
        )  # fmt: skip
        return out
    parts, weights = out, out
    if cut.splits > 1:
        parts = torch.empty((batch * heads, cut.splits, tokens, width), dtype=torch.float32, device=q.device)
        weights = torch.empty((batch * heads, cut.splits, tokens), dtype=torch.float32, device=q.device)
    tail = tail_of(cut, tokens)
    whole = tokens // cut.m if tail else -(-tokens // cut.m)
    tiles = whole + (tail > 0)
    if cut.splits > 1 and batch * heads * tiles > _COUNTERS:
        raise ValueError(f"keys can be split for at most {_COUNTERS} tiles, not {batch * heads * tiles}")
    kernel = attend_kernel
    kernel[(tiles, cut.splits, batch * heads)](
        q.contiguous(), slot_k, slot_v, rows.rows, rows.pages, rows.lengths, out, parts, weights,
        counters(q.device), tokens, whole, cut.splits,
        max(cut.least, cut.block), slot_k.stride(0),
        reach, **constants(cut, tokens, heads, groups, width, page),
    )  # fmt: skip
    return out


def tail_of(cut: Cut, tokens: int) -> int:
    """Queries of the small tile, or of those that join the last one; 0 if there are none."""
    tail = JOINED_TAIL if cut.joined else TAIL
    return tail if tokens > cut.m and 0 < tokens % cut.m <= tail else 0


def constants(cut: Cut, tokens: int, heads: int, groups: int, width: int, page: int) -> dict[str, Any]:
    """The compile-time arguments of the attention's kernel and its options."""
    overlap = cut.pdl and can_overlap()
    given = {
        "H": heads, "G": groups, "D": width, "PAGE": page, "M": cut.m, "BLOCK": cut.block, "REST": REST,
        "TAIL": tail_of(cut, tokens), "STAGES": cut.stages, "PDL": overlap, "ON_GPU": is_compiled(),
        "num_warps": cut.warps, "num_stages": cut.stages, "launch_pdl": overlap,
    }  # fmt: skip
    if cut.registers is not None and width <= 64:
        given["maxnreg"] = cut.registers
    return given if cut.joined else given | {"AT_ONCE": 4 if cut.m <= 16 * cut.warps else 2}


def _power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()
