"""Modulated norms on their own: of rows before their first product and after their last one; and rows made from a few
numbers each.

Shape letters: B blocks, R rows, W width, A numbers.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["tokens"])
def rows_kernel(
    x, scale, shift, out, squares, tokens, scale_stride, shift_stride, eps,
    W: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """One program per row: weighted, with its sum of squares; WHOLE: normed, scaled and shifted."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside, block = columns < W, row // tokens
    value = tl.load(x + row * W + columns, mask=inside, other=0.0).to(tl.float32)
    factor = 1 + tl.load(scale + block * scale_stride + columns, mask=inside, other=0.0).to(tl.float32)
    total = tl.sum(value * value, 0)
    value *= factor
    if WHOLE:
        added = tl.load(shift + block * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)
        value = value * tl.rsqrt(total / W + eps) + added
    else:
        tl.store(squares + row, total)
    tl.store(out + row * W + columns, value.to(out.dtype.element_ty), mask=inside)


def weigh(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """x `[R, W]` contiguous, scale `[B, W]` -> x * (1 + scale), and squares float32 `[1, R]`."""
    out, squares = torch.empty_like(x), torch.empty(1, x.shape[0], dtype=torch.float32, device=x.device)
    _rows(x, scale, None, out, squares, 0.0)
    return out, squares


def modulate(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """`walkgraph.layers.norm.modulated.modulated`; x contiguous."""
    out = torch.empty_like(x)
    _rows(x, scale, shift, out, None, eps)
    return out


def _rows(x: Tensor, scale: Tensor, shift: Tensor | None, out: Tensor, squares: Tensor | None, eps: float) -> None:
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    rows_kernel[(rows,)](
        x, scale, shift, out, squares, rows // scale.shape[0], scale.stride(0),
        0 if shift is None else shift.stride(0), eps, W=width, BLOCK=block, WHOLE=shift is not None,
        num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip


ENTERED = 256
"""Columns that a program computes from a row's numbers: their products stay in registers."""


@triton.jit(do_not_specialize=["rows", "tokens"])
def enter_kernel(
    given, weight, bias, scale, out, weighted, squares, rows, tokens, scale_stride,
    W: tl.constexpr, A: tl.constexpr, BLOCK_A: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program per piece of a row, computed in float32 and rounded once, then weighted as in `rows_kernel`."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    a, w = tl.arange(0, BLOCK_A), part * CHUNK + tl.arange(0, CHUNK)
    inside = w < W
    numbers = tl.load(given + row * A + a, mask=a < A, other=0.0)
    tile = tl.load(weight + w[:, None] * A + a[None, :], mask=inside[:, None] & (a < A)[None, :], other=0.0)
    made = tl.sum(tile * numbers[None, :], 1) + tl.load(bias + w, mask=inside, other=0.0)
    made = made.to(out.dtype.element_ty)
    tl.store(out + row * W + w, made, mask=inside)
    value = tl.where(inside, made.to(tl.float32), 0.0)
    tl.store(squares + part * rows + row, tl.sum(value * value, 0))
    value *= 1 + tl.load(scale + row // tokens * scale_stride + w, mask=inside, other=0.0).to(tl.float32)
    tl.store(weighted + row * W + w, value.to(weighted.dtype.element_ty), mask=inside)


def enter(
    given: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """given `[R, A]`, weight `[W, A]`, bias `[W]`, float32 and contiguous; scale `[B, W]` -> rows of `dtype`, weighted,
    squares float32 `[parts, R]`."""
    (rows, numbers), width = given.shape, weight.shape[0]
    out, parts = torch.empty(rows, width, dtype=dtype, device=given.device), triton.cdiv(width, ENTERED)
    weighted = torch.empty_like(out)
    squares = torch.empty(parts, rows, dtype=torch.float32, device=given.device)
    enter_kernel[(rows, parts)](
        given, weight, bias, scale, out, weighted, squares, rows, rows // scale.shape[0], scale.stride(0),
        W=width, A=numbers, BLOCK_A=triton.next_power_of_2(numbers), CHUNK=ENTERED, num_warps=4,
    )  # fmt: skip
    return out, weighted, squares
