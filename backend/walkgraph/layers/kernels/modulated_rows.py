"""Modulated norms by themselves: of rows before their first product, and after their last.

Shape letters: B blocks, R rows, W width.
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
    """A program for one row: weighted, with its sum of squares; WHOLE: normed, scaled and shifted."""
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
    """`walkgraph.layers.modulated.modulated`; x contiguous."""
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
