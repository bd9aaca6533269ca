"""`walkgraph.layers.attention.few_attention` on a GPU: a tile's keys are divided among programs, whose parts are then
summed.

A program serves one tile, one key head with all its query heads, and a span of the tile's keys that depends on its
length on the device. A row that attends no key in a split has the weight `_NOTHING` there. Where one program has all
keys of a tile, its part is the result.

Shape letters as in `walkgraph.layers.attention.few_attention`; M: rows of a tile times query heads of a key head,
padded.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from walkgraph.layers.attention.tiles import Tiles
from walkgraph.layers.kernels.gpu import is_compiled

BLOCK, STAGES = 64, 3
_LINES = 16
"""Rows of a tile times query heads of a key head for each warp."""
_PROGRAMS = 128
"""Programs of a launch with full tiles: as many as a GPU runs at once."""
_MOST_SPLITS = 16
"""The most splits; programs of unused tiles also cost time."""
_NOTHING = tl.constexpr(-1e30)


@triton.jit
def _slots(pages, token, stop, PAGE: tl.constexpr):
    """Slots of a sequence's tokens in the pool; page 0 for tokens from `stop` on."""
    return tl.load(pages + token // PAGE, mask=token < stop, other=0) * PAGE + token % PAGE


@triton.jit
def _attend(q, here_k, here_v, slots, token, stop, last, best, total, heard, scale, ALL: tl.constexpr):
    """Add one block to the running maximum [M], sum [M] and unscaled result [M, D]; base 2. `last` [M]: the newest
    token that a row attends. ALL: every row attends every token of the block."""
    slots = slots[:, None]
    if ALL:
        k, v = tl.load(here_k + slots), tl.load(here_v + slots)
    else:
        there = (token < stop)[:, None]
        k = tl.load(here_k + slots, mask=there, other=0.0)
        v = tl.load(here_v + slots, mask=there, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if not ALL:
        seen = (token[None, :] <= last[:, None]) & (token < stop)[None, :]
        scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    weight, keep = tl.exp2(scores - higher[:, None]), tl.exp2(best - higher)
    heard = tl.dot(weight.to(v.dtype), v, heard * keep[:, None], input_precision="ieee")
    return higher, total * keep + tl.sum(weight, 1), heard


@triton.jit(do_not_specialize=["splits"])
def parts_kernel(
    q, slot_k, slot_v, lines, pages, parts, weights, slot_stride, splits,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, TILE_ROWS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, ON_GPU: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """parts `[R, splits, H, D]`, float32 or, if WHOLE, of q's type; weights float32 `[R, splits, H]`, not written if
    WHOLE, as then there is one split. HEADS: a power of two >= GROUP."""
    # A sequence's last tile has the most keys: it begins first.
    g, split, line = tl.program_id(0), tl.program_id(1), lines + (tl.num_programs(2) - 1 - tl.program_id(2)) * 4
    first, rows, before = tl.load(line), tl.load(line + 1), tl.load(line + 2)
    if rows == 0:
        return
    pages += tl.load(line + 3)
    span = tl.cdiv(tl.cdiv(before + rows, BLOCK), splits) * BLOCK
    begin = split * span
    stop = tl.minimum(begin + span, before + rows)
    m, d, at = tl.arange(0, TILE_ROWS * HEADS), tl.arange(0, D), tl.arange(0, BLOCK)
    row, head = first + m // HEADS, g * GROUP + m % HEADS
    mine = (m // HEADS < rows) & (m % HEADS < GROUP)
    H: tl.constexpr = GROUPS * GROUP
    here = q + ((row * H + head) * D)[:, None] + d[None, :]
    query = tl.load(here, mask=mine[:, None], other=0.0)
    here_k, here_v = slot_k + g * D + d[None, :], slot_v + g * D + d[None, :]
    last, scale = before + m // HEADS, 1.4426950408889634 / (D**0.5)
    best, total = tl.full([TILE_ROWS * HEADS], _NOTHING, tl.float32), tl.zeros([TILE_ROWS * HEADS], tl.float32)
    heard = tl.zeros([TILE_ROWS * HEADS, D], tl.float32)
    slots = _slots(pages, begin + at, stop, PAGE) * slot_stride
    if ON_GPU:
        # Slots are read one iteration ahead: read in the same one, they would use up some of the pipeline stages.
        full = tl.minimum((before + 1) // BLOCK * BLOCK, stop)
        for start in tl.range(begin, full, BLOCK):
            best, total, heard = _attend(
                query, here_k, here_v, slots, start + at, stop, last, best, total, heard, scale, True
            )
            slots = _slots(pages, start + BLOCK + at, stop, PAGE) * slot_stride
        for start in tl.range(tl.maximum(begin, full), stop, BLOCK):
            best, total, heard = _attend(
                query, here_k, here_v, slots, start + at, stop, last, best, total, heard, scale, False
            )
            slots = _slots(pages, start + BLOCK + at, stop, PAGE) * slot_stride
    else:
        # The interpreter's `range` takes no computed bounds; a `while` isn't pipelined on the GPU.
        while begin < stop:
            slots = _slots(pages, begin + at, stop, PAGE) * slot_stride
            best, total, heard = _attend(
                query, here_k, here_v, slots, begin + at, stop, last, best, total, heard, scale, False
            )
            begin += BLOCK
    some = total > 0
    total = tl.where(some, total, 1.0)
    part = (row * splits + split) * H + head
    if not WHOLE:
        tl.store(weights + part, tl.where(some, best + tl.log2(total), _NOTHING), mask=mine)
    heard = (heard / total[:, None]).to(parts.dtype.element_ty)
    tl.store(parts + (part * D)[:, None] + d[None, :], heard, mask=(mine & some)[:, None])


@triton.jit(do_not_specialize=["splits"])
def sum_kernel(parts, weights, rows, out, splits, H: tl.constexpr, D: tl.constexpr, MOST: tl.constexpr):
    """One program per row and head. MOST: a power of two >= splits. Nothing left by padding is read."""
    row, head = tl.program_id(0), tl.program_id(1)
    s, d, there = tl.arange(0, MOST), tl.arange(0, D), row < tl.load(rows)
    at = (row * splits + s) * H + head
    weight = tl.load(weights + at, mask=there & (s < splits), other=_NOTHING)
    some = weight > 0.5 * _NOTHING
    weight = tl.where(some, tl.exp2(weight - tl.max(weight, 0)), 0.0)
    value = tl.load(parts + at[:, None] * D + d[None, :], mask=some[:, None], other=0.0)
    total = tl.sum(weight, 0)
    heard = tl.sum(value * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + (row * H + head) * D + d, heard.to(out.dtype.element_ty))


def splits_of(rows: int, groups: int, height: int) -> int:
    """Number of programs per tile and key head."""
    return max(1, min(_MOST_SPLITS, _PROGRAMS // (groups * -(-rows // height))))


def launch(q: Tensor, slot_k: Tensor, slot_v: Tensor, tiles: Tiles, page: int) -> Tensor:
    """q `[R, H, D]`, slot_k and slot_v `[S, G, D]` -> `[R, H, D]`. Raises ValueError for other memory layouts."""
    (rows, heads, width), groups = q.shape, slot_k.shape[1]
    if not q.is_contiguous() or slot_k.stride() != slot_v.stride() or slot_k.stride()[1:] != (width, 1):
        raise ValueError("queries must be contiguous, and so must keys and values of a slot, with equal strides")
    splits = splits_of(rows, groups, tiles.height)
    whole = splits == 1
    # Padding has no program, and gets zeros.
    out = torch.zeros_like(q) if whole else torch.empty_like(q)
    parts = out if whole else torch.empty((rows, splits, heads, width), dtype=torch.float32, device=q.device)
    weights = out if whole else torch.empty((rows, splits, heads), dtype=torch.float32, device=q.device)
    given = constants(groups, heads // groups, width, page, tiles.height)
    parts_kernel[(groups, splits, tiles.lines.shape[0])](
        q, slot_k, slot_v, tiles.lines, tiles.pages, parts, weights, slot_k.stride(0), splits,
        **given, WHOLE=whole, num_warps=max(4, tiles.height * given["HEADS"] // _LINES), num_stages=STAGES,
    )  # fmt: skip
    if whole:
        return out
    sum_kernel[(rows, heads)](parts, weights, tiles.rows, out, splits, H=heads, D=width, MOST=_MOST_SPLITS, num_warps=2)
    return out


def constants(groups: int, group: int, width: int, page: int, height: int) -> dict[str, Any]:
    """The compile-time arguments of `parts_kernel` but for WHOLE."""
    return {
        "GROUPS": groups, "GROUP": group, "HEADS": triton.next_power_of_2(group), "TILE_ROWS": height, "D": width,
        "PAGE": page, "BLOCK": BLOCK, "ON_GPU": is_compiled(),
    }  # fmt: skip
