"""`walkgraph.layers.flow.flow_end.end` on a GPU, one program per row. Few rows leave most of the device idle; the gain
is one launch instead of six."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead

CHUNK = 256
"""Columns of the map multiplied at once: their products stay in registers."""
WARPS = 8


@triton.jit(do_not_specialize=["tokens"])
def end_kernel(
    x, scale, shift, weight, bias, actions, time, to, out,
    tokens, scale_stride, shift_stride, time_stride, to_stride, eps,
    W: tl.constexpr, A: tl.constexpr, BLOCK_A: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    block, base = row // tokens, x + row.to(tl.int64) * W
    w, a = tl.arange(0, CHUNK), tl.arange(0, BLOCK_A)
    squares = tl.zeros((CHUNK,), tl.float32)
    for first in tl.static_range(0, W, CHUNK):
        value = tl.load(base + first + w, mask=first + w < W, other=0.0).to(tl.float32)
        squares += value * value
    rstd = tl.rsqrt(tl.sum(squares, 0) / W + eps)
    total = tl.zeros((BLOCK_A,), tl.float32)
    for first in tl.range(0, W, CHUNK):
        at, inside = first + w, first + w < W
        value = tl.load(base + at, mask=inside, other=0.0).to(tl.float32) * rstd
        value *= 1 + tl.load(scale + block * scale_stride + at, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(shift + block * shift_stride + at, mask=inside, other=0.0).to(tl.float32)
        there = (a < A)[:, None] & inside[None, :]
        total += tl.sum(tl.load(weight + a[:, None] * W + at[None, :], mask=there, other=0.0) * value[None, :], 1)
    place = row * A + a
    velocity = total + tl.load(bias + a, mask=a < A, other=0.0)
    before = tl.load(actions + place, mask=a < A, other=0.0)
    span = tl.load(to + block * to_stride) - tl.load(time + block * time_stride)
    tl.store(out + place, before + velocity * span, mask=a < A)


def launch(x: Tensor, head: "VelocityHead", actions: Tensor, interval: "FlowInterval") -> Tensor:
    """x `[R, W]`, actions float32 `[B, t, A]` -> like them. Raises ValueError for a map that isn't float32."""
    if head.weight.dtype != torch.float32 or actions.dtype != torch.float32:
        raise ValueError("the map out of the model and the actions must be float32")
    x, actions, weight = x.contiguous(), actions.contiguous(), head.weight.contiguous()
    (rows, width), (numbers, _) = x.shape, weight.shape
    out = torch.empty_like(actions)
    end_kernel[(rows,)](
        x, head.scale, head.shift, weight, head.bias, actions, interval.time, interval.to, out,
        actions.shape[1], head.scale.stride(0), head.shift.stride(0), interval.time.stride(0), interval.to.stride(0),
        head.eps, W=width, A=numbers, BLOCK_A=triton.next_power_of_2(numbers), CHUNK=CHUNK, num_warps=WARPS,
    )  # fmt: skip
    return out
