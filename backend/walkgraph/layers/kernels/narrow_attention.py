"""Attention of narrow blocks, a few tokens each, over spans of dense keys: every row of a block attends its whole span.

All query heads of a key head read its keys together: token after token, they are the rows of one matrix, cut into
tiles. A program serves a tile and a share of the span, which depends on the span's bounds on the device, so that a
captured launch serves any lengths. The results of a tile's programs are added in the order of their shares, whichever
program comes last, so equal inputs give equal bits.

`joined`: the programs of a tile wait for each other and each add up some of its rows, so they must all run at once:
there are no more programs than processors, and no two streams of one device launch them at the same time. Otherwise a
second launch adds up.

Shape letters: B rows of a batch, n tokens of a block, H query heads, G key/value heads, D head dim, S slots.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.gpu import Gpu, can_overlap, is_compiled, present
from walkgraph.layers.kernels.workspaces import Workspaces

WIDTHS = (64, 128, 256)
"""Supported head widths."""
_SPLITS, _STAGES = 16, 2
_COUNTERS = 512
"""The most tiles of a joined launch, for every number of splits."""
_SPARE = 8 << 10
"""Bytes of shared memory for what the compiler exchanges among warps."""
_NOTHING = tl.constexpr(-1e30)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the work is split; `tuning` decides from shapes alone, so a captured launch serves every length."""

    rows: int = 64
    """Rows of a tile: the least that fill Hopper's products."""
    block: int = 64
    """Keys read at once."""
    splits: int = 16
    """Programs per tile, a power of two."""
    warps: int = 4
    joined: bool = False
    overlap: int = 1
    """0: starts after the previous launch's end; 1: lets the next one start once its own wait is over; 2: lets it start
    at once."""


CUTS: dict[int, Tuning] = {
    7: Tuning(warps=8, joined=True, overlap=2),
    14: Tuning(splits=8, joined=True, overlap=0),
    28: Tuning(rows=128, splits=8, warps=8, joined=True),
    56: Tuning(rows=128, splits=4, warps=8, joined=True, overlap=0),
    1 << 30: Tuning(rows=128, splits=1, warps=8),
}
"""Largest number of tiles of 64 rows -> the fastest tuning in whole steps on an H200, of 1, 2, 4 and 8 blocks of 50
tokens after 968, with 8 query heads of 256 numbers per key head. More tiles than these fill a device without splits."""
ALIKE = Tuning(splits=4)
"""The tuning of every batch under `batch_invariant`."""


@triton.jit
def _attend(q, here_k, here_v, offset, left, best, total, heard, scale, BLOCK: tl.constexpr):
    """Add one block, of which `left` keys are valid, to the running maximum [M], sum [M] and unscaled result [M, D];
    base 2."""
    at = tl.arange(0, BLOCK)
    there = (at < left)[:, None]
    k = tl.load(here_k + offset, mask=there, other=0.0)
    v = tl.load(here_v + offset, mask=there, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where((at < left)[None, :], scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    weight, keep = tl.exp2(scores - higher[:, None]), tl.exp2(best - higher)
    heard = tl.dot(weight.to(v.dtype), v, heard * keep[:, None], input_precision="ieee")
    return higher, total * keep + tl.sum(weight, 1), heard


@triton.jit
def _ahead(address, BYTES: tl.constexpr, BLOCK: tl.constexpr):
    """Prefetch rows of keys into L2."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [address, tl.full([BLOCK], BYTES, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _joined(counter, SPLITS: tl.constexpr):
    """Wait until all programs of the tile have arrived here. The counter runs on through launches, and may wrap."""
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    wanted = (before & -SPLITS) + SPLITS
    now = before + 1
    while now - wanted < 0:
        now = tl.atomic_add(counter, 0, sem="acq_rel", scope="gpu")
    tl.debug_barrier()


@triton.jit
def _add_up(
    out, parts, weights, tile, piece, pair, tokens,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Add up some rows of a tile in the order of the parts. parts `[tiles, SPLITS, ROWS, D]`, weights `[tiles, SPLITS,
    ROWS]`. The first split always holds something unless there are no keys at all."""
    SHARE: tl.constexpr = ROWS // SPLITS
    r, d = piece * SHARE + tl.arange(0, SHARE), tl.arange(0, D)
    base = (pair * tl.num_programs(0) + tile) * SPLITS * ROWS
    best = tl.full([SHARE], _NOTHING, tl.float32)
    for split in tl.static_range(SPLITS):
        best = tl.maximum(best, tl.load(weights + base + split * ROWS + r, cache_modifier=".cg"))
    total, heard = tl.zeros([SHARE], tl.float32), tl.zeros([SHARE, D], tl.float32)
    for split in tl.static_range(SPLITS):
        at = base + split * ROWS + r
        weight = tl.load(weights + at, cache_modifier=".cg")
        some = weight > 0.5 * _NOTHING
        weight = tl.where(some, tl.exp2(weight - best), 0.0)
        part = parts + (at.to(tl.int64) * D)[:, None] + d[None, :]
        value = tl.load(part, mask=some[:, None], other=0.0, cache_modifier=".cg").to(tl.float32)
        heard += value * weight[:, None]
        total += weight
    m = tile * ROWS + r
    head = _heads(m, pair, tokens, GROUPS, GROUP)
    heard = heard / tl.where(total > 0, total, 1.0)[:, None]
    here = out + head[:, None] * D + d[None, :]
    tl.store(here, heard.to(out.dtype.element_ty), mask=(m < tokens * GROUP)[:, None])


@triton.jit
def _heads(m, pair, tokens, GROUPS: tl.constexpr, GROUP: tl.constexpr):
    """int64: indices among all heads of the heads that are rows `m` of a block and key head."""
    token = (pair // GROUPS * tokens + m // GROUP).to(tl.int64)
    return token * (GROUPS * GROUP) + pair % GROUPS * GROUP + m % GROUP


@triton.jit
def _begin(slot_k, slot_v, base, first, last, slot_stride, D: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """Prefetch a program's first keys, and wait for the previous launch."""
    if OVERLAP:
        at = tl.arange(0, BLOCK)
        near = base + tl.where(first + at < last, first + at, 0) * slot_stride
        _ahead(slot_k + near, D * 2, BLOCK)
        _ahead(slot_v + near, D * 2, BLOCK)
        gdc_wait()
    if OVERLAP == 1:
        gdc_launch_dependents()


@triton.jit
def _leave(parts, weights, index, some, best, total, heard, D: tl.constexpr, ROWS: tl.constexpr):
    """Store a program's part; rows that don't exist, or attended nothing, have the weight `_NOTHING`."""
    row = index * ROWS + tl.arange(0, ROWS)
    tl.store(weights + row, tl.where(some, best + tl.log2(tl.where(some, total, 1.0)), _NOTHING))
    part = parts + (row.to(tl.int64) * D)[:, None] + tl.arange(0, D)[None, :]
    tl.store(part, heard.to(parts.dtype.element_ty), mask=some[:, None])


@triton.jit(do_not_specialize=["tokens"])
def parts_kernel(
    q, slot_k, slot_v, bounds, out, parts, weights, counters, tokens, slot_stride,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    SPLITS: tl.constexpr, STAGES: tl.constexpr, JOINED: tl.constexpr, OVERLAP: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """Axes: tiles of a block, splits, pairs of row and key head."""
    tile, split, pair = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if OVERLAP == 2:
        gdc_launch_dependents()
    # Bounds change between replays of a graph, never within one.
    begin, stop = tl.load(bounds + pair // GROUPS * 2), tl.load(bounds + pair // GROUPS * 2 + 1)
    span = tl.cdiv(tl.cdiv(stop - begin, BLOCK), SPLITS) * BLOCK
    first, last = split * span, tl.minimum(split * span + span, stop - begin)
    d, at, m = tl.arange(0, D), tl.arange(0, BLOCK), tile * ROWS + tl.arange(0, ROWS)
    base = begin.to(tl.int64) * slot_stride + pair % GROUPS * D
    here_k, here_v = slot_k + base + d[None, :], slot_v + base + d[None, :]
    _begin(slot_k, slot_v, base, first, last, slot_stride, D, BLOCK, OVERLAP)
    mine = m < tokens * GROUP
    head = _heads(m, pair, tokens, GROUPS, GROUP)
    query = tl.load(q + head[:, None] * D + d[None, :], mask=mine[:, None], other=0.0)
    scale = 1.4426950408889634 / (D**0.5)
    best, total = tl.full([ROWS], _NOTHING, tl.float32), tl.zeros([ROWS], tl.float32)
    heard = tl.zeros([ROWS, D], tl.float32)
    if ON_GPU:
        for start in tl.range(first, last, BLOCK, num_stages=STAGES):
            offset = (start + at)[:, None] * slot_stride
            best, total, heard = _attend(query, here_k, here_v, offset, last - start, best, total, heard, scale, BLOCK)
    else:
        # The interpreter's `range` takes no computed bounds.
        while first < last:
            offset = (first + at)[:, None] * slot_stride
            best, total, heard = _attend(query, here_k, here_v, offset, last - first, best, total, heard, scale, BLOCK)
            first += BLOCK
    some = mine & (total > 0)
    heard = heard / tl.where(some, total, 1.0)[:, None]
    if SPLITS == 1:
        tl.store(out + head[:, None] * D + d[None, :], heard.to(out.dtype.element_ty), mask=mine[:, None])
    else:
        _leave(parts, weights, (pair * tl.num_programs(0) + tile) * SPLITS + split, some, best, total, heard, D, ROWS)
        if JOINED:
            _joined(counters + pair * tl.num_programs(0) + tile, SPLITS)
            _add_up(out, parts, weights, tile, split, pair, tokens, GROUPS, GROUP, D, ROWS, SPLITS)


@triton.jit(do_not_specialize=["tokens"])
def sums_kernel(
    out, parts, weights, tokens,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, SPLITS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """Axes as in `parts_kernel`."""
    if OVERLAP == 2:
        gdc_launch_dependents()
    if OVERLAP:
        gdc_wait()
    if OVERLAP == 1:
        gdc_launch_dependents()
    tile, piece, pair = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    _add_up(out, parts, weights, tile, piece, pair, tokens, GROUPS, GROUP, D, ROWS, SPLITS)


def unfit(dtype: torch.dtype, width: int, device: torch.device) -> str | None:
    """The reason that heads of `width` numbers can't be attended here; None if they can."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 8:
        return "the kernel needs compute capability 8 or above"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"the kernel has no form for caches in {dtype}"
    return None if width in WIDTHS else f"the kernel has no form for heads of {width} numbers"


def tiles_of(tokens: int, group: int, tuned: Tuning) -> int:
    """Tiles of one block and key head."""
    return -(-tokens * group // tuned.rows)


def _shared_bytes(tuned: Tuning, width: int) -> int:
    """Shared memory of a program: a tile's queries, a block of keys and one of values."""
    return 2 * width * (tuned.rows + 2 * tuned.block) + _SPARE


def tuning(pairs: int, tokens: int, group: int, width: int, gpu: Gpu) -> Tuning:
    """`pairs`: rows of the batch times key heads; `group`: query heads per key head; `width`: D."""
    if is_batch_invariant():
        return ALIKE
    count = pairs * tiles_of(tokens, group, Tuning())
    tuned = next(tuned for most, tuned in CUTS.items() if count <= most)
    if _shared_bytes(tuned, width) > gpu.shared:
        tuned = replace(tuned, rows=Tuning.rows)
    while _shared_bytes(tuned, width) > gpu.shared:
        tuned = replace(tuned, block=tuned.block // 2)
    while tuned.joined and pairs * tiles_of(tokens, group, tuned) * tuned.splits > gpu.processors:
        tuned = replace(tuned, splits=tuned.splits // 2, joined=tuned.splits > 2)
    return tuned


_counters: Workspaces[Tensor] = Workspaces(
    lambda device: torch.zeros(_SPLITS.bit_length(), _COUNTERS, dtype=torch.int32, device=device),
    "attend a narrow block",
)
"""Counters of launches with equal splits."""


def narrow_attention(q: Tensor, slot_k: Tensor, slot_v: Tensor, bounds: Tensor, tuned: Tuning | None = None) -> Tensor:
    """q `[B * n, H, D]`; slot_k and slot_v `[S, G, D]`; bounds int32 `[B, 2]`: start and stop of a row's keys among the
    slots -> `[B * n, H, D]`. Scale D^-0.5. Raises ValueError for other memory layouts, RuntimeError if captured before
    its first plain call."""
    (rows, heads, width), groups, batch = q.shape, slot_k.shape[1], bounds.shape[0]
    if not (q.is_contiguous() and bounds.is_contiguous()):
        raise ValueError("queries and bounds must be contiguous")
    if slot_k.stride() != slot_v.stride() or slot_k.stride()[1:] != (width, 1):
        raise ValueError("keys and values of a slot must be contiguous, with equal strides")
    tokens, group, pairs = rows // batch, heads // groups, batch * groups
    gpu = present()
    tuned = tuned or tuning(pairs, tokens, group, width, gpu)
    tiles = tiles_of(tokens, group, tuned)
    if tuned.joined and pairs * tiles * tuned.splits > min(gpu.processors, _COUNTERS):
        raise ValueError(
            f"{pairs * tiles * tuned.splits} programs can't wait for each other on {gpu.processors} processors"
        )
    out, grid = torch.empty_like(q), (tiles, tuned.splits, pairs)
    parts, weights = _space(q, pairs * tiles, tuned)
    given = constants(tuned, groups, group, width)
    parts_kernel[grid](
        q,
        slot_k,
        slot_v,
        bounds,
        out,
        parts,
        weights,
        _counters(q.device)[tuned.splits.bit_length() - 1],
        tokens,
        slot_k.stride(0),
        **given,
    )
    if tuned.splits > 1 and not tuned.joined:
        names = ("GROUPS", "GROUP", "D", "ROWS", "SPLITS", "OVERLAP", "launch_pdl")
        sums_kernel[grid](out, parts, weights, tokens, **{name: given[name] for name in names}, num_warps=4)
    return out


def _space(q: Tensor, tiles: int, tuned: Tuning) -> tuple[Tensor, Tensor]:
    """Memory for the programs' rounded parts; empty if a tile has one program."""
    size = (tiles, tuned.splits, tuned.rows) if tuned.splits > 1 else (0, 0, 0)
    parts = torch.empty(*size, q.shape[2], dtype=q.dtype, device=q.device)
    return parts, torch.empty(size, dtype=torch.float32, device=q.device)


def constants(tuned: Tuning, groups: int, group: int, width: int) -> dict[str, Any]:
    """The compile-time arguments of `parts_kernel`, and its options."""
    overlap = tuned.overlap if can_overlap() else 0
    return {
        "GROUPS": groups, "GROUP": group, "D": width, "ROWS": tuned.rows, "BLOCK": tuned.block,
        "SPLITS": tuned.splits, "STAGES": _STAGES, "JOINED": tuned.joined, "OVERLAP": overlap,
        "ON_GPU": is_compiled(), "num_warps": tuned.warps, "num_stages": _STAGES, "launch_pdl": overlap > 0,
    }  # fmt: skip
