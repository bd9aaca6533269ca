"""Attention of blocks of very many sequences over a paged cache: one program per tile of a head's queries, which
attends all keys of its sequence.

Programs share nothing, and the few queries past the last whole tile (TAIL) join the last tile and the keys that it
reads, as a fifth program per head would read just as much. They stand on the other side of their products, since tensor
cores take at least 16 rows at once, but as few as 8 columns.

Waiting costs more time than reading keys twice: small tiles, with four programs of 128 registers on a multiprocessor,
run faster than wide ones.

Shape letters as in `walkgraph.layers.attention.paged_blocks`.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
# pyright: reportArgumentType=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.paged_block_kernels import more_keys, slots_of, write_rows


@triton.jit
def _few(q, k, v, best, heard, kept, scale, MASKED: tl.constexpr):
    """Add some keys for N queries: q `[N, D]`, running maximum `[N]` and unscaled result `[D, N]`; base 2 -> both, the
    keys' weights `[keys, N]` and the factor for earlier weights `[N]`."""
    scores = tl.dot(k, tl.trans(q), input_precision="ieee")
    if MASKED:
        scores = tl.where(kept[:, None], scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 0) * scale)
    weight = tl.exp2(scores * scale - higher[None, :])
    keep = tl.exp2(best - higher)
    heard = tl.dot(tl.trans(v), weight.to(v.dtype), heard * keep[None, :], input_precision="ieee")
    return higher, heard, weight, keep


@triton.jit
def _tile(
    q, here_k, here_v, slots, table, most, scale, out, tokens, first, row_stride, SLOT: tl.constexpr, M: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr, TAIL: tl.constexpr, PAGE: tl.constexpr,
    STAGES: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """M queries from `first` on, and TAIL after them. q and out are those of the sequence's head."""
    at, rest, d = tl.arange(0, BLOCK), tl.arange(0, REST), tl.arange(0, D)[None, :]
    m = first + tl.arange(0, M)
    queries = tl.load(q + m[:, None] * row_stride + d, mask=(m < tokens)[:, None], other=0.0)
    best, total = tl.full([M], -1e30, tl.float32), tl.zeros([M], tl.float32)
    heard = tl.zeros([M, D], tl.float32)
    if TAIL > 0:
        t = first + M + tl.arange(0, TAIL)
        few = tl.load(q + t[:, None] * row_stride + d, mask=(t < tokens)[:, None], other=0.0)
        few_best, few_mass = tl.full([TAIL], -1e30, tl.float32), tl.zeros([BLOCK, TAIL], tl.float32)
        few_heard = tl.zeros([D, TAIL], tl.float32)
    end = most // BLOCK
    # Keys past the whole blocks, in groups of 16: requested before the loop, attended after it.
    start = end * BLOCK
    left = slots_of(table, start + rest, most, PAGE, ON_GPU)[:, None].to(tl.int64) * SLOT + d
    left_k = tl.load(here_k + left, mask=(start + rest < most)[:, None], other=0.0)
    left_v = tl.load(here_v + left, mask=(start + rest < most)[:, None], other=0.0)
    for block in tl.range(0, end, num_stages=STAGES):
        k = tl.load(here_k + slots[:, None].to(tl.int64) * SLOT + d)
        v = tl.load(here_v + slots[:, None].to(tl.int64) * SLOT + d)
        # Read one iteration ahead: read in the same one, they would use up half of the pipeline stages.
        slots = slots_of(table, (block + 1) * BLOCK + at, most, PAGE, ON_GPU)
        if TAIL > 0:
            few_best, few_heard, weight, keep = _few(few, k, v, few_best, few_heard, at, scale, False)
            few_mass = few_mass * keep[None, :] + weight
        best, total, heard = more_keys(queries, k, v, best, total, heard, at, scale, False)
    if TAIL > 0:
        few_total = tl.sum(few_mass, 0)
    while start < most:
        kept = start + rest < most
        if TAIL > 0:
            few_best, few_heard, weight, keep = _few(few, left_k, left_v, few_best, few_heard, kept, scale, True)
            few_total = few_total * keep + tl.sum(weight, 0)
        best, total, heard = more_keys(queries, left_k, left_v, best, total, heard, kept, scale, True)
        start += REST
        left = slots_of(table, start + rest, most, PAGE, ON_GPU)[:, None].to(tl.int64) * SLOT + d
        left_k = tl.load(here_k + left, mask=(start + rest < most)[:, None], other=0.0)
        left_v = tl.load(here_v + left, mask=(start + rest < most)[:, None], other=0.0)
    write_rows(out, row_stride, first, tokens, total, heard, M, D)
    if TAIL > 0:
        write_rows(out, row_stride, first + M, tokens, few_total, tl.trans(few_heard), TAIL, D)


@triton.jit(do_not_specialize=["tokens", "reach"])
def attend_many_kernel(
    q, slot_k, slot_v, rows, pages, lengths, out, tokens, reach, SLOT: tl.constexpr, H: tl.constexpr, G: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr, TAIL: tl.constexpr,
    STAGES: tl.constexpr, PDL: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """One program per tile of M queries of a head; the last one has TAIL more. SLOT: numbers from a slot to the next, a
    constant because computing key addresses would take a fifth of the loop."""
    tile, pair = tl.program_id(0), tl.program_id(1)
    b, h = pair // H, pair % H
    row = tl.load(rows + b)
    most = tl.load(lengths + row) + tokens
    table = pages + row.to(tl.int64) * reach
    slots = slots_of(table, tl.arange(0, BLOCK), most, PAGE, ON_GPU)
    here = (h // (H // G)) * D
    base = (b.to(tl.int64) * tokens * H + h) * D
    scale = 1.4426950408889634 / (D**0.5)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    if TAIL > 0 and tile == tl.num_programs(0) - 1:
        _tile(
            q + base, slot_k + here, slot_v + here, slots, table, most, scale, out + base, tokens, tile * M, H * D,
            SLOT, M, D, BLOCK, REST, TAIL, PAGE, STAGES, ON_GPU,
        )  # fmt: skip
    else:
        _tile(
            q + base, slot_k + here, slot_v + here, slots, table, most, scale, out + base, tokens, tile * M, H * D,
            SLOT, M, D, BLOCK, REST, 0, PAGE, STAGES, ON_GPU,
        )  # fmt: skip
