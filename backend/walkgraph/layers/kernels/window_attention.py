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
WARPS = 8
"""Each has little to do, and so little code to fetch, which took longer than the work."""


def window_attention(
    qkv: Tensor, past: Tensor, rows: Tensor, start: Tensor, frequencies: Tensor, frames: int, heads: int
) -> Tensor:
    """qkv `[B * n, (H + 2G) * D]`, not yet turned; past `[S, 2, P, G, D]`, that of one layer in a table, of which row
    rows[b] is stream b's and is moved on; int64 rows and start `[B]`; frequencies float32 `[D/2]` ->
    `[B * n, H * D]`."""
    _, _, kept, groups, width = past.shape
    made = qkv.new_empty(qkv.shape[0], heads * width)
    window_kernel[(groups, len(rows))](
        qkv, past, rows, start, frequencies, made, frames, kept, past.stride(0), width**-0.5,
        H=heads, G=groups, HALF=width // 2, M=max(16, triton.next_power_of_2(frames)),
        P=max(16, triton.next_power_of_2(kept)), PDL=can_overlap(), num_warps=WARPS, launch_pdl=can_overlap(),
    )  # fmt: skip
    return made


@triton.jit
def _turned(x, cos, sin, HALF: tl.constexpr, at, mask):
    """Both halves of a head at `at`, turned and rounded as they are kept."""
    low = tl.load(x + at, mask=mask, other=0.0)
    high = tl.load(x + at + HALF, mask=mask, other=0.0)
    one = (low.to(tl.float32) * cos - high.to(tl.float32) * sin).to(low.dtype)
    return one, (high.to(tl.float32) * cos + low.to(tl.float32) * sin).to(low.dtype)


@triton.jit
def _shift(past, row, column, first, second, places, WIDE: tl.constexpr, HALF: tl.constexpr):
    """Rows of both halves at their places of the next past; those before it fall out."""
    at, mask = row[:, None] * WIDE + column[None, :], ((row >= 0) & (row < places))[:, None]
    tl.store(past + at, first, mask=mask)
    tl.store(past + at + HALF, second, mask=mask)


@triton.jit(do_not_specialize=["frames", "places", "past_row"])
def window_kernel(
    qkv, past, rows, start, frequencies, made, frames, places, past_row, scale,
    H: tl.constexpr, G: tl.constexpr, HALF: tl.constexpr, M: tl.constexpr, P: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    group, stream = tl.program_id(0), tl.program_id(1).to(tl.int64)
    D: tl.constexpr = 2 * HALF
    WIDE: tl.constexpr = G * D
    row, half, old = tl.arange(0, M), tl.arange(0, HALF), tl.arange(0, P)
    begun = tl.load(start + stream)
    cos, sin = turned_by((begun + row).to(tl.float32)[:, None] * tl.load(frequencies + half)[None, :], PDL)
    qkv += stream * frames * ((H + 2 * G) * D)
    at, there = row[:, None] * ((H + 2 * G) * D) + half[None, :], (row < frames)[:, None]
    k_low, k_high = _turned(qkv + (H + group) * D, cos, sin, HALF, at, there)
    v_low = tl.load(qkv + (H + G + group) * D + at, mask=there, other=0.0)
    v_high = tl.load(qkv + (H + G + group) * D + HALF + at, mask=there, other=0.0)
    keys = past + tl.load(rows + stream).to(tl.int64) * past_row + group * D
    values = keys + places * WIDE
    # A stream's first frames have fewer before them; what its row holds there may be another's.
    known = (old < places) & (old >= places - begun)
    kept, held = old[:, None] * WIDE + half[None, :], known[:, None]
    pk_low, pk_high = tl.load(keys + kept, mask=held, other=0.0), tl.load(keys + kept + HALF, mask=held, other=0.0)
    pv_low, pv_high = tl.load(values + kept, mask=held, other=0.0), tl.load(values + kept + HALF, mask=held, other=0.0)
    # A frame attends as many before it as there are places, and itself.
    seen = (old[None, :] >= row[:, None]) & known[None, :]
    near = (row[None, :] <= row[:, None]) & (row[None, :] + places >= row[:, None]) & (row < frames)[None, :]
    # A row past the frames sees itself, or its sum would be of nothing.
    near = near | (row[None, :] == row[:, None])
    for one in tl.static_range(H // G):
        head = group * (H // G) + one
        q_low, q_high = _turned(qkv + head * D, cos, sin, HALF, at, there)
        older = tl.dot(q_high, pk_high.T, tl.dot(q_low, pk_low.T)) * scale
        newer = tl.dot(q_high, k_high.T, tl.dot(q_low, k_low.T)) * scale
        older, newer = tl.where(seen, older, float("-inf")), tl.where(near, newer, float("-inf"))
        most = tl.maximum(tl.max(older, 1), tl.max(newer, 1))[:, None]
        older, newer = tl.exp(older - most), tl.exp(newer - most)
        total = (tl.sum(older, 1) + tl.sum(newer, 1))[:, None]
        older, newer = older.to(q_low.dtype), newer.to(q_low.dtype)
        low = tl.dot(newer, v_low, tl.dot(older, pv_low)) / total
        high = tl.dot(newer, v_high, tl.dot(older, pv_high)) / total
        out = made + (stream * frames + row[:, None]) * (H * D) + head * D + half[None, :]
        tl.store(out, low.to(made.dtype.element_ty), mask=there)
        tl.store(out + HALF, high.to(made.dtype.element_ty), mask=there)
    # Every thread has read its part of the past before any writes.
    tl.debug_barrier()
    fresh = tl.where(row < frames, places - frames + row, -1)
    gone = tl.where(old < places, old - frames, -1)
    _shift(keys, gone, half, pk_low, pk_high, places, WIDE, HALF)
    _shift(values, gone, half, pv_low, pv_high, places, WIDE, HALF)
    _shift(keys, fresh, half, k_low, k_high, places, WIDE, HALF)
    _shift(values, fresh, half, v_low, v_high, places, WIDE, HALF)
