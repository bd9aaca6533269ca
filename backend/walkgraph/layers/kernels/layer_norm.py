"""Layer norm of many rows, of a sum or of one tensor: bound by reading and writing them once."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.overlap import can_overlap

WARPS = 4


@triton.jit
def norm_kernel(x, y, total, weight, bias, out, eps, W: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr,
                SHIFTS: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """A program for one row, which stays in registers. ADDS: x + y is normed, and kept in `total`. SHIFTS: y is one
    row for all, and the sum is only normed."""
    columns = tl.arange(0, BLOCK)
    inside = columns < W
    row = tl.program_id(0).to(tl.int64) * W + columns
    scale = tl.load(weight + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    shift = tl.load(bias + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if SHIFTS:
        offset = tl.load(y + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    value = tl.load(x + row, mask=inside, other=0.0)
    if ADDS:
        other = tl.load(y + row, mask=inside, other=0.0)
        value = (value.to(tl.float32) + other.to(tl.float32)).to(total.dtype.element_ty)
        tl.store(total + row, value, mask=inside)
    value = value.to(tl.float32)
    if SHIFTS:
        value += offset
    apart = tl.where(inside, value - tl.sum(value, 0) / W, 0.0)
    rstd = tl.rsqrt(tl.sum(apart * apart, 0) / W + eps)
    tl.store(out + row, (apart * rstd * scale + shift).to(out.dtype.element_ty), mask=inside)


def norm_rows(x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x and y `[R, W]`, contiguous -> their sum, rounded (x itself without y), and its norm."""
    rows, width = x.shape
    out, total = torch.empty_like(x), x if y is None else torch.empty_like(x)
    overlap = can_overlap(x.device)
    norm_kernel[(rows,)](
        x, x if y is None else y, total, weight, bias, out, eps, W=width, BLOCK=triton.next_power_of_2(width),
        ADDS=y is not None, SHIFTS=False, PDL=overlap, num_warps=WARPS, launch_pdl=overlap,
    )  # fmt: skip
    return total, out


def shifted_rows(x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """x `[R, W]`, contiguous, and shift `[W]` -> the norm of their sum."""
    (rows, width), out, overlap = x.shape, torch.empty_like(x), can_overlap(x.device)
    norm_kernel[(rows,)](
        x, x if shift is None else shift, out, weight, bias, out, eps, W=width, BLOCK=triton.next_power_of_2(width),
        ADDS=False, SHIFTS=shift is not None, PDL=overlap, num_warps=WARPS, launch_pdl=overlap,
    )  # fmt: skip
    return out
