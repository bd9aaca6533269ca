"""silu(gate) * up, or the tanh form of gelu, for many rows; bound by reading two numbers and writing one."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
WARPS = 4
"""16 numbers of each half per thread: four loads of 16 bytes in flight."""


@triton.jit
def opened(gate, GELU: tl.constexpr):
    """The activation in float32: silu, or the tanh form of gelu, which is x * sigmoid(2 sqrt(2 / pi) (x + 0.044715
    x^3))."""
    return gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate)


@triton.jit
def gated_kernel(gate_up, out, F: tl.constexpr, BLOCK: tl.constexpr, GELU: tl.constexpr):
    """One program per piece of a row."""
    PIECES: tl.constexpr = (F + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // PIECES).to(tl.int64)
    columns = (tl.program_id(0) % PIECES) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < F
    at = gate_up + row * (2 * F) + columns
    gate = tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    up = tl.load(at + F, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    tl.store(out + row * F + columns, (opened(gate, GELU) * up).to(out.dtype.element_ty), mask=inside)


def gated_rows(gate_up: Tensor, *, gelu: bool = False) -> Tensor:
    """`[R, 2F]` contiguous -> `[R, F]`."""
    if not gate_up.is_contiguous():
        raise ValueError("the rows to be gated must be contiguous")
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    gated_kernel[(rows * triton.cdiv(width, BLOCK),)](gate_up, out, F=width, BLOCK=BLOCK, GELU=gelu, num_warps=WARPS)
    return out
