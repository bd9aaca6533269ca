"""Linears of 2 to 64 rows whose weights come through tensor maps, straight into the tensor cores' shared memory.

With overlapping launches, the early parts of a grid settle on the processors that are free first, and the slowest
processor decides. So a linear is cut into as many equal pieces as there are processors (`PROGRAMS`), each with so much
shared memory that two fit: tiles of (weight rows x K) in one row, block after block, are dealt out evenly, and a
program's share touches at most two blocks. Without `PROGRAMS`, a program owns one block.

Programs that share a block store their sums in the workspace; the last to arrive adds them in order, so results don't
depend on which one that is.

Shape letters: R rows, M rows of a tile, N columns of the result, K.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.linear_config import Config, tile_rows


@triton.jit
def _start(
    weight, stride, tile, end, N: tl.constexpr, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GATED: tl.constexpr, AHEAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Prefetch the first AHEAD tiles from `tile` on into L2, then wait for the previous kernel."""
    if PDL == 2:
        gdc_launch_dependents()
    if PDL > 0:
        if AHEAD > 0:
            STEPS: tl.constexpr = K // BLOCK_K
            piece = tl.arange(0, BLOCK_N * AHEAD)
            at = tl.minimum(tile + piece // BLOCK_N, end - 1)
            row = piece % BLOCK_N
            if GATED:
                HALF: tl.constexpr = BLOCK_N // 2
                row = tl.minimum(at // STEPS * HALF + row % HALF, N - 1) + row // HALF * N
            else:
                row = tl.minimum(at // STEPS * BLOCK_N + row, N - 1)
            address = weight + row.to(tl.int64) * stride + at % STEPS * BLOCK_K
            tl.inline_asm_elementwise(
                "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
                "=r,l,r",
                [address, tl.full([BLOCK_N * AHEAD], BLOCK_K * 2, tl.int32)],
                dtype=tl.int32,
                is_pure=False,
                pack=1,
            )
        gdc_wait()
    if PDL == 1:
        gdc_launch_dependents()


@triton.jit
def _rows_of(x, norm, k, squares, NORM: tl.constexpr):
    """A tile of x `[M, BLOCK_K]` multiplied by the norm's weight, not yet scaled, and the squares with its own
    added."""
    value = x.load([0, k])
    if NORM:
        wide = value.to(tl.float32)
        squares += wide * wide
        value = (wide * norm.load([0, k]).to(tl.float32)).to(value.dtype)
    return value, squares


@triton.jit
def _store(
    total, squares, residual, bias, out, first, rows, eps, N: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
    WIDTH: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, up, GATED: tl.constexpr,
):  # fmt: skip
    """total, and up where gated, float32 `[WIDTH, M]`: columns of the result from `first` on. squares `[M]`."""
    n, m = first + tl.arange(0, WIDTH)[:, None], tl.arange(0, M)[None, :]
    if NORM:
        scale = tl.rsqrt(squares / K + eps)[None, :]
        total = total * scale
        if GATED:
            up = up * scale
    if BIAS:
        total += tl.load(bias + tl.minimum(n, N - 1)).to(tl.float32)
        if GATED:
            up += tl.load(bias + N + tl.minimum(n, N - 1)).to(tl.float32)
    if GATED:
        total = total * tl.sigmoid(total) * up
    inside = (m < rows) & (n < N)
    at = m * N + n
    if RESIDUAL:
        total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _product(tile, value, total):
    """From 64 on, weight rows are the left operand; fewer are the right one."""
    return tl.dot(tile, value.T, total) if tile.shape[0] >= 64 else tl.dot(value, tile.T, total)


@triton.jit(do_not_specialize=["rows"])
def _blocks(
    x, tiles, norm, weight, residual, bias, out, partials, counters, rows, stride, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, PDL: tl.constexpr,
    GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """One block of weight rows per program; gated: half a block of gate rows and half of up rows."""
    STEPS: tl.constexpr = K // BLOCK_K
    WIDTH: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    block = tl.program_id(0)
    _start(weight, stride, block * STEPS, block * STEPS + STEPS, N, K, BLOCK_N, BLOCK_K, GATED, AHEAD, PDL)
    total = tl.zeros((WIDTH, M) if WIDTH >= 64 else (M, WIDTH), tl.float32)
    up = total
    squares = tl.zeros((M, BLOCK_K), tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        value, squares = _rows_of(x, norm, k, squares, NORM)
        total = _product(tiles.load([block * WIDTH, k]), value, total)
        if GATED:
            up = _product(tiles.load([N + block * WIDTH, k]), value, up)
    if WIDTH < 64:
        total, up = total.T, up.T
    _store(
        total, tl.sum(squares, 1), residual, bias, out, block * WIDTH, rows, eps, N, K, M, WIDTH,
        NORM, BIAS, RESIDUAL, up, GATED,
    )  # fmt: skip


@triton.jit
def _leave(total, squares, base, M: tl.constexpr, BLOCK_N: tl.constexpr, NORM: tl.constexpr):
    n, m = tl.arange(0, BLOCK_N)[:, None], tl.arange(0, M)
    tl.store(base + n * M + m[None, :], total)
    if NORM:
        tl.store(base + M * BLOCK_N + m, squares)


@triton.jit
def _gather(
    partials, counters, block, residual, bias, out, rows, eps, N: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
    BLOCK_N: tl.constexpr, STEPS: tl.constexpr, TILES: tl.constexpr, PROGRAMS: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Announce that this share of a block is stored; the last program to do so adds the shares."""
    SHARE: tl.constexpr = M * (BLOCK_N + 1)
    MOST: tl.constexpr = (STEPS + TILES // PROGRAMS - 1) // (TILES // PROGRAMS) + 1  # the most programs per block
    first = ((block * STEPS + 1) * PROGRAMS - 1) // TILES
    last = ((block * STEPS + STEPS) * PROGRAMS - 1) // TILES
    if tl.atomic_add(counters + block, 1, sem="acq_rel") == last - first:
        n, m = tl.arange(0, BLOCK_N)[:, None], tl.arange(0, M)
        total = tl.zeros((BLOCK_N, M), tl.float32)
        squares = tl.zeros((M,), tl.float32)
        for number in tl.static_range(MOST):
            program = first + number
            # A program's first share precedes its second.
            second = (program * TILES // PROGRAMS // STEPS != block).to(tl.int32)
            base = partials + (program * 2 + second) * SHARE
            there = program <= last
            total += tl.load(base + n * M + m[None, :], mask=there, other=0.0, cache_modifier=".cg")
            if NORM:
                squares += tl.load(base + M * BLOCK_N + m, mask=there, other=0.0, cache_modifier=".cg")
        tl.store(counters + block, 0)
        _store(
            total, squares, residual, bias, out, block * BLOCK_N, rows, eps, N, K, M, BLOCK_N,
            NORM, BIAS, RESIDUAL, total, False,
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _shares(
    x, tiles, norm, weight, residual, bias, out, partials, counters, rows, stride, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, PDL: tl.constexpr,
    GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """An even share of all tiles per program: the end of one block, and the beginning of the next."""
    STEPS: tl.constexpr = K // BLOCK_K
    TILES: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N * STEPS
    SHARE: tl.constexpr = M * (BLOCK_N + 1)
    program = tl.program_id(0)
    begin, end = program * TILES // PROGRAMS, (program + 1) * TILES // PROGRAMS
    _start(weight, stride, begin, end, N, K, BLOCK_N, BLOCK_K, GATED, AHEAD, PDL)
    total = tl.zeros((BLOCK_N, M), tl.float32)
    ended = tl.zeros((BLOCK_N, M), tl.float32)
    squares = tl.zeros((M, BLOCK_K), tl.float32)
    ended_squares = tl.zeros((M, BLOCK_K), tl.float32)
    for number in tl.range(0, (TILES + PROGRAMS - 1) // PROGRAMS, num_stages=STAGES):
        tile = begin + number
        k = tl.where(tile < end, tile % STEPS * BLOCK_K, K)  # past the end are zeros, so nothing is read
        # Selected without a branch, so the loop stays one pipeline. `ended` of the very first tile is zeros.
        ended = tl.where(k == 0, total, ended)
        total = tl.where(k == 0, 0.0, total)
        if NORM:
            ended_squares = tl.where(k == 0, squares, ended_squares)
            squares = tl.where(k == 0, 0.0, squares)
        value, squares = _rows_of(x, norm, k, squares, NORM)
        total = tl.dot(tiles.load([tile // STEPS * BLOCK_N, k]), value.T, total)
    first, last = begin // STEPS, (end - 1) // STEPS
    base = partials + program * (2 * SHARE)
    if first != last:
        _leave(ended, tl.sum(ended_squares, 1), base, M, BLOCK_N, NORM)
        base += SHARE
    _leave(total, tl.sum(squares, 1), base, M, BLOCK_N, NORM)
    tl.debug_barrier()
    for second in tl.static_range(2):
        if first + second <= last:
            _gather(
                partials, counters, first + second, residual, bias, out, rows, eps, N, K, M, BLOCK_N, STEPS, TILES,
                PROGRAMS, NORM, BIAS, RESIDUAL,
            )  # fmt: skip


def tiles_kernel(config: Config) -> Any:
    return _shares if config.programs else _blocks


def tiles_arguments(config: Config, rows: int, n: int, k: int, gated: bool) -> dict[str, int | bool]:
    """The compile-time arguments of a kernel, without those of fused operations."""
    ahead = config.prefetch // config.k if config.pdl else 0
    return {
        "N": n, "K": k, "M": tile_rows(config, rows), "BLOCK_N": config.n, "BLOCK_K": config.k,
        "PROGRAMS": config.programs, "STAGES": config.stages, "AHEAD": 1 << ahead.bit_length() >> 1,
        "PDL": config.pdl, "GATED": gated,
    }  # fmt: skip


def descriptors(
    config: Config, x: Tensor, weight: Tensor, norm: Tensor | None, gated: bool
) -> tuple[TensorDescriptor, TensorDescriptor, TensorDescriptor | None]:
    """Tensor maps of x, of the weight, and of the norm's weight as one row. They read zeros past the end."""
    height = tile_rows(config, x.shape[0])
    row = None
    if norm is not None:
        row = TensorDescriptor(norm, [1, norm.shape[0]], [norm.shape[0], 1], [1, config.k])
    return (
        TensorDescriptor(x, list(x.shape), list(x.stride()), [height, config.k]),
        TensorDescriptor(
            weight, list(weight.shape), list(weight.stride()), [config.n // 2 if gated else config.n, config.k]
        ),
        row,
    )


def launch_tiles(
    config: Config,
    x: Tensor,
    weight: Tensor,
    norm: Tensor | None,
    eps: float,
    residual: Tensor | None,
    gated: bool,
    bias: Tensor | None,
    out: Tensor,
    shared: tuple[Tensor, Tensor],
) -> None:
    """Like `walkgraph.layers.kernels.linear.stream_linear`, into `out`; `shared` is the device's workspace."""
    rows, k = x.shape
    n = out.shape[1]
    programs = config.programs or triton.cdiv(weight.shape[0], config.n)
    tiles_kernel(config)[(programs,)](
        *descriptors(config, x, weight, norm, gated), weight, residual, bias, out, *shared, rows, weight.stride(0),
        eps, **tiles_arguments(config, rows, n, k, gated), NORM=norm is not None, BIAS=bias is not None,
        RESIDUAL=residual is not None, num_warps=config.warps, num_stages=config.stages, launch_pdl=config.pdl > 0,
    )  # fmt: skip


def warm_tiles(
    config: Config, rows: int, n: int, k: int, gated: bool, *, norm: bool, residual: bool, bias: bool
) -> None:
    """Compile a bfloat16 linear into Triton's cache, for the present GPU; nothing is launched."""
    given = torch.bfloat16

    def like(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=given, device="meta")

    fused = norm and not config.before
    maps = descriptors(config, like(rows, k), like(n * (2 if gated else 1), k), like(k) if fused else None, gated)
    tiles_kernel(config).warmup(
        *maps, given, given if residual else None, given if bias else None, given, torch.float32, torch.int32, rows, k,
        1e-6, **tiles_arguments(config, rows, n, k, gated), NORM=fused, BIAS=bias, RESIDUAL=residual,
        num_warps=config.warps, num_stages=config.stages, launch_pdl=config.pdl > 0, grid=(1,),
    )  # fmt: skip
