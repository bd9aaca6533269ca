"""The two forms of a product of many rows: `blocks`, a program for a tile or for a part of its K, where rows are some
hundreds; `stays`, programs that take tile after tile, where they are thousands. Both end in bias, activation and
residual, so that the result is written once and read by nobody in between.

Rows past the last whole tile that are few ride with it (TAIL): two tokens before 256 patches would cost a third tile of
128 rows, and its weights.

Programs that share a tile leave their sums in the workspace; the last to arrive adds them in their order, so results
don't depend on who that is.

Shape letters: R rows, N columns of the result, K; a tile is M by N.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _tanh(x, ON_GPU: tl.constexpr):
    if ON_GPU:
        # One instruction, which errs by 2^-11 of the result: of a gelu, an eighth of what rounding it to bfloat16 does.
        x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    return x


@triton.jit
def _ended(
    total, first, bias, N: tl.constexpr, WIDTH: tl.constexpr, BIAS: tl.constexpr, ACT: tl.constexpr,
    ON_GPU: tl.constexpr,
):  # fmt: skip
    """total float32 `[M, WIDTH]` of columns from `first` on, with bias and activation. ACT: 1 exact gelu, 2 by tanh."""
    if BIAS:
        n = tl.minimum(first + tl.arange(0, WIDTH), N - 1)
        total += tl.load(bias + n).to(tl.float32)[None, :]
    if ACT == 1:
        # Fitted: x (1 + tanh) / 2 is within 2.6e-5 of x (1 + erf(x / sqrt 2)) / 2 everywhere. `erf` itself would take
        # several times the instructions, which no product hides.
        square = tl.minimum(total * total, 36.0)
        angle = total * (0.7975008082366518 + square * (0.03701208360844445 - 0.00035256229638719517 * square))
        total = 0.5 * total * (1.0 + _tanh(angle, ON_GPU))
    elif ACT == 2:
        angle = total * (0.7978845608028654 + 0.035677408136300125 * total * total)
        total = 0.5 * total * (1.0 + _tanh(angle, ON_GPU))
    return total


@triton.jit
def _store(
    total, row, column, rows, bias, residual, out, N: tl.constexpr, M: tl.constexpr, WIDTH: tl.constexpr,
    BIAS: tl.constexpr, ACT: tl.constexpr, RESIDUAL: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    total = _ended(total, column, bias, N, WIDTH, BIAS, ACT, ON_GPU)
    m, n = row + tl.arange(0, M)[:, None], column + tl.arange(0, WIDTH)[None, :]
    inside = (m < rows) & (n < N)
    at = m.to(tl.int64) * N + n
    if RESIDUAL:
        total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _start(weight, stride, row, column, end, N: tl.constexpr, BLOCK_N: tl.constexpr, AHEAD: tl.constexpr,
           PDL: tl.constexpr):  # fmt: skip
    """Ask columns `column` to `end` of a tile's weight rows into L2: they follow from no earlier launch."""
    if PDL > 0 and AHEAD:
        n = tl.minimum(row + tl.arange(0, BLOCK_N), N - 1)
        size = (end - column) * 2
        if size > 0:
            tl.inline_asm_elementwise(
                "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
                "=r,l,r",
                [weight + n.to(tl.int64) * stride + column, tl.zeros([BLOCK_N], tl.int32) + size],
                dtype=tl.int32,
                is_pure=False,
                pack=1,
            )


@triton.jit
def _dot(x, w, total, SWAP: tl.constexpr):
    return tl.dot(w, x.T, total) if SWAP else tl.dot(x, w.T, total)


@triton.jit
def _sums(
    x, x_tail, tiles, row, column, begin, end, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, MOST: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Sums of a tile over steps `begin` to `end` of K, `MOST` at most: float32 `[M, BLOCK_N]` and `[TAIL, BLOCK_N]`,
    of the rows after them, which are few: there the weights are always the left operand."""
    total = tl.zeros((BLOCK_N, M) if SWAP else (M, BLOCK_N), tl.float32)
    tail = tl.zeros((BLOCK_N, TAIL if TAIL else 1), tl.float32)
    for step in tl.range(0, MOST, num_stages=STAGES):
        # Past the end of K lie zeros.
        k = tl.where(begin + step < end, (begin + step) * BLOCK_K, (K + BLOCK_K - 1) // BLOCK_K * BLOCK_K)
        w = tiles.load([column, k])
        total = _dot(x.load([row, k]), w, total, SWAP)
        if TAIL:
            tail = tl.dot(w, x_tail.load([row + M, k]).T, tail)
    return total.T if SWAP else total, tail.T


@triton.jit
def _leave(total, base, M: tl.constexpr, BLOCK_N: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, BLOCK_N)[None, :]
    tl.store(base + m * BLOCK_N + n, total)


@triton.jit
def _gather(base, SHARE: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    """The shares' sums, in their order."""
    at = base + tl.arange(0, M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.load(at, cache_modifier=".cg")
    for other in tl.static_range(1, SPLIT):
        total += tl.load(at + other * SHARE, cache_modifier=".cg")
    return total


@triton.jit
def _tile(
    x, x_tail, tiles, bias, residual, out, partials, counters, rows, row, column, tile, part, begin, end,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr, MOST: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr, TAIL: tl.constexpr,
    SHARE: tl.constexpr, BIAS: tl.constexpr, ACT: tl.constexpr, RESIDUAL: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    total, tail = _sums(
        x, x_tail, tiles, row, column, begin, end, K, M, BLOCK_N, BLOCK_K, MOST, STAGES, SWAP, TAIL
    )  # fmt: skip
    if SPLIT == 1:
        _store(total, row, column, rows, bias, residual, out, N, M, BLOCK_N, BIAS, ACT, RESIDUAL, ON_GPU)
        if TAIL:
            _store(tail, row + M, column, rows, bias, residual, out, N, TAIL, BLOCK_N, BIAS, ACT, RESIDUAL, ON_GPU)
    else:
        base = partials + tile.to(tl.int64) * (SPLIT * SHARE)
        _leave(total, base + part * SHARE, M, BLOCK_N)
        if TAIL:
            _leave(tail, base + part * SHARE + M * BLOCK_N, TAIL, BLOCK_N)
        # Every thread's part is written before one of them counts it.
        tl.debug_barrier()
        if tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1:
            tl.store(counters + tile, 0)
            total = _gather(base, SHARE, M, BLOCK_N, SPLIT)
            _store(total, row, column, rows, bias, residual, out, N, M, BLOCK_N, BIAS, ACT, RESIDUAL, ON_GPU)
            if TAIL:
                tail = _gather(base + M * BLOCK_N, SHARE, TAIL, BLOCK_N, SPLIT)
                _store(tail, row + M, column, rows, bias, residual, out, N, TAIL, BLOCK_N, BIAS, ACT, RESIDUAL, ON_GPU)


@triton.jit(do_not_specialize=["rows", "down"])
def blocks_kernel(
    x, x_tail, tiles, weight, bias, residual, out, partials, counters, rows, down, stride,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr, TAIL: tl.constexpr, AHEAD: tl.constexpr,
    PDL: tl.constexpr, BIAS: tl.constexpr, ACT: tl.constexpr, RESIDUAL: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """A program for one tile, or for one of SPLIT parts of its K. Tiles of the same weights follow each other."""
    STEPS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    MOST: tl.constexpr = (STEPS + SPLIT - 1) // SPLIT
    SHARE: tl.constexpr = (M + TAIL) * BLOCK_N
    tile, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    row, column = tile % down * M, tile // down * BLOCK_N
    begin, end = part * STEPS // SPLIT, (part + 1) * STEPS // SPLIT
    # Tiles of the same weights ask for a part of them each.
    each = (end - begin + down - 1) // down
    asked = (begin + tile % down * each) * BLOCK_K
    until = tl.minimum(tl.minimum(asked + each * BLOCK_K, end * BLOCK_K), K)
    _start(weight, stride, column, asked, until, N, BLOCK_N, AHEAD, PDL)
    if PDL > 0:
        gdc_wait()
        gdc_launch_dependents()
    if TAIL and tile % down == down - 1:
        _tile(
            x, x_tail, tiles, bias, residual, out, partials, counters, rows, row, column, tile, part, begin, end,
            N, K, M, BLOCK_N, BLOCK_K, SPLIT, MOST, STAGES, SWAP, TAIL, SHARE, BIAS, ACT, RESIDUAL, ON_GPU,
        )  # fmt: skip
    else:
        _tile(
            x, x_tail, tiles, bias, residual, out, partials, counters, rows, row, column, tile, part, begin, end,
            N, K, M, BLOCK_N, BLOCK_K, SPLIT, MOST, STAGES, SWAP, 0, SHARE, BIAS, ACT, RESIDUAL, ON_GPU,
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def stays_kernel(
    x, tiles, bias, residual, out, rows,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr, PDL: tl.constexpr,
    BIAS: tl.constexpr, ACT: tl.constexpr, RESIDUAL: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """Descriptors of x `[R, K]`, tiles of the weight `[N, K]`, residual and out `[R, N]` in half
    tiles; what lies outside is 0 and not written. The loads of the next tile run beneath the end of the one before."""
    if PDL > 0:
        gdc_wait()
        gdc_launch_dependents()
    HALF: tl.constexpr = BLOCK_N // 2
    down, across = tl.cdiv(rows, M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        first = tile // (GROUP * across) * GROUP
        within, high = tile % (GROUP * across), tl.minimum(down - first, GROUP)
        row, column = (first + within % high) * M, within // high * BLOCK_N
        total = tl.zeros((M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(x.load([row, k]), tiles.load([column, k]).T, total)
        # One half of a row is stored after the other: they need half the memory.
        left, right = total.reshape(M, 2, HALF).permute(0, 2, 1).split()
        left = _ended(left, column, bias, N, HALF, BIAS, ACT, ON_GPU)
        right = _ended(right, column + HALF, bias, N, HALF, BIAS, ACT, ON_GPU)
        if RESIDUAL:
            left += residual.load([row, column]).to(tl.float32)
        out.store([row, column], left.to(out.dtype))
        if RESIDUAL:
            right += residual.load([row, column + HALF]).to(tl.float32)
        out.store([row, column + HALF], right.to(out.dtype))
