"""`walkgraph.layers.norm.group_norm` on a GPU. Three launches, of which each reads the picture once at most:

    sum      adds up, keeps the sum where it is needed, and gives mean and squared deviations of a chunk's channels
    fold     chunks to what each channel of each picture is scaled and shifted by
    apply    scale, shift, SiLU

Deviations are taken from a tile's own mean and then merged, so a channel far from zero loses no precision.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from walkgraph.layers.norm.picture_sum import GroupNormWeights, PictureSum

_TILE = 32
"""Pixels of a tile."""
_PROGRAMS = 2048
"""Approximate programs that sum up a picture: a few per multiprocessor, so that some load while others add."""


def added(x: PictureSum, *, pad: bool) -> Tensor:
    """`[B, C, H, W]`, with `pad` `[B, C, H + 1, W + 1]`; channels-last. Raises ValueError for pictures that are not."""
    b, c, h, w = x.size
    out = _picture(x.held, (b, c, h + pad, w + pad))
    if pad:
        out[:, :, -1].zero_()
        out[..., -1].zero_()
    _sum(x, out, None, h * w)
    return out


def add_norm(x: PictureSum, norm: GroupNormWeights, *, silu: bool, keep: bool) -> tuple[Tensor, Tensor]:
    """Sum and norm `[B, C, H, W]`, channels-last. Raises ValueError for pictures that are not."""
    b, c, h, w = x.size
    # A power of two, so that pictures of all sizes share a few variants of the kernel.
    chunk = max(triton.next_power_of_2(triton.cdiv(h * w * triton.cdiv(c, _channels(c)), _PROGRAMS)), _TILE)
    chunks = triton.cdiv(h * w, chunk)
    keep = keep or x.add is not None or x.phases
    kept = _picture(x.held, x.size) if keep else x.held
    partials, scale = (torch.empty(b, n, 2, c, dtype=torch.float32, device=x.held.device) for n in (chunks, 1))
    _sum(x, kept if keep else None, partials, chunk)
    bias = norm.bias if keep or x.bias is None else x.bias
    fold_kernel[(b, norm.groups)](
        partials, norm.weight, norm.bias, bias, scale, h * w, chunk, chunks, c, c // norm.groups, norm.eps,
        BIAS=bias is not norm.bias, CHUNKS=triton.next_power_of_2(chunks),
        WIDTH=triton.next_power_of_2(c // norm.groups), num_warps=8,
    )  # fmt: skip
    made, block = _picture(kept, x.size), _channels(c)
    apply_kernel[(triton.cdiv(h * w, _TILE), triton.cdiv(c, block), b)](
        kept, scale, made, h * w, c, SILU=silu, TILE=_TILE, BLOCK=block
    )
    return kept, made


def _sum(x: PictureSum, out: Tensor | None, partials: Tensor | None, chunk: int) -> None:
    b, c, h, w = x.size
    held, block = _laid(x.held), _channels(c)
    add = held if x.add is None else _laid(x.add)
    target = held if out is None else out
    # Without moments there are no chunks to respect; one tile each leaves no part of the device idle.
    chunk = _TILE if partials is None else chunk
    sum_kernel[(triton.cdiv(h * w, chunk), triton.cdiv(c, block), b)](
        held, add, held if x.bias is None else x.bias, target, held if partials is None else partials,
        h * w, w, c, held.stride(2), held.stride(0), target.stride(2), target.stride(0),
        BIAS=x.bias is not None, ADD=x.add is not None, PHASES=x.phases, KEEP=out is not None,
        MOMENTS=partials is not None, STEPS=chunk // _TILE, TILE=_TILE, BLOCK=block,
    )  # fmt: skip


def _channels(c: int) -> int:
    return min(1 << (c - 1).bit_length(), 128)


def _picture(like: Tensor, size: tuple[int, int, int, int]) -> Tensor:
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _laid(x: Tensor) -> Tensor:
    if not x.is_contiguous(memory_format=torch.channels_last):
        raise ValueError("pictures must lie channels-last")
    return x


@triton.jit(do_not_specialize=["pixels", "width"])
def sum_kernel(
    src, add, bias, out, partials, pixels, width, channels, src_row, src_image, out_row, out_image,
    BIAS: tl.constexpr, ADD: tl.constexpr, PHASES: tl.constexpr, KEEP: tl.constexpr, MOMENTS: tl.constexpr,
    STEPS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(2).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = c < channels
    first = tl.program_id(0) * STEPS * TILE
    src += image * src_image
    out += image * out_image
    add += image * pixels * channels
    more = tl.zeros([BLOCK], tl.float32)
    if BIAS:
        more += tl.load(bias + c, mask=real, other=0.0)
    mean, deviations = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    count = 0.0
    for step in range(STEPS):
        start = first + step * TILE
        at = start + tl.arange(0, TILE)
        inside = (at < pixels)[:, None] & real[None, :]
        y, x = at // width, at % width
        if PHASES:
            place = ((y + 1) // 2) * src_row + ((x + 1) // 2) * 4 * channels + ((y % 2) * 2 + x % 2) * channels
        else:
            place = y * src_row + x * channels
        total = tl.load(src + place[:, None] + c[None, :], mask=inside, other=0.0).to(tl.float32) + more[None, :]
        if ADD:
            total += tl.load(add + at[:, None] * channels + c[None, :], mask=inside, other=0.0).to(tl.float32)
        if KEEP:
            rounded = total.to(out.dtype.element_ty)
            tl.store(out + (y * out_row + x * channels)[:, None] + c[None, :], rounded, mask=inside)
            total = rounded.to(tl.float32)
        if MOMENTS:
            new = tl.minimum(tl.maximum(pixels - start, 0), TILE).to(tl.float32)
            here = tl.sum(tl.where(inside, total, 0.0), 0) / tl.maximum(new, 1.0)
            off = tl.where(inside, total - here[None, :], 0.0)
            share = new / tl.maximum(count + new, 1.0)
            far = here - mean
            deviations += tl.sum(off * off, 0) + far * far * count * share
            mean += far * share
            count += new
    if MOMENTS:
        partials += (image * tl.num_programs(0) + tl.program_id(0)) * 2 * channels
        tl.store(partials + c, mean, mask=real)
        tl.store(partials + channels + c, deviations, mask=real)


@triton.jit(do_not_specialize=["pixels", "chunk", "chunks"])
def fold_kernel(
    partials, weight, bias, before, scale, pixels, chunk, chunks, channels, per_group, eps,
    BIAS: tl.constexpr, CHUNKS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    image, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    each, wide = tl.arange(0, CHUNKS), tl.arange(0, WIDTH)
    c = group * per_group + wide
    real = wide < per_group
    inside = (each < chunks)[:, None] & real[None, :]
    at = partials + (image * chunks + each[:, None]) * 2 * channels + c[None, :]
    means = tl.load(at, mask=inside, other=0.0)
    deviations = tl.load(at + channels, mask=inside, other=0.0)
    counts = tl.where(inside, tl.minimum(pixels - each * chunk, chunk)[:, None].to(tl.float32), 0.0)
    total = pixels.to(tl.float32) * per_group
    mean = tl.sum(tl.sum(means * counts, 0), 0) / total
    far = means - mean
    variance = tl.sum(tl.sum(deviations + far * far * counts, 0), 0) / total
    by = tl.load(weight + c, mask=real, other=0.0) / tl.sqrt(variance + eps)
    to = tl.load(bias + c, mask=real, other=0.0) - mean * by
    if BIAS:
        to += tl.load(before + c, mask=real, other=0.0) * by
    tl.store(scale + image * 2 * channels + c, by, mask=real)
    tl.store(scale + image * 2 * channels + channels + c, to, mask=real)


@triton.jit(do_not_specialize=["pixels"])
def apply_kernel(x, scale, made, pixels, channels, SILU: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    image = tl.program_id(2).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    real = c < channels
    inside = (at < pixels)[:, None] & real[None, :]
    place = image * pixels * channels + at[:, None] * channels + c[None, :]
    by = tl.load(scale + image * 2 * channels + c, mask=real, other=0.0)
    to = tl.load(scale + image * 2 * channels + channels + c, mask=real, other=0.0)
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * by[None, :] + to[None, :]
    if SILU:
        value = value / (1.0 + tl.exp(-value))
    tl.store(made + place, value.to(made.dtype.element_ty), mask=inside)
