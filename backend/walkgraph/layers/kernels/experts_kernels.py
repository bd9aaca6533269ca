"""Kernels of one step of a mixture of experts behind its router's logits.

RMS norm, the chosen experts' MLPs, their sum and the residual take three launches, which read each chosen expert's
weights once and no other's.

`choose_kernel` norms the rows and chooses their experts; a row and one of its experts are a *pair*. Programs of the two
products work out which experts were chosen. Then each has one tile of an expert; or there are as many programs as the
processors hold, and each has an even share of all tiles, which it multiplies without draining its loads. Measurements
decide which. No shape depends on the routing, so a captured graph serves any.

`inner_kernel` multiplies the rows of an expert's pairs with tiles of gate and up rows. `outer_kernel` multiplies with
tiles of down rows and stores each pair's result; the last program at a tile sums every row's results in the order of
their experts. Thus a row's numbers don't depend on the order of programs. Weights are prefetched into L2 as soon as it
is known which are needed, or likely.

Shape letters: R rows, M rows of a tile, P pairs, E experts, C experts chosen for each row, W model width, F hidden
width, T tiles of an expert.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportOperatorIssue=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_LEAST = tl.constexpr(-1e30)
AHEAD_BYTES = tl.constexpr(1 << 18)
"""Bytes that the programs of a processor prefetch: of all processors, about two thirds of L2."""


@triton.jit
def _begin(PDL: tl.constexpr):
    """Wait for the previous kernel's results, then let the next one start."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def _prefetch(address, size, COUNT: tl.constexpr):
    """Ask for `size` bytes from each of COUNT addresses in L2."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [address, tl.full([COUNT], size, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def choose_kernel(
    x, norm, logits, normed, table, shares, masks, eps,
    W: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, ALL: tl.constexpr, CHOSEN: tl.constexpr,
    RENORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program for each row. normed `[R, W]`; table int32 and shares float32 `[R, C]`: the experts of each row in
    ascending order; masks int32 `[R, ALL / 32]`: the same as bits. WIDTH >= W and ALL >= E are powers of two."""
    row, at, e = tl.program_id(0), tl.arange(0, WIDTH), tl.arange(0, ALL)
    _begin(PDL)
    logit = tl.load(logits + row * E + e, mask=e < E, other=_LEAST)
    value = tl.load(x + row * W + at, mask=at < W, other=0.0).to(tl.float32)
    weight = tl.load(norm + at, mask=at < W, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / W + eps)
    tl.store(normed + row * W + at, (value * scale * weight).to(normed.dtype.element_ty), mask=at < W)
    # A row of NaN chooses some experts too; its results are NaN anyway.
    logit = tl.where(logit > _LEAST, logit, _LEAST)
    mass = tl.where(e < E, tl.exp(logit - tl.max(logit, 0)), 0.0)
    left = tl.where(e < E, logit, float("-inf"))
    for _ in tl.static_range(CHOSEN):
        best = tl.max(left, 0)
        first = tl.min(tl.where(left == best, e, ALL), 0)
        left = tl.where(e == first, float("-inf"), left)
    picked = (left == float("-inf")) & (e < E)
    share = tl.where(picked, mass, 0.0)
    share /= tl.sum(share, 0) if RENORMED else tl.sum(mass, 0)
    one = picked.to(tl.int32)
    place = row * CHOSEN + tl.cumsum(one, 0) - one
    tl.store(table + place, e, mask=picked)
    tl.store(shares + place, share, mask=picked)
    words = tl.sum((one << (e % 32)).reshape(ALL // 32, 32), 1)
    tl.store(masks + row * (ALL // 32) + tl.arange(0, ALL // 32), words)


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _chosen(masks, rows, MOST: tl.constexpr, ALL: tl.constexpr, CHOSEN: tl.constexpr):
    """int32 `[ALL]`: 1 for every expert that a row has chosen, and its rank among them; their count. Of one row, the
    table has them. MOST >= rows is a power of two."""
    if MOST == 1:
        return 0, 0, CHOSEN
    else:  # noqa: RET505 - what follows a return is compiled too
        WORDS: tl.constexpr = ALL // 32
        row, word = tl.arange(0, MOST)[:, None], tl.arange(0, WORDS)[None, :]
        bits = tl.load(masks + row * WORDS + word, mask=row < rows, other=0, cache_modifier=".cg")
        either = tl.reduce(bits, 0, _or)
        active = ((either[:, None] >> tl.arange(0, 32)[None, :]) & 1).reshape(ALL)
        return active, tl.cumsum(active, 0) - 1, tl.sum(active, 0)


@triton.jit
def _tally(into, number):
    """Count a number into a tally, int64 `[3]`; see `layers.tally`."""
    if into is not None and tl.program_id(0) == 0:
        tl.atomic_add(into, 1, sem="relaxed")
        tl.atomic_add(into + 1, number, sem="relaxed")
        tl.atomic_max(into + 2, number, sem="relaxed")


@triton.jit
def _share(units, SHARING: tl.constexpr):
    """The first unit of this program, and the one after its last. Every processor has an even share, and the programs
    on it, which are a processors' number apart, an even share of that. Without SHARING, a program has one unit."""
    if SHARING == 0:
        only = tl.program_id(0)
        return only, tl.minimum(only + 1, units)
    processors = tl.num_programs(0) // SHARING
    place, slot = tl.program_id(0) % processors, tl.program_id(0) // processors
    first = place * units // processors
    size = (place + 1) * units // processors - first
    return first + slot * size // SHARING, first + (slot + 1) * size // SHARING


@triton.jit
def _expert(table, active, rank, number, ALL: tl.constexpr, MOST: tl.constexpr, EACH: tl.constexpr):
    """The expert of this number among those that were chosen, in ascending order; with EACH, among all."""
    if EACH:
        expert = number
    elif MOST == 1:
        expert = tl.load(table + number, cache_modifier=".cg")
    else:
        expert = tl.sum(tl.where((active > 0) & (rank == number), tl.arange(0, ALL), 0), 0)
    return expert


@triton.jit
def _table(table, rows, MOST: tl.constexpr, CHOSEN: tl.constexpr, PLACES: tl.constexpr):
    """int32 `[MOST, PLACES]`: the experts of each row; -1 elsewhere. PLACES >= CHOSEN is a power of two."""
    row, place = tl.arange(0, MOST)[:, None], tl.arange(0, PLACES)[None, :]
    return tl.load(table + row * CHOSEN + place, mask=(row < rows) & (place < CHOSEN), other=-1, cache_modifier=".cg")


@triton.jit
def _pairs(chosen, expert, MOST: tl.constexpr, CHOSEN: tl.constexpr, PLACES: tl.constexpr):
    """Returns int32 `[MOST]` twice: for each row 1 if it has chosen the expert, and the pair."""
    hit = (chosen == expert).to(tl.int32)
    place = tl.sum(hit * tl.arange(0, PLACES)[None, :], 1)
    return tl.sum(hit, 1), tl.arange(0, MOST) * CHOSEN + place


@triton.jit
def _some(mine, pairs, order, first, M: tl.constexpr):
    """int32 `[M]`: the pairs of M rows that have chosen an expert, from the `first` on; 0 past the last."""
    hit = (mine > 0)[None, :] & (order[None, :] == first + tl.arange(0, M)[:, None])
    return tl.sum(tl.where(hit, pairs[None, :], 0), 1)


@triton.jit
def _product(tile, value, total, EIGHT: tl.constexpr):
    """tile `[N, K]`, value `[M, K]`. From 64 on, weight rows are the left operand, total `[N, M]`; fewer are the right
    one, total `[M, N]`. Eight bits become float16, which has all their numbers and takes one instruction for two; rows
    beyond its range are clamped."""
    if EIGHT:
        row = tl.clamp(value.to(tl.float32), -65504.0, 65504.0).to(tl.float16)
        column = tile.to(tl.float16)
    else:
        row = value
        column = tile
    return tl.dot(column, row.T, total) if tile.shape[0] >= 64 else tl.dot(row, column.T, total)


@triton.jit
def _prefetch_rows(gate_up, expert, tile, W: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr, SHARING: tl.constexpr):
    """Ask for the first columns of a tile of gate and up."""
    number = tl.arange(0, 2 * BLOCK)
    row = expert.to(tl.int64) * (2 * F) + number // BLOCK * F + tile * BLOCK + number % BLOCK
    SIZE: tl.constexpr = gate_up.dtype.element_ty.primitive_bitwidth // 8
    EACH: tl.constexpr = AHEAD_BYTES // ((SHARING or 2) * 2 * BLOCK)
    AHEAD: tl.constexpr = EACH if EACH < W * SIZE else W * SIZE
    _prefetch(gate_up + row * W, AHEAD, 2 * BLOCK)


@triton.jit
def _inner_step(tiles, scales, value_at, inside, expert, tile, step, total, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    """Add the products of a tile of gate and up rows with DEPTH columns."""
    weight = tiles.load([2 * expert, tile * BLOCK, step * DEPTH]).reshape(2 * BLOCK, DEPTH)
    value = tl.load(value_at + step * DEPTH, mask=inside[:, None], other=0.0, eviction_policy="evict_last")
    return _product(weight, value, total, scales is not None)


@triton.jit
def _outer_step(
    tiles, scales, value_at, inside, expert, tile, step, total, W: tl.constexpr, BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """Add the products of a tile of down rows with DEPTH columns."""
    weight = tiles.load([expert * W + tile * BLOCK, step * DEPTH])
    value = tl.load(value_at + step * DEPTH, mask=inside[:, None], other=0.0, eviction_policy="evict_last")
    return _product(weight, value, total, scales is not None)


@triton.jit
def _gate(total, scales, inner, expert, tile, pair, inside, F: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr):
    """Store silu(gate) * up of a tile's sums, gate rows first."""
    column = tile * BLOCK + tl.arange(0, BLOCK)
    both = total.T if BLOCK >= 32 else total
    gate, up = tl.split(both.reshape(M, 2, BLOCK).permute(0, 2, 1))
    if scales is not None:
        gate *= tl.load(scales + expert * (2 * F) + column)[None, :]
        up *= tl.load(scales + expert * (2 * F) + F + column)[None, :]
    result = gate * tl.sigmoid(gate) * up
    tl.store(inner + pair[:, None] * F + column[None, :], result.to(inner.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _partial(total, share, scales, partials, expert, tile, pair, inside, W: tl.constexpr, BLOCK: tl.constexpr):
    """Store the sums of a tile, by their shares."""
    column = tile * BLOCK + tl.arange(0, BLOCK)
    result = (total.T if BLOCK >= 64 else total) * share[:, None]
    if scales is not None:
        result *= tl.load(scales + expert * W + column)[None, :]
    tl.store(partials + pair[:, None] * W + column[None, :], result, mask=inside[:, None])


@triton.jit
def _inner_tiles(
    tiles, scales, value_at, inner, expert, pair, inside, begin, stop,
    F: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    SHARING: tl.constexpr, STAGES: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """Multiply some pairs of an expert with the tiles from `begin` to `stop`."""
    ROWS: tl.constexpr = 2 * BLOCK
    total = tl.zeros((ROWS, M) if ROWS >= 64 else (M, ROWS), tl.float32)
    if SHARING == 0:
        for step in tl.range(0, STEPS, num_stages=STAGES):
            total = _inner_step(tiles, scales, value_at, inside, expert, begin, step, total, BLOCK, DEPTH)
        _gate(total, scales, inner, expert, begin, pair, inside, F, M, BLOCK)
    elif ON_GPU:
        # One loop over the steps of all tiles, so that loads of the next tile begin before this one is done.
        for number in tl.range(begin * STEPS, stop * STEPS, num_stages=STAGES):
            tile, step = number // STEPS, number % STEPS
            total = _inner_step(tiles, scales, value_at, inside, expert, tile, step, total, BLOCK, DEPTH)
            if step == STEPS - 1:
                _gate(total, scales, inner, expert, tile, pair, inside, F, M, BLOCK)
                total = tl.zeros((ROWS, M) if ROWS >= 64 else (M, ROWS), tl.float32)
    else:  # the interpreter takes no bounds that are known at run time
        tile = begin
        while tile < stop:
            total = tl.zeros((ROWS, M) if ROWS >= 64 else (M, ROWS), tl.float32)
            for step in range(STEPS):
                total = _inner_step(tiles, scales, value_at, inside, expert, tile, step, total, BLOCK, DEPTH)
            _gate(total, scales, inner, expert, tile, pair, inside, F, M, BLOCK)
            tile += 1


@triton.jit(do_not_specialize=["rows"])
def inner_kernel(
    normed, tiles, gate_up, scales, table, masks, inner, tally, rows,
    W: tl.constexpr, F: tl.constexpr, E: tl.constexpr, M: tl.constexpr, MOST: tl.constexpr, ALL: tl.constexpr,
    PLACES: tl.constexpr, LIKELY: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    SHARING: tl.constexpr, STAGES: tl.constexpr, ON_GPU: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """inner `[P, F]`: silu(gate) * up of each pair. tiles: a map of gate and up, `[2E, F, W]`; scales float32 `[E, 2F]`
    of weights in eight bits, or None; tally: of how many experts were chosen, or None. LIKELY: most experts are
    chosen."""
    TILES: tl.constexpr = F // BLOCK
    STEPS: tl.constexpr = W // DEPTH
    EACH: tl.constexpr = LIKELY and SHARING == 0
    if PDL and LIKELY:
        guess, _ = _share(E * TILES, SHARING)
        _prefetch_rows(gate_up, guess // TILES, guess % TILES, W, F, BLOCK, SHARING)
    _begin(PDL)
    active, rank, experts = _chosen(masks, rows, MOST, ALL, CHOSEN)
    _tally(tally, experts)
    unit, end = _share((E if EACH else experts) * TILES, SHARING)
    if PDL and not EACH and unit < end:
        ahead = _expert(table, active, rank, unit // TILES, ALL, MOST, EACH)
        _prefetch_rows(gate_up, ahead, unit % TILES, W, F, BLOCK, SHARING)
    chosen = _table(table, rows, MOST, CHOSEN, PLACES)
    at = tl.arange(0, DEPTH)[None, :]
    while unit < end:
        expert = _expert(table, active, rank, unit // TILES, ALL, MOST, EACH)
        begin, stop = unit % TILES, tl.minimum(unit % TILES + end - unit, TILES)
        mine, pairs = _pairs(chosen, expert, MOST, CHOSEN, PLACES)
        order = tl.cumsum(mine, 0) - 1
        count = tl.sum(mine, 0)
        first = 0
        while first < count:
            inside = first + tl.arange(0, M) < count
            pair = _some(mine, pairs, order, first, M)
            value_at = normed + (pair // CHOSEN)[:, None] * W + at
            _inner_tiles(
                tiles, scales, value_at, inner, expert, pair, inside, begin, stop, F, M, STEPS, BLOCK, DEPTH, SHARING,
                STAGES, ON_GPU,
            )  # fmt: skip
            first += M
        unit += stop - begin


@triton.jit
def _sum_tile(
    partials, residual, out, tile, rows,
    W: tl.constexpr, M: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Sum the results of every row in a tile of columns."""
    column = tile * BLOCK + tl.arange(0, BLOCK)
    first = 0
    while first < rows:
        row = first + tl.arange(0, M)
        inside = row < rows
        total = tl.zeros((M, BLOCK), tl.float32)
        for c in tl.static_range(CHOSEN):
            result = partials + (row * CHOSEN + c)[:, None] * W + column[None, :]
            total += tl.load(result, mask=inside[:, None], other=0.0, cache_modifier=".cg")
        to = row[:, None] * W + column[None, :]
        if RESIDUAL:
            total += tl.load(residual + to, mask=inside[:, None], other=0.0).to(tl.float32)
        tl.store(out + to, total.to(out.dtype.element_ty), mask=inside[:, None])
        first += M


@triton.jit
def _outer_tiles(
    tiles, scales, value_at, shares, partials, expert, pair, inside, begin, stop,
    W: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    SHARING: tl.constexpr, STAGES: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """Multiply some pairs of an expert with the tiles from `begin` to `stop`, as `_inner_tiles` does."""
    share = tl.load(shares + pair, mask=inside, other=0.0)
    total = tl.zeros((BLOCK, M) if BLOCK >= 64 else (M, BLOCK), tl.float32)
    if SHARING == 0:
        for step in tl.range(0, STEPS, num_stages=STAGES):
            total = _outer_step(tiles, scales, value_at, inside, expert, begin, step, total, W, BLOCK, DEPTH)
        _partial(total, share, scales, partials, expert, begin, pair, inside, W, BLOCK)
    elif ON_GPU:
        for number in tl.range(begin * STEPS, stop * STEPS, num_stages=STAGES):
            tile, step = number // STEPS, number % STEPS
            total = _outer_step(tiles, scales, value_at, inside, expert, tile, step, total, W, BLOCK, DEPTH)
            if step == STEPS - 1:
                _partial(total, share, scales, partials, expert, tile, pair, inside, W, BLOCK)
                total = tl.zeros((BLOCK, M) if BLOCK >= 64 else (M, BLOCK), tl.float32)
    else:
        tile = begin
        while tile < stop:
            total = tl.zeros((BLOCK, M) if BLOCK >= 64 else (M, BLOCK), tl.float32)
            for step in range(STEPS):
                total = _outer_step(tiles, scales, value_at, inside, expert, tile, step, total, W, BLOCK, DEPTH)
            _partial(total, share, scales, partials, expert, tile, pair, inside, W, BLOCK)
            tile += 1


@triton.jit
def _finish(
    partials, residual, out, counters, begin, stop, experts, rows,
    W: tl.constexpr, M: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr, SHARING: tl.constexpr,
    COUNTED: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Count an expert's tiles from `begin` to `stop`, and sum those that all experts have done."""
    if SHARING == 0:
        if tl.atomic_add(counters + begin, 1, sem="acq_rel") == experts - 1:
            tl.store(counters + begin, 0)
            _sum_tile(partials, residual, out, begin, rows, W, M, CHOSEN, BLOCK, RESIDUAL)
    else:
        counted = tl.arange(0, COUNTED)
        mine = (counted >= begin) & (counted < stop)
        before = tl.atomic_add(counters + counted, 1, mask=mine, sem="acq_rel")
        done = tl.where(mine & (before == experts - 1), counted, COUNTED)
        tile = tl.min(done, 0)
        while tile < COUNTED:
            tl.store(counters + tile, 0)
            _sum_tile(partials, residual, out, tile, rows, W, M, CHOSEN, BLOCK, RESIDUAL)
            done = tl.where(done == tile, COUNTED, done)
            tile = tl.min(done, 0)


@triton.jit(do_not_specialize=["rows"])
def outer_kernel(
    inner, tiles, down, scales, table, masks, shares, residual, partials, counters, out, rows,
    W: tl.constexpr, F: tl.constexpr, E: tl.constexpr, M: tl.constexpr, MOST: tl.constexpr, ALL: tl.constexpr,
    PLACES: tl.constexpr, LIKELY: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    SHARING: tl.constexpr, ON_GPU: tl.constexpr, COUNTED: tl.constexpr, STAGES: tl.constexpr,
    RESIDUAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """partials float32 `[P, W]`: the result of each pair; tiles: a map of down, `[E * W, F]`; counters int32 `[T]`,
    zeros between launches; scales float32 `[E, W]` of weights in eight bits, or None. COUNTED >= T: a power of two of
    at least as many as the program's threads."""
    TILES: tl.constexpr = W // BLOCK
    STEPS: tl.constexpr = F // DEPTH
    EACH: tl.constexpr = LIKELY and SHARING == 0
    # The masks and the table were complete when the previous kernel began, so nothing is waited for.
    active, rank, experts = _chosen(masks, rows, MOST, ALL, CHOSEN)
    unit, end = _share((E if EACH else experts) * TILES, SHARING)
    if PDL and unit < end:
        ahead = _expert(table, active, rank, unit // TILES, ALL, MOST, EACH).to(tl.int64) * W + unit % TILES * BLOCK
        SIZE: tl.constexpr = down.dtype.element_ty.primitive_bitwidth // 8
        _prefetch(down + (ahead + tl.arange(0, BLOCK)) * F, F * SIZE, BLOCK)
    chosen = _table(table, rows, MOST, CHOSEN, PLACES)
    _begin(PDL)
    at = tl.arange(0, DEPTH)[None, :]
    while unit < end:
        expert = _expert(table, active, rank, unit // TILES, ALL, MOST, EACH)
        begin, stop = unit % TILES, tl.minimum(unit % TILES + end - unit, TILES)
        mine, pairs = _pairs(chosen, expert, MOST, CHOSEN, PLACES)
        order = tl.cumsum(mine, 0) - 1
        count = tl.sum(mine, 0)
        first = 0
        while first < count:
            inside = first + tl.arange(0, M) < count
            pair = _some(mine, pairs, order, first, M)
            value_at = inner + pair[:, None] * F + at
            _outer_tiles(
                tiles, scales, value_at, shares, partials, expert, pair, inside, begin, stop, W, M, STEPS, BLOCK, DEPTH,
                SHARING, STAGES, ON_GPU,
            )  # fmt: skip
            first += M
        unit += stop - begin
        if count > 0:
            tl.debug_barrier()
            _finish(
                partials, residual, out, counters, begin, stop, experts, rows, W, M, CHOSEN, BLOCK, SHARING, COUNTED,
                RESIDUAL,
            )  # fmt: skip
