"""Linears of few rows, bound by reading their weights: `norm -> x @ weight.T -> bias, SwiGLU, residual`.

A program owns a block of weight rows and a part of K. Weights are requested before waiting for the previous kernel's
end, and the stream doesn't wait for the norm: programs sum the squares of x on the way, multiply x by the norm's
weight, and scale the sums by the inverse root mean square at the end. With the tensor cores the weighted x is rounded
to x's type before the product, where a plain norm rounds after its scaling; the relative error is the same.

Programs that share a block store partial sums in a workspace; the last to arrive adds them in order, so results don't
depend on which one that is, and resets the counter to zero. Each stream has its own workspace.

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

from walkgraph.layers.kernels.linear_config import COUNTERS, PARTIAL_BYTES, Config, tile_rows
from walkgraph.layers.kernels.linear_norm import norm_rows
from walkgraph.layers.kernels.linear_tiles import launch_tiles, warm_tiles
from walkgraph.layers.kernels.workspaces import Workspaces


@triton.jit
def weight_rows(block, at, N: tl.constexpr, GATED: tl.constexpr, BLOCK_N: tl.constexpr):
    """Weight rows of a block; those past the end repeat the last one. Each gate row is followed by its up row."""
    index = block * BLOCK_N + at
    if GATED:
        return (tl.minimum(index // 2, N - 1) + (index % 2) * N).to(tl.int64)
    return tl.minimum(index, N - 1).to(tl.int64)


@triton.jit
def _start(
    weight, stride, block, first, N: tl.constexpr, GATED: tl.constexpr, BLOCK_N: tl.constexpr,
    PREFETCH: tl.constexpr, THREADS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Prefetch the first weights, then wait for the previous kernel."""
    if PDL == 2:
        gdc_launch_dependents()
    if PDL > 0:
        if PREFETCH > 0:
            PIECES: tl.constexpr = THREADS // BLOCK_N if THREADS > BLOCK_N else 1  # of a row, one per thread
            WIDTH: tl.constexpr = PREFETCH // PIECES
            piece = tl.arange(0, BLOCK_N * PIECES)
            rows = weight_rows(block, piece // PIECES, N, GATED, BLOCK_N)
            address = weight + rows * stride + first + (piece % PIECES) * WIDTH
            tl.inline_asm_elementwise(
                "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
                "=r,l,r",
                [address, tl.full([BLOCK_N * PIECES], WIDTH * 2, tl.int32)],
                dtype=tl.int32,
                is_pure=False,
                pack=1,
            )
        gdc_wait()
    if PDL == 1:
        gdc_launch_dependents()


@triton.jit
def finish(
    total, squares, residual, bias, out, partials, counters, block, part, rows, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
    GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """total float32 `[M, BLOCK_N]`, squares float32 `[M, 1]`: this program's share of the sums."""
    if SPLIT == 1:
        _store(total, squares, residual, bias, out, block, rows, eps, N, K, M, BLOCK_N, GATED, NORM, BIAS, RESIDUAL)
    else:
        TILE: tl.constexpr = M * (BLOCK_N + 1)
        m = tl.arange(0, M)[:, None]
        base = partials + block * (SPLIT * TILE)
        at = m * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        tl.store(base + part * TILE + at, total)
        if NORM:
            tl.store(base + part * TILE + M * BLOCK_N + m, squares)
        tl.debug_barrier()
        if tl.atomic_add(counters + block, 1, sem="acq_rel") == SPLIT - 1:
            total = tl.load(base + at, cache_modifier=".cg")
            if NORM:
                squares = tl.load(base + M * BLOCK_N + m, cache_modifier=".cg")
            for other in tl.static_range(1, SPLIT):
                total += tl.load(base + other * TILE + at, cache_modifier=".cg")
                if NORM:
                    squares += tl.load(base + other * TILE + M * BLOCK_N + m, cache_modifier=".cg")
            tl.store(counters + block, 0)
            _store(total, squares, residual, bias, out, block, rows, eps, N, K, M, BLOCK_N, GATED, NORM, BIAS, RESIDUAL)


@triton.jit
def _store(
    total, squares, residual, bias, out, block, rows, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr,
    GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    if NORM:
        total = total * tl.rsqrt(squares / K + eps)
    if BIAS:
        at = weight_rows(block, tl.arange(0, BLOCK_N), N, GATED, BLOCK_N)
        total += tl.load(bias + at).to(tl.float32)[None, :]
    WIDTH: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    if GATED:
        gate, up = tl.split(tl.reshape(total, (M, WIDTH, 2)))
        total = gate * tl.sigmoid(gate) * up
    m = tl.arange(0, M)[:, None]
    n = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = (m < rows) & (n < N)
    at = m * N + n
    if RESIDUAL:
        total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _vector(
    x, weight, norm, residual, bias, out, partials, counters, rows, stride, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, THREADS: tl.constexpr, PREFETCH: tl.constexpr, PDL: tl.constexpr,
    GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    """Multiply and sum: M is 1, 2 or 4. Every thread keeps its own sums until the end."""
    PART: tl.constexpr = K // SPLIT
    block, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    first = part * PART
    _start(weight, stride, block, first, N, GATED, BLOCK_N, PREFETCH, THREADS, PDL)
    at_k = first + tl.arange(0, BLOCK_K)[None, None, :]
    m = tl.minimum(tl.arange(0, M), rows - 1)[:, None, None]
    n = weight_rows(block, tl.arange(0, BLOCK_N), N, GATED, BLOCK_N)[None, :, None]
    x_at, weight_at = x + m * K + at_k, weight + n * stride + at_k
    total = tl.zeros((M, BLOCK_N, BLOCK_K), tl.float32)
    squares = tl.zeros((M, 1, BLOCK_K), tl.float32)
    for k in tl.range(0, PART, BLOCK_K, num_stages=STAGES):
        w = tl.load(weight_at + k, eviction_policy="evict_first").to(tl.float32)
        value = tl.load(x_at + k, eviction_policy="evict_last").to(tl.float32)
        if NORM:
            squares += value * value
            value *= tl.load(norm + at_k + k, eviction_policy="evict_last").to(tl.float32)
        total += value * w
    finish(
        tl.sum(total, 2), tl.sum(squares, 2), residual, bias, out, partials, counters, block, part, rows, eps,
        N, K, M, BLOCK_N, SPLIT, GATED, NORM, BIAS, RESIDUAL,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _matrix(
    x, weight, norm, residual, bias, out, partials, counters, rows, stride, eps,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, THREADS: tl.constexpr, PREFETCH: tl.constexpr, PDL: tl.constexpr,
    GATED: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    """Use the tensor cores: M is 16, 32 or 64."""
    PART: tl.constexpr = K // SPLIT
    block, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    first = part * PART
    _start(weight, stride, block, first, N, GATED, BLOCK_N, PREFETCH, THREADS, PDL)
    at_k = first + tl.arange(0, BLOCK_K)[None, :]
    m = tl.arange(0, M)[:, None]
    n = weight_rows(block, tl.arange(0, BLOCK_N), N, GATED, BLOCK_N)[:, None]
    x_at, weight_at = x + m * K + at_k, weight + n * stride + at_k
    total = tl.zeros((BLOCK_N, M) if SWAP else (M, BLOCK_N), tl.float32)
    squares = tl.zeros((M, BLOCK_K), tl.float32)
    for k in tl.range(0, PART, BLOCK_K, num_stages=STAGES):
        w = tl.load(weight_at + k, eviction_policy="evict_first")
        value = tl.load(x_at + k, mask=m < rows, other=0.0, eviction_policy="evict_last")
        if NORM:
            wide = value.to(tl.float32)
            squares += wide * wide
            scale = tl.load(norm + at_k + k, eviction_policy="evict_last").to(tl.float32)
            value = (wide * scale).to(value.dtype)
        total = tl.dot(w, tl.trans(value), total) if SWAP else tl.dot(value, tl.trans(w), total)
    if SWAP:
        total = tl.trans(total)
    finish(
        total, tl.sum(squares, 1, keep_dims=True), residual, bias, out, partials, counters, block, part, rows, eps,
        N, K, M, BLOCK_N, SPLIT, GATED, NORM, BIAS, RESIDUAL,
    )  # fmt: skip


def _made(device: torch.device) -> tuple[Tensor, Tensor]:
    return (
        torch.empty(PARTIAL_BYTES // 4, dtype=torch.float32, device=device),
        torch.zeros(COUNTERS, dtype=torch.int32, device=device),
    )


workspace = Workspaces(_made, "run a linear")
"""Partial sums (float32) and counters (int32, zeros between launches) per device and stream, as a loop's steps and an
encoder beside them may be launched at the same time."""


def arguments(config: Config, rows: int, n: int, k: int, gated: bool) -> dict[str, int | bool]:
    """The compile-time arguments of a kernel, without those of fused operations."""
    part, threads = k // config.split, 32 * config.warps
    prefetch = min(config.prefetch, part) if config.pdl else 0
    pieces = max(1, threads // config.n)
    prefetch -= prefetch % (8 * pieces)  # a piece is a multiple of 16 bytes
    return {
        "N": n, "K": k, "M": tile_rows(config, rows), "BLOCK_N": config.n, "BLOCK_K": config.k,
        "SPLIT": config.split, "STAGES": config.stages, "THREADS": threads, "PREFETCH": prefetch,
        "PDL": config.pdl, "GATED": gated, "SWAP": config.swap,
    }  # fmt: skip


def _kernel(config: Config) -> Any:
    return _vector if config.vector else _matrix


def warm(
    config: Config, rows: int, n: int, k: int, gated: bool, *, norm: bool, residual: bool, bias: bool = False
) -> None:
    """Compile a bfloat16 linear into Triton's cache, for the present GPU; nothing is launched."""
    if config.tiles:
        warm_tiles(config, rows, n, k, gated, norm=norm, residual=residual, bias=bias)
        return
    given, fused = torch.bfloat16, norm and not config.before
    _kernel(config).warmup(
        given, given, given if fused else None, given if residual else None, given if bias else None, given,
        torch.float32, torch.int32, rows, k, 1e-6, **arguments(config, rows, n, k, gated), NORM=fused, BIAS=bias,
        RESIDUAL=residual, **options(config), grid=(1,),
    )  # fmt: skip


def options(config: Config) -> dict[str, int | bool]:
    """How a kernel is compiled and launched."""
    return {"num_warps": config.warps, "num_stages": config.stages, "launch_pdl": config.pdl > 0}


def stream_linear(
    config: Config,
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    bias: Tensor | None = None,
    exact: bool = False,
) -> Tensor:
    """`walkgraph.layers.linear.step_linear.linear` for a config that `fits`; x `[R, K]` and the residual `[R, N]`
    contiguous."""
    rows, k = x.shape
    n = weight.shape[0] // (2 if gated else 1)
    if norm is not None and config.before:
        normed = torch.empty_like(x)
        norm_rows(x, norm, eps, normed, config.pdl)
        x, norm = normed, None
    partials, counters = workspace(x.device)
    out = torch.empty((rows, n), dtype=torch.float32 if exact else x.dtype, device=x.device)
    if config.tiles:
        launch_tiles(config, x, weight, norm, eps, residual, gated, bias, out, (partials, counters))
        return out
    blocks = triton.cdiv(weight.shape[0], config.n)
    _kernel(config)[(blocks * config.split,)](
        x, weight, norm, residual, bias, out, partials, counters, rows, weight.stride(0), eps,
        **arguments(config, rows, n, k, gated), NORM=norm is not None, BIAS=bias is not None,
        RESIDUAL=residual is not None, **options(config),
    )  # fmt: skip
    return out
