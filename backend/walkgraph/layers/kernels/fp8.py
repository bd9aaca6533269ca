"""Rows of eight-bit floats (e4m3), each with a scale, quantized by the kernels that produce them: the norm, the gate,
attention.

A program holds one row in registers, so that its largest number is known before any is rounded and the row is read
once.

Shape letters: M rows, W their width, F hidden width.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from walkgraph.layers.kernels.norm import warps
from walkgraph.layers.linear.fp8_format import FP8, LARGEST, LEAST

_LARGEST = tl.constexpr(LARGEST)
_LEAST = tl.constexpr(LEAST)


@triton.jit
def _scaled(largest, scales, row):
    """Store the scale of a row, and return the factor for its numbers."""
    largest = tl.maximum(largest, _LEAST)
    tl.store(scales + row, largest / _LARGEST)
    return _LARGEST / largest


@triton.jit
def norm_kernel(x, weight, out, scales, eps, W: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < W
    row = tl.program_id(0).to(tl.int64)
    value = tl.load(x + row * W + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / W + eps) * scale
    value *= _scaled(tl.max(tl.abs(value), 0), scales, row)
    tl.store(out + row * W + columns, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rows_kernel(x, out, scales, block_stride, row_stride, N, W: tl.constexpr, BLOCK: tl.constexpr):
    """N rows per block; rows and blocks may have any stride."""
    columns = tl.arange(0, BLOCK)
    inside = columns < W
    row = tl.program_id(0).to(tl.int64)
    at = row // N * block_stride + row % N * row_stride
    value = tl.load(x + at + columns, mask=inside, other=0.0).to(tl.float32)
    value *= _scaled(tl.max(tl.abs(value), 0), scales, row)
    tl.store(out + row * W + columns, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated(at, columns, F: tl.constexpr):
    inside = columns < F
    gate = tl.load(at + columns, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    up = tl.load(at + F + columns, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    return gate * tl.sigmoid(gate) * up


@triton.jit
def gated_kernel(gate_up, out, scales, F: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr):
    """The width is split into a power of two and a rest, as one power of two for all of it would waste much."""
    row = tl.program_id(0).to(tl.int64)
    at, to = gate_up + row * (2 * F), out + row * F
    first = tl.arange(0, FIRST)
    rest = FIRST + tl.arange(0, REST)
    value, end = _gated(at, first, F), _gated(at, rest, F)
    factor = _scaled(tl.maximum(tl.max(tl.abs(value), 0), tl.max(tl.abs(end), 0)), scales, row)
    tl.store(to + first, (value * factor).to(out.dtype.element_ty))
    tl.store(to + rest, (end * factor).to(out.dtype.element_ty), mask=rest < F)


def _room(rows: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    return (
        torch.empty(rows, width, dtype=FP8, device=like.device),
        torch.empty(rows, 1, dtype=torch.float32, device=like.device),
    )


def norm_fp8(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x `[M, W]` contiguous, RMS-normed -> e4m3 `[M, W]` and scales float32 `[M, 1]`."""
    if not x.is_contiguous():
        raise ValueError("the rows to be normed must be contiguous")
    rows, width = x.shape
    out, scales = _room(rows, width, x)
    block = triton.next_power_of_2(width)
    norm_kernel[(rows,)](x, weight, out, scales, eps, W=width, BLOCK=block, num_warps=warps(block))
    return out, scales


def rows_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x `[B, N, W]`, rows contiguous -> e4m3 `[B * N, W]` and scales float32 `[B * N, 1]`."""
    if x.stride(2) != 1:
        raise ValueError("a row must be contiguous")
    blocks, rows, width = x.shape
    out, scales = _room(blocks * rows, width, x)
    block = triton.next_power_of_2(width)
    rows_kernel[(blocks * rows,)](
        x, out, scales, x.stride(0), x.stride(1), rows, W=width, BLOCK=block, num_warps=warps(block)
    )
    return out, scales


def halves(width: int) -> tuple[int, int]:
    """Two powers of two that together cover a width."""
    first = 1 << (width // 2).bit_length()
    return first, 1 << (max(width - first, 1) - 1).bit_length()


def gated_fp8(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """`[M, 2F]` contiguous, gate columns first -> silu(gate) * up as e4m3 `[M, F]`, and scales float32 `[M, 1]`."""
    if not gate_up.is_contiguous():
        raise ValueError("the rows to be gated must be contiguous")
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out, scales = _room(rows, width, gate_up)
    first, rest = halves(width)
    gated_kernel[(rows,)](gate_up, out, scales, F=width, FIRST=first, REST=rest, num_warps=warps(first))
    return out, scales
