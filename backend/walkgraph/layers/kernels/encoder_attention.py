"""Full attention within each of consecutive pictures, for heads of any multiple of 8 numbers: no row is padded, and a
head of 72 numbers is multiplied as one of 64 and one of 16.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Tuning:
    rows: int
    """Queries of a program."""
    keys: int
    """Keys of one turn of its loop."""
    warps: int
    stages: int
    """Turns whose keys are on their way at once; 0 for the interpreter."""

    registers: int | None = None
    """Of a thread, at most: so few that two programs run side by side, one of which multiplies while the other takes
    exponentials."""


CHOSEN = Tuning(rows=128, keys=64, warps=8, stages=3, registers=128)


@triton.jit
def _turn(at, total, weight, low, rest, q_low, q_rest, k, v, stride, left, scale, WHOLE: tl.constexpr,
          KEYS: tl.constexpr, D: tl.constexpr, LOW: tl.constexpr, REST: tl.constexpr):  # fmt: skip
    """KEYS keys more. total, weight: the greatest score and the sum of weights `[rows]`; low, rest: the sums so far of
    the values' first LOW numbers and of their others. left: keys that are there, unless WHOLE."""
    key = tl.arange(0, KEYS)[:, None]
    d, e = tl.arange(0, LOW)[None, :], LOW + tl.arange(0, REST)[None, :]
    there = key < left
    place = (at + key).to(tl.int64) * stride
    if WHOLE:
        k_low = tl.load(k + place + d)
        k_rest = tl.load(k + place + e, mask=e < D, other=0.0) if LOW < D else k_low
    else:
        k_low = tl.load(k + place + d, mask=there, other=0.0)
        k_rest = tl.load(k + place + e, mask=there & (e < D), other=0.0) if LOW < D else k_low
    score = tl.dot(q_low, k_low.T)
    if LOW < D:
        score = tl.dot(q_rest, k_rest.T, score)
    if not WHOLE:
        score = tl.where((tl.arange(0, KEYS) < left)[None, :], score, float("-inf"))
    most = tl.maximum(total, tl.max(score, 1) * scale)
    p = tl.math.exp2(score * scale - most[:, None])
    fade = tl.math.exp2(total - most)
    weight = weight * fade + tl.sum(p, 1)
    p = p.to(v.dtype.element_ty)
    v_low = tl.load(v + place + d) if WHOLE else tl.load(v + place + d, mask=there, other=0.0)
    low = tl.dot(p, v_low, low * fade[:, None])
    if LOW < D:
        if WHOLE:
            v_rest = tl.load(v + place + e, mask=e < D, other=0.0)
        else:
            v_rest = tl.load(v + place + e, mask=there & (e < D), other=0.0)
        rest = tl.dot(p, v_rest, rest * fade[:, None])
    return most, weight, low, rest


@triton.jit
def attention_kernel(q, k, v, out, starts, stride, scale, ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr,
                     LOW: tl.constexpr, REST: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """A program for ROWS queries of one head of one picture; heads and pictures in turn, so that those that run side by
    side read the same keys. starts int32 `[B + 1]`: where pictures begin. stride: from row to row of q, k and v."""
    first, stop = tl.load(starts + tl.program_id(2)), tl.load(starts + tl.program_id(2) + 1)
    begin = first + tl.program_id(0) * ROWS
    if begin >= stop:
        return
    head = tl.program_id(1) * D
    row = begin + tl.arange(0, ROWS)[:, None]
    d, e = tl.arange(0, LOW)[None, :], LOW + tl.arange(0, REST)[None, :]
    place = row.to(tl.int64) * stride + head
    q_low = tl.load(q + place + d, mask=row < stop, other=0.0)
    q_rest = tl.load(q + place + e, mask=(row < stop) & (e < D), other=0.0) if LOW < D else q_low
    total, weight = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    low, rest = tl.zeros([ROWS, LOW], tl.float32), tl.zeros([ROWS, REST], tl.float32)
    whole = first + (stop - first) // KEYS * KEYS
    if STAGES:
        for at in tl.range(first, whole, KEYS, num_stages=STAGES):
            total, weight, low, rest = _turn(
                at, total, weight, low, rest, q_low, q_rest, k + head, v + head, stride, KEYS, scale, True,
                KEYS, D, LOW, REST,
            )  # fmt: skip
    else:
        # The interpreter's `range` takes no bounds that were computed; a `while` isn't pipelined on the GPU.
        at = first
        while at < whole:
            total, weight, low, rest = _turn(
                at, total, weight, low, rest, q_low, q_rest, k + head, v + head, stride, KEYS, scale, True,
                KEYS, D, LOW, REST,
            )  # fmt: skip
            at += KEYS
    if whole < stop:
        total, weight, low, rest = _turn(
            whole, total, weight, low, rest, q_low, q_rest, k + head, v + head, stride, stop - whole, scale, False,
            KEYS, D, LOW, REST,
        )  # fmt: skip
    share = 1 / weight[:, None]
    to = out + row.to(tl.int64) * (tl.num_programs(1) * D) + head
    tl.store(to + d, (low * share).to(out.dtype.element_ty), mask=row < stop)
    if LOW < D:
        tl.store(to + e, (rest * share).to(out.dtype.element_ty), mask=(row < stop) & (e < D))


def supported(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel has a form for these heads."""
    width = q.shape[2]
    alike = all(t.shape == q.shape and t.stride() == q.stride() and t.stride()[1:] == (width, 1) for t in (q, k, v))
    return alike and width % 8 == 0 and 16 <= width <= 128 and q.dtype in (torch.bfloat16, torch.float16)


def attend_pictures(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, tuning: Tuning = CHOSEN) -> Tensor:
    """q, k and v `[R, H, D]`, all rows alike far apart and heads side by side; starts int32 `[B + 1]`, on the device,
    of pictures of at most `longest` rows -> `[R, H, D]`; scaled by D^-0.5."""
    _, heads, width = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    low = 1 << (width.bit_length() - 1)
    grid = (triton.cdiv(longest, tuning.rows), heads, starts.shape[0] - 1)
    attention_kernel[grid](
        q, k, v, out, starts, q.stride(0), width**-0.5 / math.log(2), ROWS=tuning.rows, KEYS=tuning.keys, D=width,
        LOW=low, REST=max(16, triton.next_power_of_2(width - low)), STAGES=tuning.stages, num_warps=tuning.warps,
        maxnreg=tuning.registers,
    )  # fmt: skip
    return out
