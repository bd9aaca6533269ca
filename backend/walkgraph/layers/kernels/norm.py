"""RMS norm of many wide rows; bound by reading and writing them once."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def norm_kernel(x, weight, out, eps, W: tl.constexpr, BLOCK: tl.constexpr):
    """One program per row, which stays in registers between its two passes."""
    columns = tl.arange(0, BLOCK)
    inside = columns < W
    row = tl.program_id(0).to(tl.int64) * W
    value = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    rstd = tl.rsqrt(tl.sum(value * value, 0) / W + eps)
    tl.store(out + row + columns, (value * rstd * scale).to(out.dtype.element_ty), mask=inside)


def warps(block: int) -> int:
    """Warps for 32 numbers per thread: four loads of 16 bytes in flight at once."""
    return min(16, max(1, block // 1024))


def wide_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x `[R, W]` contiguous -> `[R, W]` of its type."""
    if not x.is_contiguous():
        raise ValueError("the rows to be normed must be contiguous")
    rows, width = x.shape
    out, block = torch.empty_like(x), triton.next_power_of_2(width)
    norm_kernel[(rows,)](x, weight, out, eps, W=width, BLOCK=block, num_warps=warps(block))
    return out
