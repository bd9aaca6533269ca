"""`walkgraph.layers.paged_blocks` on a GPU: how the work is cut, and the launches.

The kernels are in `walkgraph.layers.kernels.paged_block_kernels`; shape letters as in `walkgraph.layers.paged_blocks`.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.overlap import can_overlap
from walkgraph.layers.kernels.paged_block_kernels import REST, attend_kernel, place_kernel

if TYPE_CHECKING:
    from walkgraph.layers.paged_blocks import Rows

_COUNTERS = 1 << 16
TAIL = 16
"""Queries past the last whole tile that are a small tile, at most."""

_counters: dict[torch.device, Tensor] = {}
"""int32, zero between launches. A device's launches are of one stream, one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How the attention of a batch is cut; chosen from shapes alone, so a captured launch serves every length."""

    m: int
    """Queries of a tile."""
    block: int = 64
    """Keys of a block."""
    splits: int = 1
    """Programs that share the keys of a tile, at most."""
    least: int = 256
    """Keys of a share at least: shorter sequences have fewer."""
    warps: int = 4
    stages: int = 3
    within: bool = False
    """A small tile past the last whole one is served by that one's programs."""
    pdl: bool = True


ALIKE = Cut(m=64, splits=8)
"""Of every batch under `batch_invariant`: the order of a sequence's sums follows from its length alone."""


CUTS: dict[int, Cut] = {
    64: Cut(m=64, splits=4),
    512: Cut(m=128, splits=2, least=512, warps=8),
    8192: Cut(m=128, warps=8),
}
"""By sequences times query heads, at most."""


def choose(batch: int, heads: int, context: int) -> Cut:
    """`context`: tokens that a row's pages can hold."""
    if is_batch_invariant():
        return ALIKE
    pairs = batch * heads
    cut = CUTS[min((n for n in CUTS if n >= pairs), default=max(CUTS))]
    return replace(cut, splits=max(1, min(cut.splits, context // cut.least)))


def place(
    qkv: Tensor, cos: Tensor, sin: Tensor, slot_k: Tensor, slot_v: Tensor, rows: "Rows", tokens: int, page: int
) -> Tensor:
    """`layers.paged_blocks.place_block`. Raises ValueError for tables that don't lie as the kernel reads them."""
    groups, width = slot_k.shape[1:]
    heads = qkv.shape[1] // width - 2 * groups
    if slot_k.stride() != slot_v.stride() or cos.stride() != sin.stride() or cos.stride(2) != 1:
        raise ValueError("keys and values of a slot must lie alike, and so must sines and cosines, side by side")
    q = torch.empty((qkv.shape[0], heads, width), dtype=qkv.dtype, device=qkv.device)
    kernel: Any = place_kernel
    overlap = can_overlap(qkv.device)
    kernel[(qkv.shape[0],)](
        qkv, cos, sin, q, slot_k, slot_v, rows.rows, rows.pages, rows.lengths, tokens, qkv.stride(0), cos.stride(0),
        cos.stride(1), slot_k.stride(0), rows.pages.shape[1], H=heads, G=groups, D=width, HEADS=_power(heads),
        GROUPS=_power(groups), PAGE=page, PDL=overlap, num_warps=4, launch_pdl=overlap,
    )  # fmt: skip
    return q


def attend(
    q: Tensor, slot_k: Tensor, slot_v: Tensor, rows: "Rows", tokens: int, page: int, cut: Cut | None = None
) -> Tensor:
    """`layers.paged_blocks.paged_block_attention`, cut by `cut`, or as `choose` does."""
    (count, heads, width), groups, reach = q.shape, slot_k.shape[1], rows.pages.shape[1]
    batch = count // tokens
    cut = cut or choose(batch, heads, reach * page)
    out = torch.empty((count, heads, width), dtype=q.dtype, device=q.device)
    parts, weights = out, out
    if cut.splits > 1:
        parts = torch.empty((batch * heads, cut.splits, tokens, width), dtype=torch.float32, device=q.device)
        weights = torch.empty((batch * heads, cut.splits, tokens), dtype=torch.float32, device=q.device)
    tail = tail_of(cut, tokens)
    whole = tokens // cut.m if tail else -(-tokens // cut.m)
    tiles = whole + (tail > 0 and not cut.within)
    kernel: Any = attend_kernel
    kernel[(tiles, cut.splits, batch * heads)](
        q.contiguous(), slot_k, slot_v, rows.rows, rows.pages, rows.lengths, out, parts, weights,
        _zeros(q.device, batch * heads * tiles if cut.splits > 1 else 0), tokens, whole, cut.splits,
        max(cut.least, cut.block), slot_k.stride(0),
        reach, **constants(cut, tokens, heads, groups, width, page, can_overlap(q.device)),
    )  # fmt: skip
    return out


def tail_of(cut: Cut, tokens: int) -> int:
    """Queries of the small tile; 0 where there is none."""
    return TAIL if tokens > cut.m and 0 < tokens % cut.m <= TAIL else 0


def constants(cut: Cut, tokens: int, heads: int, groups: int, width: int, page: int, overlap: bool) -> dict[str, Any]:
    """The compile-time arguments of `attend_kernel` and its options."""
    overlap = overlap and cut.pdl
    return {
        "H": heads, "G": groups, "D": width, "PAGE": page, "M": cut.m, "BLOCK": cut.block, "REST": REST,
        "TAIL": tail_of(cut, tokens), "WITHIN": cut.within, "STAGES": cut.stages,
        "AT_ONCE": 4 if cut.m <= 16 * cut.warps else 2, "PDL": overlap, "num_warps": cut.warps,
        "num_stages": cut.stages, "launch_pdl": overlap,
    }  # fmt: skip


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def _zeros(device: torch.device, wanted: int) -> Tensor:
    """Counters that outlive every captured launch; made before the first capture."""
    if wanted > _COUNTERS:
        raise ValueError(f"keys are shared for at most {_COUNTERS} tiles, and {wanted} were asked for")
    if device not in _counters:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("call paged_block_attention once on this device before it is captured")
        _counters[device] = torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
    return _counters[device]
