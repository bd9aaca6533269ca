"""`walkgraph.layers.sound.snake` on a GPU: one program for several places of one channel of one row."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from walkgraph.layers.kernels.sampling_blocks import draw

_BLOCK = 256
_TILE = 2048
"""Numbers of a program with the channels last."""
_SIZES = ["x_row", "x_channel", "add_row", "add_channel", "scale_row", "channels", "places"]
_POINTERS = ["x", "add", "bias", "scale", "alpha", "kept", "made"]
"""Pointers without specialization: a variant per alignment and stage size would take longer to compile than it
saves."""


def snake(
    x: Tensor, alpha: Tensor, add: Tensor | None, bias: Tensor | None, scale: Tensor | None, *, keep: bool
) -> tuple[Tensor | None, Tensor]:
    """(the sum if `keep`, its snake); x and add may be slices along the places, whose stride is 1."""
    batch, channels, places = x.shape
    made = torch.empty(batch, channels, places, dtype=x.dtype, device=x.device)
    kept = torch.empty_like(made) if keep else None
    other, noise = x if add is None else add, x if scale is None else scale
    if x.stride(2) != 1 or other.stride(2) != 1 or (scale is not None and scale.stride(1) != 1):
        raise ValueError("the places of a channel must be contiguous")
    snake_kernel[(batch * channels, triton.cdiv(places, _BLOCK))](
        x, other, alpha if bias is None else bias, noise, alpha, made if kept is None else kept, made,
        x.stride(0), x.stride(1), other.stride(0), other.stride(1), noise.stride(0), channels, places,
        ADD=add is not None, BIAS=bias is not None, SCALE=scale is not None, KEEP=keep, BLOCK=_BLOCK,
    )  # fmt: skip
    return kept, made


def place_noise(seed: Tensor, stream: int, first: Tensor, places: int) -> Tensor:
    made = torch.empty(seed.shape[0], places, dtype=torch.float32, device=seed.device)
    grid = seed.shape[0], triton.cdiv(places, _BLOCK)
    noise_kernel[grid](seed, first, made, stream, places, BLOCK=_BLOCK)
    return made


def snake_beta(x: Tensor, alpha: Tensor, beta: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """x and out `[B, T, C]` with the channels last; the places of a row are contiguous, the rows need not be."""
    batch, places, channels = x.shape
    if x.stride()[1:] != (channels, 1) or out.stride()[1:] != (channels, 1):
        raise ValueError("the places of a row must be contiguous, with the channels last")
    columns = next((size for size in (128, 64) if channels % size == 0), 32)
    rows = _TILE // columns
    grid = triton.cdiv(places, rows), triton.cdiv(channels, columns), batch
    snake_beta_kernel[grid](
        x, alpha if bias is None else bias, alpha, beta, out, x.stride(0), out.stride(0), places, channels,
        BIAS=bias is not None, ROWS=rows, COLUMNS=columns,
    )  # fmt: skip


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=_POINTERS)
def snake_kernel(
    x, add, bias, scale, alpha, kept, made, x_row, x_channel, add_row, add_channel, scale_row, channels, places,
    ADD: tl.constexpr, BIAS: tl.constexpr, SCALE: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // channels).to(tl.int64)
    channel = tl.program_id(0) % channels
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < places
    total = tl.load(x + row * x_row + channel * x_channel + at, mask=inside, other=0.0)
    more = tl.zeros([BLOCK], tl.float32)
    if ADD:
        more += tl.load(add + row * add_row + channel * add_channel + at, mask=inside, other=0.0)
    if BIAS:
        more += tl.load(bias + channel)
    if SCALE:
        more *= tl.load(scale + row * scale_row + at, mask=inside, other=0.0)
    total += more
    a = tl.load(alpha + channel)
    wave = tl.sin(total * a)
    out = (row * channels + channel) * places + at
    if KEEP:
        tl.store(kept + out, total, mask=inside)
    tl.store(made + out, total + wave * wave / (a + 1e-9), mask=inside)


@triton.jit
def snake_of(value, turns, height):
    """value + height * sin(pi * turns * value) ** 2, all float32, within 3e-7 * height: the sine's square has half its
    period and is even, so that a polynomial serves, where a sine for any angle takes twice as long as the memory."""
    angle = value * turns
    angle -= tl.floor(angle + 0.5)
    q = angle * angle
    wave = -3.3154454 * q + 13.022018
    wave = wave * q - 30.094521
    wave = wave * q + 42.726448
    wave = wave * q - 32.469639
    wave = wave * q + 9.8696041
    return value + wave * q * height


@triton.jit(do_not_specialize=["x_row", "made_row", "places"])
def snake_beta_kernel(
    x, bias, alpha, beta, made, x_row, made_row, places, channels,
    BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = column < channels
    turns = tl.exp(tl.load(alpha + column, mask=inside, other=0.0).to(tl.float32)) * 0.31830989
    height = 1 / (tl.exp(tl.load(beta + column, mask=inside, other=0.0).to(tl.float32)) + 1e-9)
    places_of = at[:, None] * channels + column[None, :]
    there = (at < places)[:, None] & inside[None, :]
    total = tl.load(x + row * x_row + places_of, mask=there, other=0.0).to(tl.float32)
    if BIAS:
        total += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(made + row * made_row + places_of, snake_of(total, turns[None, :], height[None, :]), mask=there)


@triton.jit(do_not_specialize=["stream", "places"], do_not_specialize_on_alignment=["seed", "first", "made"])
def noise_kernel(seed, first, made, stream, places, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(first + row) + at
    bits = draw(tl.load(seed + row), stream.to(tl.int64), place) & 0x7FFFFF
    even = (bits.to(tl.float32) + 0.5) * 2.384185791015625e-07 - 1  # 2^-22
    tl.store(made + row.to(tl.int64) * places + at, even, mask=at < places)
