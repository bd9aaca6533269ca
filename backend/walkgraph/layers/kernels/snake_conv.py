"""`walkgraph.layers.sound.snake_conv` on a GPU: causal convolutions of bfloat16 as one product over shifted rows, and
what follows them in the same launch.

A program owns a tile of places of one stream and a tile of columns. It adds the products of the input's rows with each
tap, in one order for any batch and any cut of a stream. Behind that come the residual, the sum itself, and its snake
written where the next convolution reads it (`OnwardTensors`): behind that convolution's tail, with the new tail beside
it.

Shape letters: B streams, T rows of each that are read, C channels, N columns of the result (a transposed convolution
makes `rate` places of O channels in a row, so N is rate * O), P places of a tail, K taps.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.gpu import can_overlap
from walkgraph.layers.kernels.snake import snake_of


class OnwardTensors(NamedTuple):
    """The tensors of `walkgraph.layers.sound.snake_conv.Onward`: where the snake of a sum goes."""

    shift: Tensor
    """float32 `[O]`, like the two that follow: biases that the sum lacks."""
    turns: Tensor
    """Half turns of the sine per unit."""
    height: Tensor
    room: Tensor
    """`[B, P + T', O]`: the tail and T' places."""
    before: Tensor
    """`[B, P * O]`: the tail; its rows are contiguous, like those of the next."""
    after: Tensor


class Shape(NamedTuple):
    """How a kernel is cut."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


@triton.jit
def _tails(room, before, after, program, programs, size, made, BLOCK: tl.constexpr):
    """Copy a stream's tail in front of its room, and what of it the next tail still needs. size: numbers of the tail;
    made: those that are written behind it."""
    start = program * BLOCK
    while start < size:
        at = start + tl.arange(0, BLOCK)
        value = tl.load(before + at, mask=at < size)
        tl.store(room + at, value, mask=at < size)
        tl.store(after + at - made, value, mask=(at < size) & (at >= made))
        start += programs * BLOCK


@triton.jit
def _onward(
    total, at, column, inside, x, kept, shift, turns, height, room, after, size, made,
    WIDTH: tl.constexpr, RESIDUAL: tl.constexpr, KEEP: tl.constexpr, SNAKE: tl.constexpr,
):  # fmt: skip
    """total float32 `[M, N]`, at its places in the stream's numbers; all pointers are the stream's."""
    if RESIDUAL:
        total += tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if KEEP:
        tl.store(kept + at, total.to(kept.dtype.element_ty), mask=inside)
    if SNAKE:
        channel = column % WIDTH
        value = snake_of(
            total + tl.load(shift + channel)[None, :], tl.load(turns + channel)[None, :],
            tl.load(height + channel)[None, :],
        ).to(room.dtype.element_ty)  # fmt: skip
        tl.store(room + size + at, value, mask=inside)
        tl.store(after + size + at - made, value, mask=inside & (at >= made - size))


@triton.jit(do_not_specialize=["length", "in_rows", "room_row", "tail_row", "size", "dilation"])
def conv_kernel(
    rows, weights, x, kept, shift, turns, height, room, before, after,
    length, in_rows, room_row, tail_row, size, dilation,
    C: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr,
    UP: tl.constexpr, RESIDUAL: tl.constexpr, KEEP: tl.constexpr, SNAKE: tl.constexpr,
    M: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """rows: tensor map of `[B * in_rows, C]`; weights: of `[N, TAPS * C]`, or with UP of `[C, TAPS * N]`, whose first
    tap is that of the latest row."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    ACROSS: tl.constexpr = (N + COLUMNS - 1) // COLUMNS
    STEPS: tl.constexpr = C // DEPTH
    program, stream = tl.program_id(0), tl.program_id(1)
    start, first = program // ACROSS * M, program % ACROSS * COLUMNS
    total = tl.zeros((M, COLUMNS), tl.float32)
    top = stream * in_rows + start
    for step in tl.range(0, TAPS * STEPS, num_stages=STAGES):
        tap, k = step // STEPS, step % STEPS * DEPTH
        if UP:
            value = rows.load([top + (TAPS - 1 - tap) * dilation, k])
            total = tl.dot(value, weights.load([k, tap * N + first]), total)
        else:
            value = rows.load([top + tap * dilation, k])
            total = tl.dot(value, weights.load([first, tap * C + k]).T, total)
    row, column = start + tl.arange(0, M), first + tl.arange(0, COLUMNS)
    inside = (row < length)[:, None] & (column < N)[None, :]
    at = row[:, None] * N + column[None, :]
    own, made = stream.to(tl.int64) * length * N, length * N
    room += stream.to(tl.int64) * room_row
    before += stream.to(tl.int64) * tail_row
    after += stream.to(tl.int64) * tail_row
    if SNAKE:
        _tails(room, before, after, program, tl.num_programs(0), size, made, 1024)
    _onward(
        total, at, column, inside, x + own, kept + own, shift, turns, height, room, after, size, made,
        WIDTH, RESIDUAL, KEEP, SNAKE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["length", "in_rows"])
def mono_kernel(
    rows, weight, bias, made, length, in_rows,
    C: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr, M: tl.constexpr, MADE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """rows `[B, in_rows, C]`, weight `[C, TAPS]` -> made float32 `[B, length]` in [-1, 1]; MADE of a program, from M
    rows. One product gives what every row adds by each tap, and its diagonals are summed."""
    row, column, tap = tl.arange(0, M), tl.arange(0, WIDTH), tl.arange(0, 16)
    by_tap = tl.load(
        weight + column[:, None] * TAPS + tap[None, :], mask=(column < C)[:, None] & (tap < TAPS)[None, :], other=0.0
    )
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    stream, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * MADE
    rows += stream * in_rows * C
    inside = (start + row < length + TAPS - 1)[:, None] & (column < C)[None, :]
    value = tl.load(rows + (start + row)[:, None] * C + column[None, :], mask=inside, other=0.0)
    added = tl.dot(value, by_tap)
    diagonal = tl.gather(added, tl.minimum(row[:, None] + tap[None, :], M - 1), axis=0)
    sound = tl.sum(tl.where((tap < TAPS)[None, :], diagonal, 0.0), 1) + tl.load(bias).to(tl.float32)
    place = start + row
    tl.store(
        made + stream * length + place, tl.clamp(sound, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL),
        mask=(row < MADE) & (place < length),
    )  # fmt: skip


_PROCESSORS = 132
_MONO_ROWS = 64
"""Rows that a program reads; its taps reach past the ones that it makes."""


def tiles_of(batch: int, length: int, columns: int) -> int:
    """Tiles of 128 places and 128 columns that a result has."""
    return batch * -(-length // 128) * -(-columns // 128)


def shape_of(tiles: int, columns: int, channels: int, taps: int, *, up: bool) -> Shape:
    """tiles: those of `tiles_of`. A result is the same in any shape of one depth."""
    depth = 64 if channels % 64 == 0 else 32
    if not up and taps == 1:
        return Shape(64, 128, depth, 4, 4)
    if not up and 2 * tiles < _PROCESSORS:
        return Shape(64, 64, depth, 4, 6)
    if not up:
        return Shape(128, 128, depth, 8, 4)
    if 2 * tiles < _PROCESSORS or -columns % 128 > 64:
        return Shape(128, 64, depth, 4, 4)
    if columns % 256 <= 128 and tiles >= 4 * _PROCESSORS:
        return Shape(128, 256, depth, 8, 3)
    return Shape(128, 128, depth, 8, 4)


def convolve(
    rows: Tensor,
    weight: Tensor,
    length: int,
    *,
    taps: int = 1,
    dilation: int = 1,
    up: bool = False,
    x: Tensor | None = None,
    kept: Tensor | None = None,
    onward: OnwardTensors | None = None,
    shape: Shape | None = None,
) -> None:
    """rows `[B, R, C]`, of which `length` places are made; weight `[N, K * C]`, or with `up` `[C, K * N]`, latest row
    first. x `[B, T, N]`: the residual; kept: where the sum goes."""
    batch, _, channels = rows.shape
    columns = weight.shape[1] // taps if up else weight.shape[0]
    shape = shape or shape_of(tiles_of(batch, length, columns), columns, channels, taps, up=up)
    nothing = rows if x is None else x
    to = onward or OnwardTensors(*[nothing] * 6)
    wide = len(to.shift) if onward else columns
    tail = to.before.shape[1] if onward else 0
    block = [shape.depth, shape.columns] if up else [shape.columns, shape.depth]
    grid = triton.cdiv(length, shape.rows) * triton.cdiv(columns, shape.columns), batch
    conv_kernel[grid](
        _map(rows, shape), TensorDescriptor(weight, list(weight.shape), list(weight.stride()), block),
        nothing, nothing if kept is None else kept, *to, length, rows.stride(0) // channels,
        to.room.stride(0), to.before.stride(0), tail, dilation,
        C=channels, N=columns, WIDTH=wide, TAPS=taps, UP=up, RESIDUAL=x is not None,
        KEEP=kept is not None, SNAKE=onward is not None, M=shape.rows, COLUMNS=shape.columns, DEPTH=shape.depth,
        **_launch(shape),
    )  # fmt: skip


def mono(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """rows `[B, T + K - 1, C]`, weight `[C, K]`, bias `[1]` -> float32 `[B, T]` in [-1, 1]."""
    (batch, read, channels), taps = rows.shape, weight.shape[1]
    length = read - taps + 1
    made = torch.empty(batch, length, dtype=torch.float32, device=rows.device)
    most = _MONO_ROWS - taps + 1
    mono_kernel[(triton.cdiv(length, most), batch)](
        rows, weight, bias, made, length, read, C=channels, WIDTH=triton.next_power_of_2(channels), TAPS=taps,
        M=_MONO_ROWS, MADE=most, PDL=can_overlap(), num_warps=4, launch_pdl=can_overlap(),
    )  # fmt: skip
    return made


def _map(rows: Tensor, shape: Shape) -> TensorDescriptor:
    """The rows of all streams, one after the other: past a stream's last row are the next one's, which are read for
    places that are not stored."""
    batch, read, channels = rows.shape
    height = rows.stride(0) // channels * (batch - 1) + read
    return TensorDescriptor(rows, [height, channels], [channels, 1], [shape.rows, shape.depth])


def _launch(shape: Shape) -> dict[str, int | bool]:
    return {
        "STAGES": shape.stages, "PDL": can_overlap(), "num_warps": shape.warps, "num_stages": shape.stages,
        "launch_pdl": can_overlap(),
    }  # fmt: skip
