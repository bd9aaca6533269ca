"""`walkgraph.layers.attention.sliding_window` on a GPU for few new frames: turn queries and keys, attend, and move the
past on, in one launch; a program serves the heads of one group of one stream, whose past nothing else reads.

Shape letters as there; M rows of a tile, the power of two from n on.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap
from walkgraph.layers.kernels.step_attention_kernels import turned_by

FRAMES = 64
PAST = 128
WARPS = {132: 8, 1 << 30: 4}
"""Warps of a program, by the number of programs: those of few have little to do each, and those of many hide each
other's waits."""


def window_attention(
    qkv: Tensor, past: Tensor, rows: Tensor, start: Tensor, frequencies: Tensor, frames: int, heads: int
) -> Tensor:
    """qkv `[B * n, (H + 2G) * D]`, not yet turned; past `[S, 2, P, G, D]`, that of one layer in a table, of which row
    rows[b] is stream b's and is moved on; int64 rows and start `[B]`; frequencies float32 `[D/2]` ->
    `[B * n, H * D]`."""
    _, _, kept, groups, width = past.shape
    made = qkv.new_empty(qkv.shape[0], heads * width)
    warps = next(warps for most, warps in WARPS.items() if groups * len(rows) <= most)
    window_kernel[(groups, len(rows))](
        qkv, past, rows, start, frequencies, made, frames, kept, past.stride(0), width**-0.5,
        H=heads, G=groups, D=width, M=max(16, triton.next_power_of_2(frames)),
        P=max(16, triton.next_power_of_2(kept)), PDL=can_overlap(), num_warps=warps, launch_pdl=can_overlap(),
    )  # fmt: skip
    return made


@triton.jit
def _turned(x, other, cos, sin):
    """Rows of heads, of which other has the other half of each number's pair, turned and rounded as they are kept; sin
    is negative in the first half."""
    return (x.to(tl.float32) * cos + other.to(tl.float32) * sin).to(x.dtype)


@triton.jit
def _shift(past, row, column, values, places, WIDE: tl.constexpr):
    """Rows at their places of the next past; those before it fall out."""
    inside = (row >= 0) & (row < places)
    tl.store(past + row[:, None] * WIDE + column[None, :], values, mask=inside[:, None])


@triton.jit(do_not_specialize=["frames", "places", "past_row"])
def window_kernel(
    qkv, past, rows, start, frequencies, made, frames, places, past_row, scale,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, M: tl.constexpr, P: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    group, stream = tl.program_id(0), tl.program_id(1).to(tl.int64)
    HALF: tl.constexpr = D // 2
    WIDE: tl.constexpr = G * D
    row, column, old = tl.arange(0, M), tl.arange(0, D), tl.arange(0, P)
    # The launch before makes qkv alone, so all else is read while it ends.
    begun = tl.load(start + stream)
    angle = (begun + row).to(tl.float32)[:, None] * tl.load(frequencies + column % HALF)[None, :]
    cos, sin = turned_by(angle, PDL)
    sin = tl.where((column < HALF)[None, :], -sin, sin)
    keys = past + tl.load(rows + stream).to(tl.int64) * past_row + group * D
    values = keys + places * WIDE
    # A stream's first frames have fewer before them; what its row holds there may be another's.
    known = (old < places) & (old >= places - begun)
    kept, held = old[:, None] * WIDE + column[None, :], known[:, None]
    past_k, past_v = tl.load(keys + kept, mask=held, other=0.0), tl.load(values + kept, mask=held, other=0.0)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    qkv += stream * frames * ((H + 2 * G) * D)
    line, there = row[:, None] * ((H + 2 * G) * D), (row < frames)[:, None]
    at, across = line + column[None, :], line + ((column + HALF) % D)[None, :]
    k = tl.load(qkv + (H + group) * D + at, mask=there, other=0.0)
    k = _turned(k, tl.load(qkv + (H + group) * D + across, mask=there, other=0.0), cos, sin)
    v = tl.load(qkv + (H + G + group) * D + at, mask=there, other=0.0)
    # A frame attends as many before it as there are places, and itself.
    seen = (old[None, :] >= row[:, None]) & known[None, :]
    near = (row[None, :] <= row[:, None]) & (row[None, :] + places >= row[:, None]) & (row < frames)[None, :]
    # A row past the frames sees itself, or its sum would be of nothing.
    near = near | (row[None, :] == row[:, None])
    for one in tl.static_range(H // G):
        head = group * (H // G) + one
        q = tl.load(qkv + head * D + at, mask=there, other=0.0)
        q = _turned(q, tl.load(qkv + head * D + across, mask=there, other=0.0), cos, sin)
        older, newer = tl.dot(q, past_k.T) * scale, tl.dot(q, k.T) * scale
        older, newer = tl.where(seen, older, float("-inf")), tl.where(near, newer, float("-inf"))
        most = tl.maximum(tl.max(older, 1), tl.max(newer, 1))[:, None]
        older, newer = tl.exp(older - most), tl.exp(newer - most)
        total = (tl.sum(older, 1) + tl.sum(newer, 1))[:, None]
        heard = tl.dot(newer.to(q.dtype), v, tl.dot(older.to(q.dtype), past_v)) / total
        out = made + (stream * frames + row[:, None]) * (H * D) + head * D + column[None, :]
        tl.store(out, heard.to(made.dtype.element_ty), mask=there)
    # Every thread has read its part of the past before any writes.
    tl.debug_barrier()
    fresh = tl.where(row < frames, places - frames + row, -1)
    gone = tl.where(old < places, old - frames, -1)
    _shift(keys, gone, column, past_k, places, WIDE)
    _shift(values, gone, column, past_v, places, WIDE)
    _shift(keys, fresh, column, k, places, WIDE)
    _shift(values, fresh, column, v, places, WIDE)
