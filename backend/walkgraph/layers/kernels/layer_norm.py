"""Layer norm of many rows, of a sum or of one tensor; bound by reading and writing them once."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap

WARPS = 4
_MANY, _EACH = 4096, 4
"""From this many rows on, a program norms several: one per warp."""


@triton.jit(do_not_specialize=["rows"])
def norm_kernel(
    x, y, total, weight, bias, out, eps, rows, W: tl.constexpr, BLOCK: tl.constexpr, EACH: tl.constexpr,
    ADDS: tl.constexpr, SHIFTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program for EACH rows, which stay in registers. ADDS: norm x + y and store it in `total`. SHIFTS: y is one
    row for all, and the sum is not stored."""
    columns = tl.arange(0, BLOCK)[None, :]
    known = columns < W
    scale = tl.load(weight + columns, mask=known, other=0.0, eviction_policy="evict_last").to(tl.float32)
    shift = tl.load(bias + columns, mask=known, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if SHIFTS:
        offset = tl.load(y + columns, mask=known, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0) * EACH + tl.arange(0, EACH)[:, None]
    inside = known & (row < rows)
    at = row.to(tl.int64) * W + columns
    value = tl.load(x + at, mask=inside, other=0.0)
    if ADDS:
        other = tl.load(y + at, mask=inside, other=0.0)
        value = (value.to(tl.float32) + other.to(tl.float32)).to(total.dtype.element_ty)
        tl.store(total + at, value, mask=inside)
    value = value.to(tl.float32)
    if SHIFTS:
        value += offset
    apart = tl.where(inside, value - tl.sum(value, 1, keep_dims=True) / W, 0.0)
    rstd = tl.rsqrt(tl.sum(apart * apart, 1, keep_dims=True) / W + eps)
    tl.store(out + at, (apart * rstd * scale + shift).to(out.dtype.element_ty), mask=inside)


@triton.jit
def sum_kernel(x, out, W: tl.constexpr, PARTS: tl.constexpr, PART: tl.constexpr, PDL: tl.constexpr):
    """One program per row. PARTS: a power of two that is not below W / PART."""
    part = tl.arange(0, PARTS)
    columns = part[:, None] * PART + tl.arange(0, PART)[None, :]
    known = columns < W
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    value = tl.load(x + row * W + columns, mask=known, other=0.0).to(tl.float32)
    at, here = out + 2 * (row * (W // PART) + part), part < W // PART
    tl.store(at, tl.sum(value, 1), mask=here)
    tl.store(at + 1, tl.sum(value * value, 1), mask=here)


def sum_rows(x: Tensor, part: int) -> Tensor:
    """`walkgraph.layers.norm.layer_norm.row_sums`."""
    (rows, width), overlap = x.shape, can_overlap()
    out = torch.empty(rows, width // part, 2, dtype=torch.float32, device=x.device)
    sum_kernel[(rows,)](
        x, out, W=width, PARTS=triton.next_power_of_2(width // part), PART=part, PDL=overlap, num_warps=WARPS,
        launch_pdl=overlap,
    )  # fmt: skip
    return out


def norm_rows(x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x and y `[R, W]`, contiguous -> their sum, rounded (x itself without y), and its norm."""
    out, total = torch.empty_like(x), x if y is None else torch.empty_like(x)
    _launch(x, x if y is None else y, total, weight, bias, out, eps, adds=y is not None, shifts=False)
    return total, out


def shifted_rows(x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """x `[R, W]`, contiguous, and shift `[W]` -> the norm of their sum."""
    out = torch.empty_like(x)
    _launch(x, x if shift is None else shift, out, weight, bias, out, eps, adds=False, shifts=shift is not None)
    return out


def _launch(
    x: Tensor, y: Tensor, total: Tensor, weight: Tensor, bias: Tensor, out: Tensor, eps: float, *, adds: bool,
    shifts: bool,
) -> None:  # fmt: skip
    (rows, width), overlap = x.shape, can_overlap()
    each = _EACH if rows >= _MANY else 1
    norm_kernel[(triton.cdiv(rows, each),)](
        x, y, total, weight, bias, out, eps, rows, W=width, BLOCK=triton.next_power_of_2(width), EACH=each, ADDS=adds,
        SHIFTS=shifts, PDL=overlap, num_warps=WARPS, launch_pdl=overlap,
    )  # fmt: skip
