"""One kernel for one new token per sequence: rotation, append, attention over split contexts, and their combination.

A program serves one row, one key head with all its query heads, and every `splits`-th block of the row's context. Which
blocks those are does not depend on the row's length, so the page table is read beside the length and not after it;
programs without a block leave. The program that owns the new token's block appends its key and value, and attends them
from registers, so nobody reads a slot that is written in the same launch. The last program of a row and head to arrive
combines the parts in the order of their splits, whoever it is, so equal inputs give equal bits; it also puts the
counter back to zero, for the next launch.

Shape letters as in `walkgraph.layers.step_attention`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.step_attention import Step

_PROCESSORS = 132
_COUNTERS = 1 << 16
_counters: dict[torch.device, Tensor] = {}
"""int32, zero between launches. A device's launches are of one stream, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the work is cut; `tuning` chooses it from shapes alone, so a captured launch serves every length."""

    splits: int
    """Programs of a row and key head."""
    block: int
    """Tokens of a block."""
    warps: int
    stages: int
    early: bool
    """Load the first block into registers before the query is turned: for contexts of about one block a program."""
    overlap: bool
    """Start while the launch before still ends, where the device can (compute capability 9)."""


def tuning(batch: int, groups: int, width: int, context: int) -> Tuning:
    """`context`: tokens that a row's pages can hold."""
    rows = batch * groups
    # Few rows: two programs a processor, each of about one block. Otherwise three, which its shared memory holds; more
    # where the rows alone are more, and then with fewer blocks under way.
    early = rows <= 16
    block = 32 if early or width > 128 else 64
    splits = max(1, (2 if early else 3) * _PROCESSORS // rows)
    return Tuning(
        splits=min(splits, 32, -(-context // block)), block=block, warps=4, stages=5, early=early, overlap=True
    )


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def launch(step: Step, tuned: Tuning | None = None) -> Tensor:
    """`walkgraph.layers.step_attention.step_attention`, cut by `tuned`, or as `tuning` chooses."""
    qkv, slot_k, slot_v, rows, frequencies, heads, q_norm, k_norm, eps, page = step
    batch, (groups, width), reach = qkv.shape[0], slot_k.shape[1:], rows.pages.shape[1]
    tuned = tuned or tuning(batch, groups, width, reach * page)
    group = heads // groups
    padded = _power(group)
    out = torch.empty((batch, heads * width), dtype=qkv.dtype, device=qkv.device)
    parts = torch.empty((batch, groups, tuned.splits, group * width), dtype=torch.float32, device=qkv.device)
    weights = torch.empty((batch, groups, tuned.splits, group), dtype=torch.float32, device=qkv.device)
    overlap = tuned.overlap and qkv.is_cuda and _can_overlap(qkv.device)
    constants: dict[str, Any] = {
        "GROUPS": groups, "GROUP": group, "WIDTH": width, "PAGE": page, "BLOCK": tuned.block,
        "HEADS": padded, "TILE": max(1, 4096 // (padded * width)),
        "NORM": q_norm is not None, "EARLY": tuned.early, "OVERLAP": overlap, "ON_GPU": qkv.is_cuda,
        "num_warps": tuned.warps, "num_stages": tuned.stages, "launch_pdl": overlap,
    }  # fmt: skip
    step_attention_kernel[(groups, tuned.splits, batch)](
        qkv, slot_k, slot_v, rows.rows, rows.pages, rows.lengths, rows.positions, frequencies, q_norm, k_norm,
        out, parts, weights, _zeros(qkv.device, batch * groups), qkv.stride(0), slot_k.stride(0), reach, eps,
        tuned.splits, **constants,
    )  # fmt: skip
    return out


@cache
def _can_overlap(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (9, 0)


def _zeros(device: torch.device, wanted: int) -> Tensor:
    """Counters that outlive every captured launch; made before the first capture."""
    if wanted > _COUNTERS:
        raise ValueError(f"a step serves at most {_COUNTERS} pairs of row and key head, and {wanted} were asked for")
    if device not in _counters:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("call step_attention once on this device before it is captured")
        _counters[device] = torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
    return _counters[device]


@triton.jit(do_not_specialize=["splits"])
def step_attention_kernel(
    qkv, slot_k, slot_v, rows, pages, lengths, positions, frequencies, q_norm, k_norm,
    out, parts, weights, counters, qkv_stride, slot_stride, reach, eps, splits,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    HEADS: tl.constexpr, TILE: tl.constexpr, NORM: tl.constexpr, EARLY: tl.constexpr,
    OVERLAP: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    g, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.load(rows + b)
    length = tl.load(lengths + row)
    if split * BLOCK > length:
        return
    d, m = tl.arange(0, WIDTH), tl.arange(0, 16)
    here_k, here_v = slot_k + g * WIDTH + d[None, :], slot_v + g * WIDTH + d[None, :]
    table = pages + row.to(tl.int64) * reach
    # The first block is under way while the query is turned.
    first = split * BLOCK
    if EARLY:
        k, v = _load(here_k, here_v, table, first, length, slot_stride, PAGE, BLOCK)  # pyright: ignore[reportGeneralTypeIssues]
    new = qkv + b.to(tl.int64) * qkv_stride
    angle = tl.load(positions + row).to(tl.float32) * tl.load(frequencies + d % (WIDTH // 2))
    cos, sin = tl.cos(angle), tl.where(d < WIDTH // 2, -tl.sin(angle), tl.sin(angle))
    heads = new + (g * GROUP + m[:, None]) * WIDTH
    q = _turned(heads, q_norm, d[None, :], (m < GROUP)[:, None], cos[None, :], sin[None, :], eps, WIDTH, NORM)
    scale = 1.4426950408889634 / (WIDTH**0.5)
    best, total = tl.full([16], -1e30, tl.float32), tl.zeros([16], tl.float32)
    heard = tl.zeros([16, WIDTH], tl.float32)
    if EARLY:
        best, total, heard = _attend(q, k, v, best, total, heard, first, length, scale, BLOCK)
        first += splits * BLOCK
    if ON_GPU:
        for start in tl.range(first, length, splits * BLOCK):
            k, v = _load(here_k, here_v, table, start, length, slot_stride, PAGE, BLOCK)
            best, total, heard = _attend(q, k, v, best, total, heard, start, length, scale, BLOCK)
    else:
        # The interpreter's `range` takes no bounds that were computed; a `while` isn't pipelined on the GPU.
        while first < length:
            k, v = _load(here_k, here_v, table, first, length, slot_stride, PAGE, BLOCK)
            best, total, heard = _attend(q, k, v, best, total, heard, first, length, scale, BLOCK)
            first += splits * BLOCK
    if split == (length // BLOCK) % splits:
        slot = tl.load(table + length // PAGE).to(tl.int64) * PAGE + length % PAGE
        past = GROUPS * GROUP * WIDTH + g * WIDTH
        fresh = _turned(new + past, k_norm, d, d < WIDTH, cos, sin, eps, WIDTH, NORM)
        value = tl.load(new + past + GROUPS * WIDTH + d)
        tl.store(slot_k + slot * slot_stride + g * WIDTH + d, fresh)
        tl.store(slot_v + slot * slot_stride + g * WIDTH + d, value)
        score = tl.sum(q.to(tl.float32) * fresh.to(tl.float32)[None, :], 1) * scale
        higher = tl.maximum(best, score)
        keep, weight = tl.exp2(best - higher), tl.exp2(score - higher)
        heard = heard * keep[:, None] + weight[:, None] * value.to(tl.float32)[None, :]
        total = total * keep + weight
        best = higher
    used = tl.minimum(splits, length // BLOCK + 1)
    heard = heard / total[:, None]
    inside, at = (m < GROUP)[:, None], m[:, None] * WIDTH + d[None, :]
    pair = b * GROUPS + g
    if used == 1:
        tl.store(out + pair.to(tl.int64) * (GROUP * WIDTH) + at, heard.to(out.dtype.element_ty), mask=inside)
        return
    part = pair.to(tl.int64) * splits + split
    tl.store(parts + part * (GROUP * WIDTH) + at, heard, mask=inside)
    tl.store(weights + part * GROUP + m, best + tl.log2(total), mask=m < GROUP)
    _combine(out, parts, weights, counters, pair, used, splits, GROUP, WIDTH, HEADS, TILE)


@triton.jit
def _load(here_k, here_v, table, start, length, slot_stride, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Keys and values of the tokens `start` onward, each [BLOCK, WIDTH]; zeros from `length` on."""
    token = start + tl.arange(0, BLOCK)
    kept = token < length
    slot = tl.load(table + token // PAGE, mask=kept, other=0).to(tl.int64) * PAGE + token % PAGE
    offset, kept = (slot * slot_stride)[:, None], kept[:, None]
    return tl.load(here_k + offset, mask=kept, other=0.0), tl.load(here_v + offset, mask=kept, other=0.0)


@triton.jit
def _attend(q, k, v, best, total, heard, start, length, scale, BLOCK: tl.constexpr):
    """One block more into the running maximum [16], sum [16] and unscaled result [16, WIDTH]; base 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where((start + tl.arange(0, BLOCK) < length)[None, :], scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    weight = tl.exp2(scores - higher[:, None])
    keep = tl.exp2(best - higher)
    heard = tl.dot(weight.to(v.dtype), v, heard * keep[:, None], input_precision="ieee")
    return higher, total * keep + tl.sum(weight, 1), heard


@triton.jit
def _turned(head, norm, d, there, cos, sin, eps, WIDTH: tl.constexpr, NORM: tl.constexpr):
    """Heads at `head`, normed and rotated, in their own dtype; `d` is their last axis."""
    other = (d + WIDTH // 2) % WIDTH
    raw = tl.load(head + d, mask=there, other=0.0)
    x, swapped = raw.to(tl.float32), tl.load(head + other, mask=there, other=0.0).to(tl.float32)
    if NORM:
        inverse = tl.rsqrt(tl.sum(x * x, len(x.shape) - 1, keep_dims=True) / WIDTH + eps)
        x = (x * inverse * tl.load(norm + d).to(tl.float32)).to(raw.dtype).to(tl.float32)
        swapped = (swapped * inverse * tl.load(norm + other).to(tl.float32)).to(raw.dtype).to(tl.float32)
    return (x * cos + swapped * sin).to(raw.dtype)


@triton.jit
def _combine(
    out, parts, weights, counters, pair, used, splits,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Count this program's part; where it is the last of `used`, write the row's heads."""
    # Every thread's part is written before one of them counts it.
    tl.debug_barrier()
    arrived = tl.atomic_add(counters + pair, 1, sem="acq_rel", scope="gpu")
    if arrived == used - 1:
        tl.debug_barrier()
        s, h, at = tl.arange(0, TILE)[:, None], tl.arange(0, HEADS), tl.arange(0, HEADS * WIDTH)
        size: tl.constexpr = GROUP * WIDTH
        best, total = tl.full([HEADS], -1e30, tl.float32), tl.zeros([HEADS], tl.float32)
        heard = tl.zeros([HEADS, WIDTH], tl.float32)
        first = 0
        while first < used:
            part, there = pair.to(tl.int64) * splits + first + s, first + s < used
            weight = tl.load(weights + part * GROUP + h, mask=there & (h < GROUP), other=-1e30, cache_modifier=".cg")
            # Read flat, so that a thread holds the same numbers of every part and sums them alone.
            value = tl.load(parts + part * size + at, mask=there & (at < size), other=0.0, cache_modifier=".cg")
            higher = tl.maximum(best, tl.max(weight, 0))
            weight, keep = tl.exp2(weight - higher[None, :]), tl.exp2(best - higher)
            value = value.reshape(TILE, HEADS, WIDTH) * weight[:, :, None]
            heard = heard * keep[:, None] + tl.sum(value, 0)
            total = total * keep + tl.sum(weight, 0)
            best = higher
            first += TILE
        heard = (heard / total[:, None]).reshape(HEADS * WIDTH)
        tl.store(out + pair.to(tl.int64) * size + at, heard.to(out.dtype.element_ty), mask=at < size)
        tl.store(counters + pair, 0)
