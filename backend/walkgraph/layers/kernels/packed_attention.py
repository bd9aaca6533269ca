"""`walkgraph.layers.attention.packed_blocks` on a GPU for short blocks: a program attends some rows in one head.

A row's keys are those of its block, so that its result is the same wherever its block stands.

Shape letters as there.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import triton
import triton.language as tl
from torch import Tensor

MOST = 128
"""The most rows of a block."""
BLOCKS = 256
"""The most blocks."""
WIDTHS = frozenset({32, 64, 128})
_ROWS = 16


def packed_attention(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, most: int) -> Tensor:
    """q, k and v `[R, H, D]`, of one row stride and with adjacent heads; bounds int32 `[M + 1]`, rising from 0, of
    blocks of at most `most` rows -> `[R, H, D]`."""
    rows, heads, width = q.shape
    made = q.new_empty(rows, heads, width)
    packed_kernel[(heads, triton.cdiv(rows, _ROWS))](
        q, k, v, bounds, made, rows, q.stride(0), len(bounds), width**-0.5,
        H=heads, D=width, M=_ROWS, KEYS=max(16, triton.next_power_of_2(most)),
        BOUNDS=triton.next_power_of_2(len(bounds)), num_warps=4,
    )  # fmt: skip
    return made


@triton.jit(do_not_specialize=["rows", "bounds_count"])
def packed_kernel(
    q, k, v, bounds, made, rows, stride, bounds_count, scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, KEYS: tl.constexpr, BOUNDS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    row, column, at = tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, D), tl.arange(0, BOUNDS)
    bound = tl.load(bounds + at, mask=at < bounds_count, other=0)
    before = (bound[None, :] <= row[:, None]) & (at < bounds_count)[None, :]
    start = tl.max(tl.where(before, bound[None, :], 0), 1)
    end = tl.min(tl.where(before | (at >= bounds_count)[None, :], rows, bound[None, :]), 1)
    line, inside = row[:, None] * stride + head * D + column[None, :], (row < rows)[:, None]
    query = tl.load(q + line, mask=inside, other=0.0)
    best, total = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32)
    heard = tl.zeros([M, D], tl.float32)
    first, last = tl.min(start, 0), tl.max(tl.where(row < rows, end, 0), 0)
    while first < last:
        key = first + tl.arange(0, KEYS)
        there, place = (key < last)[:, None], key[:, None] * stride + head * D + column[None, :]
        keys, values = tl.load(k + place, mask=there, other=0.0), tl.load(v + place, mask=there, other=0.0)
        score = tl.dot(query, keys.T) * (scale * 1.4426950408889634)
        score = tl.where((key[None, :] >= start[:, None]) & (key[None, :] < end[:, None]), score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        # Where nothing was seen yet, there is nothing to keep.
        safe = tl.where(higher > float("-inf"), higher, 0.0)
        weight, keep = tl.exp2(score - safe[:, None]), tl.exp2(best - safe)
        heard = tl.dot(weight.to(values.dtype), values, heard * keep[:, None])
        total, best = total * keep + tl.sum(weight, 1), higher
        first += KEYS
    # Rows past the last block have seen nothing.
    heard /= tl.where(total > 0, total, 1.0)[:, None]
    tl.store(made + row[:, None] * (H * D) + head * D + column[None, :], heard.to(query.dtype), inside)
