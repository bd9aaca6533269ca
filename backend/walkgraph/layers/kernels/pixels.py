"""`walkgraph.layers.pictures.pixels` on a GPU: sum the nine neighbours of a pixel, and turn rows of scores into
weights."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256
_KEYS = 4096


def sum_taps(parts: Tensor, bias: Tensor, size: tuple[int, int, int]) -> Tensor:
    """parts float32 `[B * H * W, 9 O or more]` (row by row of the window, then output channels), bias `[O]`, size
    (B, H, W) -> float32 `[B, O, H, W]`."""
    b, h, w = size
    made = torch.empty(b, len(bias), h, w, dtype=torch.float32, device=parts.device)
    grid = triton.cdiv(h * w, _BLOCK), len(bias), b
    taps_kernel[grid](parts, bias, made, h, w, parts.stride(0), len(bias), BLOCK=_BLOCK)
    return made


def softmax(scores: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """scores float32 `[R, N]`, times `scale` -> softmax weights `[R, N]`."""
    made = torch.empty(scores.shape, dtype=dtype, device=scores.device)
    keys = scores.shape[1]
    softmax_kernel[(len(scores),)](scores, made, scale, keys, STEPS=triton.cdiv(keys, _KEYS), BLOCK=_KEYS, num_warps=8)
    return made


@triton.jit(do_not_specialize=["height", "width"])
def taps_kernel(parts, bias, made, height, width, stride, channels, BLOCK: tl.constexpr):
    image, channel = tl.program_id(2).to(tl.int64), tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pixels = height * width
    y, x = at // width, at % width
    parts += image * pixels * stride + channel
    total = tl.zeros([BLOCK], tl.float32) + tl.load(bias + channel)
    for tap in range(9):
        row, column = y + tap // 3 - 1, x + tap % 3 - 1
        inside = (at < pixels) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        place = (row * width + column) * stride + tap * channels
        total += tl.load(parts + place, mask=inside, other=0.0)
    tl.store(made + (image * channels + channel) * pixels + at, total, mask=at < pixels)


@triton.jit
def softmax_kernel(scores, made, scale, keys, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * keys
    # Each lane keeps its own maximum and sum, so the row is reduced only once.
    most, total = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.float32)
    for step in range(STEPS):
        at = step * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(scores + row + at, mask=at < keys, other=float("-inf")) * scale
        larger = tl.maximum(most, value)
        # A lane that no key has reached stays at zero.
        safe = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(most - safe) + tl.exp(value - safe)
        most = larger
    top = tl.max(most, 0)
    whole = tl.sum(total * tl.exp(most - top), 0)
    for step in range(STEPS):
        at = step * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(scores + row + at, mask=at < keys, other=float("-inf")) * scale
        tl.store(made + row + at, (tl.exp(value - top) / whole).to(made.dtype.element_ty), mask=at < keys)
