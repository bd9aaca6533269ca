"""Rows scaled by a gate of their own, in one launch: the gate reads other rows, which it norms first."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def gate_kernel(
    inner, x, norm, gate, out, eps, W: tl.constexpr, F: tl.constexpr, WIDE: tl.constexpr, HIDDEN: tl.constexpr
):
    """One program per row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDE)
    inside = columns < W
    value = tl.load(x + row * W + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(norm + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(gate + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(value * value, 0) / W + eps)
    logit = tl.sum(value * rstd * scale * weight, 0)
    share = 1.0 / (1.0 + tl.exp(-logit))
    places = tl.arange(0, HIDDEN)
    there = places < F
    numbers = tl.load(inner + row * F + places, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row * F + places, (numbers * share).to(out.dtype.element_ty), mask=there)


def gated_rows(inner: Tensor, x: Tensor, gate: Tensor, norm: Tensor, eps: float) -> Tensor:
    """Like `walkgraph.layers.moe.shared_expert.gated_rows`."""
    (rows, width), hidden = x.shape, inner.shape[1]
    out = torch.empty_like(inner)
    wide, many = (triton.next_power_of_2(n) for n in (width, hidden))
    gate_kernel[(rows,)](
        inner.contiguous(), x.contiguous(), norm, gate.contiguous(), out, eps,
        W=width, F=hidden, WIDE=wide, HIDDEN=many, num_warps=4,
    )  # fmt: skip
    return out
