"""`walkgraph.layers.sound.causal_conv.DepthwiseConv.normed` on a GPU, in one launch: a program for each place.

Shape letters as there.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap


def depthwise_norm(
    x: Tensor,
    lacks: Tensor,
    then: Tensor,
    before: Tensor,
    after: Tensor,
    taps: Tensor,
    bias: Tensor,
    norm: nn.LayerNorm,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """x `[B, T, C]` contiguous; lacks, then and bias `[C]`; before and after `[B, P * C]`, the tail and the next one,
    whose rows are contiguous; taps `[C, P + 1]` contiguous -> x with both biases, and the norm."""
    (batch, length, channels), overlap = x.shape, can_overlap()
    kept, made = torch.empty_like(x), torch.empty_like(x)
    depthwise_kernel[(length, batch)](
        x, lacks, then, before, after, taps, bias, norm.weight, norm.bias, kept, made, norm.eps, length,
        before.stride(0), after.stride(0), C=channels, BLOCK=triton.next_power_of_2(channels), TAPS=taps.shape[1],
        PDL=overlap, num_warps=4, launch_pdl=overlap,
    )  # fmt: skip
    return kept, made


@triton.jit
def _place(x, before, lacks, place, column, known, C: tl.constexpr, TAIL: tl.constexpr):
    """The input at a place of a stream, rounded; those before 0 are in the tail."""
    old = tl.load(before + (place + TAIL) * C + column, mask=known & (place < 0), other=0.0)
    new = tl.load(x + place * C + column, mask=known & (place >= 0), other=0.0).to(tl.float32) + lacks
    return tl.where(place < 0, old, new.to(old.dtype))


@triton.jit(do_not_specialize=["length", "before_row", "after_row"])
def depthwise_kernel(
    x, lacks, then, before, after, taps, bias, weight, shift, kept, made, eps, length, before_row, after_row,
    C: tl.constexpr, BLOCK: tl.constexpr, TAPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    TAIL: tl.constexpr = TAPS - 1
    place, stream, column = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    known = column < C
    missing = tl.load(lacks + column, mask=known, other=0.0).to(tl.float32)
    total = tl.load(bias + column, mask=known, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    x += stream * length * C
    before += stream * before_row
    after += stream * after_row
    for tap in tl.static_range(TAPS):
        value = _place(x, before, missing, place - TAIL + tap, column, known, C, TAIL)
        total += value.to(tl.float32) * tl.load(taps + column * TAPS + tap, mask=known, other=0.0).to(tl.float32)
    own = _place(x, before, missing, place, column, known, C, TAIL)
    late = place - length + TAIL
    tl.store(after + late * C + column, own, mask=known & (late >= 0))
    # A short chunk leaves some of the tail's places in it.
    for at in tl.static_range(TAIL):
        held = known & (place == 0) & (at + length < TAIL)
        tl.store(after + at * C + column, tl.load(before + (at + length) * C + column, mask=held), mask=held)
    at = (stream * length + place) * C + column
    tl.store(kept + at, own.to(tl.float32) + tl.load(then + column, mask=known, other=0.0).to(tl.float32), mask=known)
    total = total.to(made.dtype.element_ty).to(tl.float32)
    apart = tl.where(known, total - tl.sum(total) / C, 0.0)
    total = apart * tl.rsqrt(tl.sum(apart * apart) / C + eps)
    scale = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)
    total = total * scale + tl.load(shift + column, mask=known, other=0.0).to(tl.float32)
    tl.store(made + at, total.to(made.dtype.element_ty), mask=known)
