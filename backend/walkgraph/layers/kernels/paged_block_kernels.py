"""Write blocks of tokens into a paged cache, and attend over it: one launch each.

Attention: a program serves a tile of one head's queries and a share of the keys. The number of shares depends on the
sequence's length on the device: a captured launch serves every length, and programs without a share return at once. The
last program of a tile to arrive combines the shares in order, so equal inputs give equal bits; it also resets the
counter to zero for the next launch.

A few queries (TAIL) past the last whole tile form a small tile: two tokens before 256 patches would otherwise cost a
third tile of 128. Keys past the last whole block are processed in groups of 16, requested before the loop and attended
after it.

Tables, and the results of all launches but the previous one, are read before waiting for the previous one's end.

Shape letters as in `walkgraph.layers.attention.paged_blocks`.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
# pyright: reportArgumentType=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

REST = 16
"""Keys per block after the last whole one."""


@triton.jit
def _turned(x, cos, sin, ROWS: tl.constexpr, D: tl.constexpr):
    """Heads `[ROWS, D]`, rotated pair by pair; cos and sin float32 `[ROWS, D]`."""
    even, odd = x.to(tl.float32).reshape(ROWS, D // 2, 2).split()
    cos_even, cos_odd = cos.reshape(ROWS, D // 2, 2).split()
    sin_even, sin_odd = sin.reshape(ROWS, D // 2, 2).split()
    turned = tl.join(even * cos_even - odd * sin_even, odd * cos_odd + even * sin_odd)
    return turned.reshape(ROWS, D).to(x.dtype)


@triton.jit(do_not_specialize=["count", "tokens", "reach"])
def place_kernel(
    qkv, cos, sin, q, slot_k, slot_v, rows, pages, lengths, count, tokens, qkv_stride, row_stride, token_stride,
    slot_stride, reach, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, EACH: tl.constexpr,
    PAGE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program for EACH tokens of `count`. HEADS: a power of two >= H and G. Sines are read again for every head at
    the head's full width, which is faster than spreading them."""
    ROWS: tl.constexpr = EACH * HEADS
    r = tl.arange(0, ROWS)
    token, h = (tl.program_id(0) * EACH + r // HEADS), (r % HEADS)[:, None]
    here = token < count
    b, i = token // tokens, token % tokens
    row = tl.load(rows + b, mask=here, other=0)
    at = tl.load(lengths + row, mask=here, other=0) + i
    page = tl.load(pages + row.to(tl.int64) * reach + tl.minimum(at // PAGE, reach - 1), mask=here, other=0)
    slot = ((page.to(tl.int64) * PAGE + at % PAGE) * slot_stride)[:, None]
    d, here, token = tl.arange(0, D)[None, :], here[:, None], token.to(tl.int64)[:, None]
    turn = (b.to(tl.int64) * row_stride + i * token_stride)[:, None] + d
    c, s = tl.load(cos + turn, mask=here, other=0.0), tl.load(sin + turn, mask=here, other=0.0)
    base, query, key = qkv + token * qkv_stride + d, here & (h < H), here & (h < G)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    queries = tl.load(base + h * D, mask=query, other=0.0)
    keys = tl.load(base + (H + h) * D, mask=key, other=0.0)
    values = tl.load(base + (H + G + h) * D, mask=key, other=0.0)
    tl.store(q + token * (H * D) + h * D + d, _turned(queries, c, s, ROWS, D), mask=query)
    tl.store(slot_k + slot + h * D + d, _turned(keys, c, s, ROWS, D), mask=key)
    tl.store(slot_v + slot + h * D + d, values, mask=key)


@triton.jit
def slots_of(table, token, most, PAGE: tl.constexpr, ON_GPU: tl.constexpr):
    """int32, slots of a sequence's tokens in the pool; tokens from `most` on share the slot of the last one."""
    # Tokens and slots fit 32 bits; signed divisions are slower.
    at = table + tl.minimum(token, most - 1).to(tl.uint32) // PAGE
    if ON_GPU:
        # A synchronous load: waiting for an asynchronous one would wait for all keys requested earlier.
        page = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [at], dtype=tl.int32, is_pure=True, pack=1)
    else:
        page = tl.load(at)
    return page * PAGE + (token.to(tl.uint32) % PAGE).to(tl.int32)


@triton.jit
def more_keys(q, k, v, best, total, heard, kept, scale, MASKED: tl.constexpr):
    """Add some keys to the running maximum [M], sum [M] and unscaled result [M, D]; base 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        scores = tl.where(kept[None, :], scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1) * scale)
    weight = tl.exp2(scores * scale - higher[:, None])
    keep = tl.exp2(best - higher)
    heard = tl.dot(weight.to(v.dtype), v, heard * keep[:, None], input_precision="ieee")
    return higher, total * keep + tl.sum(weight, 1), heard


@triton.jit
def _attended(
    q, here_k, here_v, slots, table, begin, end, most, slot_stride, scale, M: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr, REST: tl.constexpr, PAGE: tl.constexpr, STAGES: tl.constexpr,
    ON_GPU: tl.constexpr,
):  # fmt: skip
    """Queries `[M, D]` over whole blocks `begin` to `end` of keys, and over the keys after them up to `most` ->
    maximum, sum and unscaled result."""
    at, rest, d = tl.arange(0, BLOCK), tl.arange(0, REST), tl.arange(0, D)[None, :]
    best, total = tl.full([M], -1e30, tl.float32), tl.zeros([M], tl.float32)
    heard = tl.zeros([M, D], tl.float32)
    left = end * BLOCK + rest
    left_slots = slots_of(table, left, most, PAGE, ON_GPU)[:, None].to(tl.int64) * slot_stride + d
    left_k = tl.load(here_k + left_slots, mask=(left < most)[:, None], other=0.0)
    left_v = tl.load(here_v + left_slots, mask=(left < most)[:, None], other=0.0)
    for block in tl.range(begin, end, num_stages=STAGES):
        k = tl.load(here_k + slots[:, None].to(tl.int64) * slot_stride + d)
        v = tl.load(here_v + slots[:, None].to(tl.int64) * slot_stride + d)
        # Read one iteration ahead: read in the same one, they would use up half of the pipeline stages.
        slots = slots_of(table, (block + 1) * BLOCK + at, most, PAGE, ON_GPU)
        best, total, heard = more_keys(q, k, v, best, total, heard, at, scale, False)
    start = end * BLOCK
    while start < most:
        kept = start + rest < most
        best, total, heard = more_keys(q, left_k, left_v, best, total, heard, kept, scale, True)
        start += REST
        left_slots = slots_of(table, start + rest, most, PAGE, ON_GPU)[:, None].to(tl.int64) * slot_stride + d
        left_k = tl.load(here_k + left_slots, mask=(start + rest < most)[:, None], other=0.0)
        left_v = tl.load(here_v + left_slots, mask=(start + rest < most)[:, None], other=0.0)
    return best, total, heard


@triton.jit
def _leave(parts, weights, first, tokens, best, total, heard, M: tl.constexpr, D: tl.constexpr):
    """Store a share for the tokens from `first` on, scaled, with the logarithm of its weight."""
    m, d = first + tl.arange(0, M), tl.arange(0, D)[None, :]
    tl.store(parts + m[:, None] * D + d, heard / total[:, None], mask=(m < tokens)[:, None])
    tl.store(weights + m, best + tl.log2(total), mask=m < tokens)


@triton.jit
def _combine(
    parts, weights, out, out_stride, first, tokens, used, M: tl.constexpr, D: tl.constexpr, AT_ONCE: tl.constexpr
):
    """Write the tokens from `first` on, combined from `used` shares; AT_ONCE of them are read together."""
    m, d = first + tl.arange(0, M), tl.arange(0, D)[None, :]
    best, total, heard = tl.full([M], -1e30, tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, D], tl.float32)
    share = 0
    while share < used:
        for one in tl.static_range(AT_ONCE):
            there = (share + one < used) & (m < tokens)
            at = (share + one).to(tl.int64) * tokens + m
            weight = tl.load(weights + at, mask=there, other=-1e30, cache_modifier=".cg")
            value = tl.load(parts + at[:, None] * D + d, mask=there[:, None], other=0.0, cache_modifier=".cg")
            higher = tl.maximum(best, weight)
            keep, weight = tl.exp2(best - higher), tl.where(there, tl.exp2(weight - higher), 0.0)
            heard = heard * keep[:, None] + value * weight[:, None]
            total, best = total * keep + weight, higher
        share += AT_ONCE
    write_rows(out, out_stride, first, tokens, total, heard, M, D)


@triton.jit
def write_rows(out, out_stride, first, tokens, total, heard, M: tl.constexpr, D: tl.constexpr):
    m, d = first + tl.arange(0, M), tl.arange(0, D)[None, :]
    total = tl.where(m < tokens, total, 1.0)[:, None]
    tl.store(out + m[:, None] * out_stride + d, (heard / total).to(out.dtype.element_ty), mask=(m < tokens)[:, None])


@triton.jit
def _tile(
    q, here_k, here_v, slots, table, begin, end, most, slot_stride, scale, out, parts, weights, counter, tokens,
    first, split, used, row_stride, M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr,
    PAGE: tl.constexpr, STAGES: tl.constexpr, AT_ONCE: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """M queries from `first` on. q, out, parts and weights are those of the sequence's head."""
    m, d = first + tl.arange(0, M), tl.arange(0, D)[None, :]
    queries = tl.load(q + m[:, None] * row_stride + d, mask=(m < tokens)[:, None], other=0.0)
    best, total, heard = _attended(
        queries, here_k, here_v, slots, table, begin, end, most, slot_stride, scale, M, D, BLOCK, REST, PAGE, STAGES,
        ON_GPU,
    )  # fmt: skip
    if used == 1:
        write_rows(out, row_stride, first, tokens, total, heard, M, D)
    else:
        offset = split.to(tl.int64) * tokens
        _leave(parts + offset * D, weights + offset, first, tokens, best, total, heard, M, D)
        # Every thread stores its part before one of them counts it.
        tl.debug_barrier()
        if tl.atomic_add(counter, 1, sem="acq_rel") == used - 1:
            tl.store(counter, 0)
            _combine(parts, weights, out, row_stride, first, tokens, used, M, D, AT_ONCE)


@triton.jit(do_not_specialize=["tokens", "splits", "whole", "least", "reach"])
def attend_kernel(
    q, slot_k, slot_v, rows, pages, lengths, out, parts, weights, counters, tokens, whole, splits, least, slot_stride,
    reach, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr,
    REST: tl.constexpr, TAIL: tl.constexpr, STAGES: tl.constexpr,
    AT_ONCE: tl.constexpr, PDL: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """`whole` tiles of M queries; TAIL queries after them form a tile of their own. least: the least keys of a
    share."""
    tile, split, pair = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, h = pair // H, pair % H
    row = tl.load(rows + b)
    most = tl.load(lengths + row) + tokens
    used = tl.maximum(1, tl.minimum(splits, most // least))
    if split >= used:
        return
    blocks = most // BLOCK
    begin, end = split * blocks // used, (split + 1) * blocks // used
    # Keys past the whole blocks belong to the last share.
    share = tl.where(split == used - 1, most, end * BLOCK)
    table = pages + row.to(tl.int64) * reach
    slots = slots_of(table, begin * BLOCK + tl.arange(0, BLOCK), most, PAGE, ON_GPU)
    here = (h // (H // G)) * D
    base = (b.to(tl.int64) * tokens * H + h) * D
    offset = pair.to(tl.int64) * splits * tokens
    scale = 1.4426950408889634 / (D**0.5)
    counter = counters + pair * tl.num_programs(0) + tile
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    if TAIL > 0 and tile == whole:
        _tile(
            q + base, slot_k + here, slot_v + here, slots, table, begin, end, share, slot_stride, scale, out + base,
            parts + offset * D, weights + offset, counter, tokens, tile * M, split, used, H * D, TAIL, D, BLOCK, REST,
            PAGE, STAGES, AT_ONCE, ON_GPU,
        )  # fmt: skip
    else:
        _tile(
            q + base, slot_k + here, slot_v + here, slots, table, begin, end, share, slot_stride, scale, out + base,
            parts + offset * D, weights + offset, counter, tokens, tile * M, split, used, H * D, M, D, BLOCK, REST,
            PAGE, STAGES, AT_ONCE, ON_GPU,
        )  # fmt: skip
