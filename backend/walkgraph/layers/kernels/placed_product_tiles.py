"""Products that end in turned queries, and in keys and values of a paged cache: what `product_tiles` and
`paged_block_kernels` do in two launches, and without the pass over queries, keys and values between them.

A tile's columns are whole heads of one kind. Where its rows go is read before the product, and so costs no time.

Shape letters: R rows of blocks of n tokens, N columns of the product ((H + 2G) * D), K; a tile is M by N. H query
heads, G key/value heads, D head dim.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.product_tiles import _gather, _leave, _start, _sums


@triton.jit
def _places(at, tables, M: tl.constexpr, PAGE: tl.constexpr):
    """Of M rows from `at` on: whether they are rows, where their turns lie, and their slots in the pool, int64."""
    rows, pages, lengths, count, tokens, reach, row_stride, token_stride = tables
    m = at + tl.arange(0, M)
    inside = m < count
    b, i = m // tokens, m % tokens
    row = tl.load(rows + b, mask=inside, other=0)
    token = tl.load(lengths + row, mask=inside, other=0) + i
    page = tl.load(pages + row.to(tl.int64) * reach + tl.minimum(token // PAGE, reach - 1), mask=inside, other=0)
    return inside, b.to(tl.int64) * row_stride + i * token_stride, page.to(tl.int64) * PAGE + token % PAGE


@triton.jit
def _placed(
    total, at, column, places, bias, turns, to, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
    WIDTH: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """total float32 `[M, WIDTH]`: columns from `column` on of rows from `at` on, all of one kind or past the end."""
    N: tl.constexpr = (H + 2 * G) * D
    inside, turn, slot = places
    cos, sin = turns
    q, slot_k, slot_v, slot_stride = to
    n = tl.arange(0, WIDTH)
    if BIAS:
        total += tl.load(bias + tl.minimum(column + n, N - 1)).to(tl.float32)[None, :]
    # Chosen, not branched to: a loop over tiles stays one pipeline.
    query, turns_too = column < H * D, column < (H + G) * D
    even, odd = total.reshape(M, WIDTH // D, D // 2, 2).split()
    pair = turn[:, None, None] + 2 * tl.arange(0, D // 2)[None, None, :]
    there = inside[:, None, None] & turns_too
    cos_even = tl.load(cos + pair, mask=there, other=1.0)
    cos_odd = tl.load(cos + pair + 1, mask=there, other=1.0)
    sin_even = tl.load(sin + pair, mask=there, other=0.0)
    sin_odd = tl.load(sin + pair + 1, mask=there, other=0.0)
    turned = tl.join(even * cos_even - odd * sin_even, odd * cos_odd + even * sin_odd).reshape(M, WIDTH)
    m = (at + tl.arange(0, M)).to(tl.int64)
    row = tl.where(query, m * (H * D), slot * slot_stride)[:, None]
    first = tl.where(query, column, tl.where(turns_too, column - H * D, column - (H + G) * D))
    base = tl.where(query, q, tl.where(turns_too, slot_k, slot_v))
    tl.store(
        base + row + first + n[None, :], turned.to(q.dtype.element_ty), mask=inside[:, None] & (column + n < N)[None, :]
    )


@triton.jit
def _tile(
    x, x_tail, tiles, bias, turns, to, tables, partials, counters, row, column, tile, part, begin, end,
    K: tl.constexpr, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, MOST: tl.constexpr, STAGES: tl.constexpr,
    SWAP: tl.constexpr, TAIL: tl.constexpr, SHARE: tl.constexpr, BIAS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    places = _places(row, tables, M, PAGE)
    tail_places = places
    if TAIL:
        tail_places = _places(row + M, tables, TAIL, PAGE)
    if PDL > 0:
        gdc_wait()
        gdc_launch_dependents()
    total, tail = _sums(
        x, x_tail, tiles, row, column, begin, end, K, M, BLOCK_N, BLOCK_K, MOST, STAGES, SWAP, TAIL
    )  # fmt: skip
    if SPLIT == 1:
        _placed(total, row, column, places, bias, turns, to, H, G, D, M, BLOCK_N, BIAS)
        if TAIL:
            _placed(tail, row + M, column, tail_places, bias, turns, to, H, G, D, TAIL, BLOCK_N, BIAS)
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
            _placed(total, row, column, places, bias, turns, to, H, G, D, M, BLOCK_N, BIAS)
            if TAIL:
                tail = _gather(base + M * BLOCK_N, SHARE, TAIL, BLOCK_N, SPLIT)
                _placed(tail, row + M, column, tail_places, bias, turns, to, H, G, D, TAIL, BLOCK_N, BIAS)


@triton.jit(do_not_specialize=["count", "down", "tokens", "reach"])
def placed_blocks_kernel(
    x, x_tail, tiles, weight, bias, cos, sin, q, slot_k, slot_v, rows, pages, lengths, partials, counters, count, down,
    stride, tokens, reach, row_stride, token_stride, slot_stride,
    N: tl.constexpr, K: tl.constexpr, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    SWAP: tl.constexpr, TAIL: tl.constexpr, AHEAD: tl.constexpr, PDL: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """As `product_tiles.blocks_kernel`."""
    STEPS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    MOST: tl.constexpr = (STEPS + SPLIT - 1) // SPLIT
    SHARE: tl.constexpr = (M + TAIL) * BLOCK_N
    tile, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    row, column = tile % down * M, tile // down * BLOCK_N
    begin, end = part * STEPS // SPLIT, (part + 1) * STEPS // SPLIT
    each = (end - begin + down - 1) // down
    asked = (begin + tile % down * each) * BLOCK_K
    until = tl.minimum(tl.minimum(asked + each * BLOCK_K, end * BLOCK_K), K)
    _start(weight, stride, column, asked, until, N, BLOCK_N, AHEAD, PDL)
    tables = (rows, pages, lengths, count, tokens, reach, row_stride, token_stride)
    turns, to = (cos, sin), (q, slot_k, slot_v, slot_stride)
    if TAIL > 0 and tile % down == down - 1:
        _tile(
            x, x_tail, tiles, bias, turns, to, tables, partials, counters, row, column, tile, part, begin, end,
            K, H, G, D, PAGE, M, BLOCK_N, BLOCK_K, SPLIT, MOST, STAGES, SWAP, TAIL, SHARE, BIAS, PDL,
        )  # fmt: skip
    else:
        _tile(
            x, x_tail, tiles, bias, turns, to, tables, partials, counters, row, column, tile, part, begin, end,
            K, H, G, D, PAGE, M, BLOCK_N, BLOCK_K, SPLIT, MOST, STAGES, SWAP, 0, SHARE, BIAS, PDL,
        )  # fmt: skip


@triton.jit(do_not_specialize=["count", "tokens", "reach"])
def placed_stays_kernel(
    x, tiles, bias, cos, sin, q, slot_k, slot_v, rows, pages, lengths, count, tokens, reach, row_stride, token_stride,
    slot_stride,
    N: tl.constexpr, K: tl.constexpr, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr, PDL: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """As `product_tiles.stays_kernel`."""
    if PDL > 0:
        gdc_wait()
        gdc_launch_dependents()
    HALF: tl.constexpr = BLOCK_N // 2
    tables = (rows, pages, lengths, count, tokens, reach, row_stride, token_stride)
    turns, to = (cos, sin), (q, slot_k, slot_v, slot_stride)
    down, across = tl.cdiv(count, M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        first = tile // (GROUP * across) * GROUP
        within, high = tile % (GROUP * across), tl.minimum(down - first, GROUP)
        row, column = (first + within % high) * M, within // high * BLOCK_N
        total = tl.zeros((M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(x.load([row, k]), tiles.load([column, k]).T, total)
        places = _places(row, tables, M, PAGE)
        left, right = total.reshape(M, 2, HALF).permute(0, 2, 1).split()
        _placed(left, row, column, places, bias, turns, to, H, G, D, M, HALF, BIAS)
        _placed(right, row, column + HALF, places, bias, turns, to, H, G, D, M, HALF, BIAS)
