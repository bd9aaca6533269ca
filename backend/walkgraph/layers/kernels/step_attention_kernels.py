"""Two kernels for one-token attention, one launch each: `streams` for few query heads per key head, `tiles` for many.

A program serves one row, one key head with all its query heads, and every `splits`-th block of the row's context. The
choice of blocks does not depend on the row's length, so the page table is read beside the length and not after it;
programs without a block return. The program that owns the new token's block appends its key and value, and attends them
from registers, so nobody reads a slot that is written in the same launch. The last program of a row and head to arrive
combines the parts in the order of their splits, so equal inputs give equal bits; it also resets the counter to zero for
the next launch.

Results of earlier steps (tables, kept keys and values) are read before waiting for the previous kernel's end; `qkv` is
read, and everything written, after it. This requires one launch without overlap between two steps of a pool's layer.

Shape letters as in `walkgraph.layers.attention.step_attention`.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit(do_not_specialize=["splits"])
def streams_kernel(
    qkv, slot_k, slot_v, rows, pages, lengths, positions, frequencies, q_norm, k_norm,
    out, parts, weights, counters, qkv_stride, slot_stride, reach, eps, splits,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    HEADS: tl.constexpr, STREAMS: tl.constexpr, TILE: tl.constexpr, NORM: tl.constexpr,
    OVERLAP: tl.constexpr, ON_GPU: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Multiply and sum. A stream is the group of threads that hold one token's key, 16 bytes each; it has a softmax of
    its own, so the loop needs neither shared memory nor a barrier. Axes: [streams, heads, a stream's tokens, width]."""
    g, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if OVERLAP == 2:
        gdc_launch_dependents()
    row = tl.load(rows + b)
    length, position = tl.load(lengths + row), tl.load(positions + row)
    shares = tl.minimum(splits, length // LEAST + 1)
    table, first = pages + row.to(tl.int64) * reach, split * BLOCK
    s, d = tl.arange(0, STREAMS)[:, None, None, None], tl.arange(0, WIDTH)[None, None, None, :]
    h = tl.arange(0, HEADS)[None, :, None, None]
    # A stream's tokens of a block are consecutive in one page.
    t, s_first = tl.arange(0, BLOCK // STREAMS)[None, None, :, None], s * (BLOCK // STREAMS)
    at = s_first + t
    here_k, here_v = slot_k + g * WIDTH + d, slot_v + g * WIDTH + d
    slots = _slots(table, first + s_first, reach * PAGE, PAGE)
    if (first > length) | (split >= shares):
        return
    k = tl.load(here_k + (slots + t) * slot_stride, mask=first + at < length, other=0.0)
    v = tl.load(here_v + (slots + t) * slot_stride, mask=first + at < length, other=0.0)
    last = _slots(table, length, reach * PAGE, PAGE) * slot_stride
    cos, sin = _turn(position, frequencies, d + s * 0, WIDTH, ON_GPU)
    if OVERLAP:
        gdc_wait()
    if OVERLAP == 1:
        gdc_launch_dependents()
    # Every stream reads the queries; the first stream of the new token's program begins with that token.
    new, past = qkv + b.to(tl.int64) * qkv_stride, GROUPS * GROUP * WIDTH + g * WIDTH
    mine = (split == (length // BLOCK) % shares) & (s == 0)
    q = _turned(new + (g * GROUP + h + s * 0) * WIDTH, q_norm, d, h < GROUP, cos, sin, eps, WIDTH, NORM)
    fresh = _turned(new + past + s * 0, k_norm, d, mine, cos, sin, eps, WIDTH, NORM)
    value = tl.load(new + past + GROUPS * WIDTH + s * 0 + d, mask=mine, other=0.0)
    tl.store(here_k + last + s * 0, fresh, mask=mine)
    tl.store(here_v + last + s * 0, value, mask=mine)
    q = q.to(tl.float32) * (1.4426950408889634 / (WIDTH**0.5))
    best = tl.where(mine, tl.sum(q * fresh.to(tl.float32), 3, keep_dims=True), -1e30)
    total = tl.where(mine, 1.0, 0.0) + tl.zeros([STREAMS, HEADS, 1, 1], tl.float32)
    heard = tl.zeros([STREAMS, HEADS, 1, WIDTH], tl.float32) + value.to(tl.float32)
    while first < length:
        after = first + shares * BLOCK
        ahead = _slots(table, after + s_first, length, PAGE)
        next_k = tl.load(here_k + (ahead + t) * slot_stride, mask=after + at < length, other=0.0)
        next_v = tl.load(here_v + (ahead + t) * slot_stride, mask=after + at < length, other=0.0)
        best, total, heard = _hear(q, k, v, best, total, heard, first + at < length)
        k, v, first = next_k, next_v, after
    top = tl.max(best, 0, keep_dims=True)
    keep = tl.exp2(best - top)
    total = tl.reshape(tl.sum(total * keep, 0), [HEADS])
    heard = tl.reshape(tl.sum(heard * keep, 0), [HEADS, WIDTH])
    _finish(
        out, parts, weights, counters, b * GROUPS + g, length, split, shares, splits, tl.reshape(top, [HEADS]), total,
        heard, GROUP, WIDTH, BLOCK, HEADS, HEADS, TILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["splits"])
def tiles_kernel(
    qkv, slot_k, slot_v, rows, pages, lengths, positions, frequencies, q_norm, k_norm,
    out, parts, weights, counters, qkv_stride, slot_stride, reach, eps, splits,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    HEADS: tl.constexpr, STREAMS: tl.constexpr, TILE: tl.constexpr, NORM: tl.constexpr,
    OVERLAP: tl.constexpr, ON_GPU: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Use the tensor cores, with keys and values passing through shared memory. STREAMS is ignored."""
    g, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if OVERLAP == 2:
        gdc_launch_dependents()
    row = tl.load(rows + b)
    length, position = tl.load(lengths + row), tl.load(positions + row)
    shares, first = tl.minimum(splits, length // LEAST + 1), split * BLOCK
    if (first > length) | (split >= shares):
        return
    d, m, at = tl.arange(0, WIDTH), tl.arange(0, 16), tl.arange(0, BLOCK)
    here_k, here_v = slot_k + g * WIDTH + d[None, :], slot_v + g * WIDTH + d[None, :]
    table = pages + row.to(tl.int64) * reach
    last = _slots(table, length, reach * PAGE, PAGE) * slot_stride + g * WIDTH + d
    slots = _slots(table, first + at, reach * PAGE, PAGE) * slot_stride
    cos, sin = _turn(position, frequencies, d, WIDTH, ON_GPU)
    if OVERLAP:
        gdc_wait()
    if OVERLAP == 1:
        gdc_launch_dependents()
    new, past = qkv + b.to(tl.int64) * qkv_stride, GROUPS * GROUP * WIDTH + g * WIDTH
    mine = (split == (length // BLOCK) % shares) & (d < WIDTH)
    heads = new + (g * GROUP + m[:, None]) * WIDTH
    q = _turned(heads, q_norm, d[None, :], (m < GROUP)[:, None], cos[None, :], sin[None, :], eps, WIDTH, NORM)
    fresh = _turned(new + past, k_norm, d, mine, cos, sin, eps, WIDTH, NORM)
    value = tl.load(new + past + GROUPS * WIDTH + d, mask=mine, other=0.0)
    tl.store(slot_k + last, fresh, mask=mine)
    tl.store(slot_v + last, value, mask=mine)
    scale = 1.4426950408889634 / (WIDTH**0.5)
    best, total = tl.full([16], -1e30, tl.float32), tl.zeros([16], tl.float32)
    heard = tl.zeros([16, WIDTH], tl.float32)
    if ON_GPU:
        # Slots are read one iteration ahead: read in the same one, they would use up half of the pipeline stages.
        for start in tl.range(first, length, shares * BLOCK):
            k, v = _load(here_k, here_v, slots, (start + at) < length)
            slots = _slots(table, start + shares * BLOCK + at, length, PAGE) * slot_stride
            best, total, heard = _attend(q, k, v, best, total, heard, start, length, scale, BLOCK)
    else:
        # The interpreter's `range` takes no computed bounds; a `while` isn't pipelined on the GPU.
        while first < length:
            k, v = _load(here_k, here_v, slots, (first + at) < length)
            slots = _slots(table, first + shares * BLOCK + at, length, PAGE) * slot_stride
            best, total, heard = _attend(q, k, v, best, total, heard, first, length, scale, BLOCK)
            first += shares * BLOCK
    if split == (length // BLOCK) % shares:
        score = tl.sum(q.to(tl.float32) * fresh.to(tl.float32)[None, :], 1) * scale
        higher = tl.maximum(best, score)
        keep, weight = tl.exp2(best - higher), tl.exp2(score - higher)
        heard = heard * keep[:, None] + weight[:, None] * value.to(tl.float32)[None, :]
        total, best = total * keep + weight, higher
    _finish(
        out, parts, weights, counters, b * GROUPS + g, length, split, shares, splits, best, total, heard,
        GROUP, WIDTH, BLOCK, 16, HEADS, TILE,
    )  # fmt: skip


@triton.jit
def _hear(q, k, v, best, total, heard, kept):
    """Add one block to every stream's running maximum, sum and unscaled result; base 2."""
    scores = tl.where(kept, tl.sum(q * k.to(tl.float32), 3, keep_dims=True), float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 2, keep_dims=True))
    weight, keep = tl.exp2(scores - higher), tl.exp2(best - higher)
    heard = heard * keep + tl.sum(weight * v.to(tl.float32), 2, keep_dims=True)
    return higher, total * keep + tl.sum(weight, 2, keep_dims=True), heard


@triton.jit
def _slots(table, token, most, PAGE: tl.constexpr):
    """int64, slots of a row's tokens in the pool; page 0 for tokens from `most` on."""
    return tl.load(table + token // PAGE, mask=token < most, other=0).to(tl.int64) * PAGE + token % PAGE


@triton.jit
def _load(here_k, here_v, slots, kept):
    """Keys and values at `slots` [BLOCK], each [BLOCK, WIDTH]; zeros where they aren't `kept`."""
    slots, kept = slots[:, None], kept[:, None]
    return tl.load(here_k + slots, mask=kept, other=0.0), tl.load(here_v + slots, mask=kept, other=0.0)


@triton.jit
def _attend(q, k, v, best, total, heard, start, length, scale, BLOCK: tl.constexpr):
    """Add one block to the running maximum [16], sum [16] and unscaled result [16, WIDTH]; base 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where((start + tl.arange(0, BLOCK) < length)[None, :], scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    weight = tl.exp2(scores - higher[:, None])
    keep = tl.exp2(best - higher)
    heard = tl.dot(weight.to(v.dtype), v, heard * keep[:, None], input_precision="ieee")
    return higher, total * keep + tl.sum(weight, 1), heard


@triton.jit
def turned_by(angle, ON_GPU: tl.constexpr):
    """Cosine and sine of angles in radians, float32."""
    # 2 pi is subtracted in two parts, so the remainder is within 1e-6 of exact up to 2^20 radians.
    turns = tl.floor(angle * 0.15915494309189535 + 0.5)
    left = tl.fma(-turns, 6.2831854820251465, angle)
    left = tl.fma(turns, 1.7484556e-7, left)
    if ON_GPU:
        # The plain functions would reduce the argument again, with branches and local memory. These are accurate to
        # 2^-20.
        cos = tl.inline_asm_elementwise(
            "cos.approx.f32 $0, $1;", "=f,f", [left], dtype=tl.float32, is_pure=True, pack=1
        )
        sin = tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;", "=f,f", [left], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        cos, sin = tl.cos(left), tl.sin(left)
    return cos, sin


@triton.jit
def _turn(position, frequencies, d, WIDTH: tl.constexpr, ON_GPU: tl.constexpr):
    """Cosine, and signed sine, of a position's angles at `d`."""
    cos, sin = turned_by(position.to(tl.float32) * tl.load(frequencies + d % (WIDTH // 2)), ON_GPU)
    return cos, tl.where(d < WIDTH // 2, -sin, sin)


@triton.jit
def _turned(head, norm, d, there, cos, sin, eps, WIDTH: tl.constexpr, NORM: tl.constexpr):
    """Heads at `head`, normed and rotated, in their own dtype; `d` is their last axis."""
    other = (d + WIDTH // 2) % WIDTH
    raw = tl.load(head + d, mask=there, other=0.0)
    x, swapped = raw.to(tl.float32), tl.load(head + other, mask=there, other=0.0).to(tl.float32)
    if NORM:
        inverse = tl.rsqrt(tl.sum(x * x, len(x.shape) - 1, keep_dims=True) / WIDTH + eps)
        x = (x * inverse * tl.load(norm + d).to(tl.float32)).to(raw.dtype).to(tl.float32)
        swapped = (swapped * inverse * tl.load(norm + other).to(tl.float32)).to(raw.dtype).to(tl.float32)
    return (x * cos + swapped * sin).to(raw.dtype)


@triton.jit
def _finish(
    out, parts, weights, counters, pair, length, split, shares, splits, best, total, heard,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the heads of a row, or this program's part of them: best [ROWS], total [ROWS], heard [ROWS, WIDTH]."""
    m, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    used = tl.minimum(shares, length // BLOCK + 1)
    inside, at = (m < GROUP)[:, None], m[:, None] * WIDTH + d[None, :]
    heard = heard / total[:, None]
    if used == 1:
        tl.store(out + pair.to(tl.int64) * (GROUP * WIDTH) + at, heard.to(out.dtype.element_ty), mask=inside)
    else:
        part = pair.to(tl.int64) * splits + split
        tl.store(parts + part * (GROUP * WIDTH) + at, heard, mask=inside)
        tl.store(weights + part * GROUP + m, best + tl.log2(total), mask=m < GROUP)
        # Every thread stores its part before one of them counts it; the count reaches all of them past a barrier.
        tl.debug_barrier()
        arrived = tl.atomic_add(counters + pair, 1, sem="acq_rel", scope="gpu")
        if arrived == used - 1:
            _combine(out, parts, weights, counters, pair, used, splits, GROUP, WIDTH, HEADS, TILE)


@triton.jit
def _combine(
    out, parts, weights, counters, pair, used, splits,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the row's heads from `used` parts, TILE of them read at once."""
    tl.store(counters + pair, 0)
    s, h, at = tl.arange(0, TILE)[:, None], tl.arange(0, HEADS), tl.arange(0, HEADS * WIDTH)
    size: tl.constexpr = GROUP * WIDTH
    best, total = tl.full([HEADS], -1e30, tl.float32), tl.zeros([HEADS], tl.float32)
    heard = tl.zeros([HEADS, WIDTH], tl.float32)
    first = 0
    while first < used:
        part, there = pair.to(tl.int64) * splits + first + s, first + s < used
        weight = tl.load(weights + part * GROUP + h, mask=there & (h < GROUP), other=-1e30, cache_modifier=".cg")
        # Read flat, so that a thread holds the same numbers of every part and sums them alone.
        value = tl.load(parts + part * size + at, mask=there & (at < size), other=0.0, cache_modifier=".cg")
        higher = tl.maximum(best, tl.max(weight, 0))
        weight, keep = tl.exp2(weight - higher[None, :]), tl.exp2(best - higher)
        value = value.reshape(TILE, HEADS, WIDTH) * weight[:, :, None]
        heard = heard * keep[:, None] + tl.sum(value, 0)
        total = total * keep + tl.sum(weight, 0)
        best = higher
        first += TILE
    heard = (heard / total[:, None]).reshape(HEADS * WIDTH)
    tl.store(out + pair.to(tl.int64) * size + at, heard.to(out.dtype.element_ty), mask=at < size)
