"""`walkgraph.layers.pictures.frames` on a GPU."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap
from walkgraph.layers.norm.layer_norm import SUMMED


@triton.jit
def enter_kernel(
    seen, conditions, weight, bias, frame, places, rows, positions, x, sums, cos, sin, tokens,
    C: tl.constexpr, SIZE: tl.constexpr, W: tl.constexpr, D: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program per token. conditions: a tuple of C; PARTS: a power of two that is not below W / PART."""
    b, token = tl.program_id(0) // tokens, tl.program_id(0) % tokens
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    part = tl.arange(0, PARTS)
    columns = part[:, None] * PART + tl.arange(0, PART)[None, :]
    known = columns < W
    place, speed = tl.load(places + token * D + d), tl.load(frame + d)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    radians = tl.load(positions + tl.load(rows + b)).to(tl.float32) * speed + place
    tl.store(cos + row * D + d, tl.cos(radians))
    tl.store(sin + row * D + d, tl.sin(radians))
    if token < C:
        value = tl.load(bias + token * W + columns, mask=known, other=0.0)
        for i in tl.static_range(SIZE):
            number = 0.0
            for c in tl.static_range(C):
                number += tl.load(conditions[c] + b * SIZE + i, mask=token == c, other=0.0)
            value += number * tl.load(weight + (token * SIZE + i) * W + columns, mask=known, other=0.0)
    else:
        patch = b.to(tl.int64) * (tokens - C) + token - C
        value = tl.load(seen + patch * W + columns, mask=known, other=0.0).to(tl.float32)
    value = value.to(x.dtype.element_ty)
    tl.store(x + row * W + columns, value, mask=known)
    value = value.to(tl.float32)
    at, here = sums + 2 * (row * (W // PART) + part), part < W // PART
    tl.store(at, tl.sum(value, 1), mask=here)
    tl.store(at + 1, tl.sum(value * value, 1), mask=here)


def enter(
    seen: Tensor,
    conditions: Sequence[Tensor],
    maps: tuple[Tensor, Tensor],
    angles: tuple[Tensor, Tensor],
    rows: Tensor,
    positions: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`walkgraph.layers.pictures.frames.frame_rows`: maps are weight and bias, angles those of frames and of places ->
    x, sums, cosines, sines."""
    weight, bias = maps
    (tokens, width), columns, overlap = angles[1].shape, seen.shape[1], can_overlap()
    count = len(rows)
    like = {"dtype": torch.float32, "device": seen.device}
    x = torch.empty(count * tokens, columns, dtype=seen.dtype, device=seen.device)
    sums = torch.empty(len(x), columns // SUMMED, 2, **like)
    cos, sin = torch.empty(2, count, tokens, width, **like).unbind()
    enter_kernel[(len(x),)](
        seen, tuple(one.contiguous() for one in conditions), weight, bias, *angles, rows, positions, x, sums, cos, sin,
        tokens,
        C=len(bias), SIZE=weight.shape[1], W=columns, D=width, PART=SUMMED,
        PARTS=triton.next_power_of_2(columns // SUMMED), PDL=overlap, num_warps=4, launch_pdl=overlap,
    )  # fmt: skip
    return x, sums, cos, sin
