"""Linears with weights in four bits: `norm -> x @ weight.T -> bias, SwiGLU, residual`, for any number of rows.

A program owns a block of weight rows, a tile of x's rows and a part of K. It reads the weights of a group of 128
columns as bytes: the low halves multiply the group's first 64 columns of x, the high halves the others. The sums of a
group are multiplied by its scales in float32, so that the products are of small whole numbers. The weights are the left
operand, which the tensor cores read from registers, where the numbers are unpacked.

The norm, and partial sums of a split K, are those of `walkgraph.layers.kernels.linear`.

Shape letters: R rows, M rows of a tile, N columns of the result, K.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.gpu import present
from walkgraph.layers.kernels.int4_config import GROUP, ROWS_MAX, Cut, choose
from walkgraph.layers.kernels.linear import finish, weight_rows, workspace

_GROUP = tl.constexpr(GROUP)


@triton.jit
def _whole(q, like):
    """Numbers 0 to 15 -> -8 to 7 of `like`'s type: the bits of a number are the last ones of 128 + it in bfloat16, and
    of 1024 + it in float16."""
    if like.dtype == tl.bfloat16:
        whole = (q.to(tl.uint16) | 0x4300).to(tl.bfloat16, bitcast=True) - 136.0
    else:
        whole = (q.to(tl.uint16) | 0x6400).to(tl.float16, bitcast=True) - 1032.0
    return whole


@triton.jit(do_not_specialize=["rows"])
def int4_kernel(
    x, weight, scales, norm, residual, bias, out, partials, counters, rows, stride, scale_stride, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """`stride` and `scale_stride`: bytes, and scales, from one row of weights to the next."""
    PART: tl.constexpr = K // SPLIT
    HALF: tl.constexpr = _GROUP // 2
    block, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    first, top = part * PART, tl.program_id(1).to(tl.int64) * M
    x += top * K
    out += top * N
    if RESIDUAL:
        residual += top * N
    left = (rows - top).to(tl.int32)
    at = tl.arange(0, HALF)
    m = tl.arange(0, M)[:, None]
    n = weight_rows(block, tl.arange(0, BLOCK_N), N, GATED, BLOCK_N)
    x_at = x + m * K + first + at[None, :]
    weight_at = weight + n[:, None] * stride + first // 2 + at[None, :]
    scale_at = scales + n * scale_stride + first // _GROUP
    total = tl.zeros((BLOCK_N, M), tl.float32)
    squares = tl.zeros((M, HALF), tl.float32)
    for g in tl.range(0, PART // _GROUP, num_stages=STAGES):
        both = tl.load(weight_at + g * HALF, eviction_policy="evict_first")
        scale = tl.load(scale_at + g).to(tl.float32)
        low = tl.load(x_at + g * _GROUP, mask=m < left, other=0.0)
        high = tl.load(x_at + g * _GROUP + HALF, mask=m < left, other=0.0)
        if NORM:
            wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
            squares += wide_low * wide_low + wide_high * wide_high
            norm_at = norm + first + g * _GROUP + at[None, :]
            low = (wide_low * tl.load(norm_at).to(tl.float32)).to(low.dtype)
            high = (wide_high * tl.load(norm_at + HALF).to(tl.float32)).to(high.dtype)
        sums = tl.dot(_whole(both & 15, low), tl.trans(low))
        sums = tl.dot(_whole(both >> 4, high), tl.trans(high), sums)
        total += sums * scale[:, None]
    finish(
        tl.trans(total), tl.sum(squares, 1, keep_dims=True), residual, bias, out, partials, counters, block, part,
        left, eps, N, K, M, BLOCK_N, SPLIT, GATED, NORM, BIAS, RESIDUAL,
    )  # fmt: skip


def multiply(
    x: Tensor,
    numbers: Tensor,
    scales: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    bias: Tensor | None = None,
    exact: bool = False,
    cut: Cut | None = None,
) -> Tensor:
    """x `[R, K]`, numbers uint8 `[N, K / 2]`, scales `[N, K / 128]`, rows contiguous ->
    `walkgraph.layers.linear.step_linear.linear` of them, cut by `cut`, or by `choose` if None."""
    x, residual = x.contiguous(), None if residual is None else residual.contiguous()
    (rows, k), n = x.shape, numbers.shape[0] // (2 if gated else 1)
    if cut is None:
        # Under `batch_invariant` the order of a row's sums mustn't depend on the rows beside it.
        like = ROWS_MAX if is_batch_invariant() and rows <= ROWS_MAX else rows
        cut = choose(like, numbers.shape[0], k, present())
    partials, counters = workspace(x.device)
    out = torch.empty((rows, n), dtype=torch.float32 if exact else x.dtype, device=x.device)
    int4_kernel[(triton.cdiv(numbers.shape[0], cut.n) * cut.split, triton.cdiv(rows, cut.m))](
        x, numbers, scales, norm, residual, bias, out, partials, counters, rows, numbers.stride(0), scales.stride(0),
        eps, N=n, K=k, M=cut.m, BLOCK_N=cut.n, SPLIT=cut.split, STAGES=cut.stages, GATED=gated, NORM=norm is not None,
        BIAS=bias is not None, RESIDUAL=residual is not None, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out
