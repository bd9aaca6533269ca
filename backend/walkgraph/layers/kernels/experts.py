"""One step of a mixture of experts behind its router's logits: RMS norm, the chosen experts' MLPs, their sum and the
residual, in three launches that read each chosen expert's weights once and no other's.

`choose_kernel` norms the rows and chooses their experts. A row and one of its experts are a *pair*. Programs of the two
products belong to an expert: they look for its pairs in the table of all pairs, and end at once where there are none.
With fewer pairs than experts, there are programs for each pair, and those of an expert's first pair compute all of
them. So no shape depends on the routing, and a captured graph serves any.

`inner_kernel` multiplies the rows of an expert's pairs with a tile of gate and up rows. `outer_kernel` multiplies with
a tile of down rows and stores each pair's result; the last program of a tile sums every row's results in the order of
their experts. Thus a row's numbers don't depend on the order of programs. Weights are prefetched into L2 as soon as it
is known which are needed, or likely.

Shape letters: R rows, M rows of a tile, P pairs, E experts, C experts chosen for each row, W model width, F hidden
width.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportOperatorIssue=false

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.overlap import can_overlap
from walkgraph.layers.kernels.workspaces import Workspaces
from walkgraph.layers.linear.fp8_format import FP8

if TYPE_CHECKING:
    from walkgraph.checkpoints.language import ExpertSizes
    from walkgraph.layers.moe.packed_experts import PackedExperts

TILE = 16
"""Rows of a tile: the fewest that the tensor cores multiply. An expert rarely has more rows of a step."""
MOST_ROWS, MOST_EXPERTS = 64, 512
_MULTIPLE = 16
"""Widths must be multiples of this."""
_LEAST = tl.constexpr(-1e30)
EARLY = tl.constexpr(264)
"""Programs that begin before the rows are routed: two per processor. Where most experts are chosen, they prefetch."""
COLUMNS_AHEAD = tl.constexpr(512)
"""Columns of a tile of gate and up that are prefetched: of all early programs, about half of L2."""
_COUNTERS = 4096


class Blocks(NamedTuple):
    """Tiles of weights. The depths of all entries of one shape are equal, as they decide the order of sums."""

    inner: int
    """Gate rows of a tile, and as many up rows."""
    outer: int
    """Down rows of a tile."""
    depth: int
    """Columns of gate and up that are multiplied at once."""
    outer_depth: int
    inner_stages: int = 4
    outer_stages: int = 4
    inner_warps: int = 4
    outer_warps: int = 4


TABLE: dict[tuple[int, int], dict[int, Blocks]] = {
    (2048, 768): {
        1: Blocks(64, 128, 128, 128),
        8: Blocks(64, 128, 128, 128, inner_stages=6, outer_stages=3),
        16: Blocks(64, 128, 128, 128, inner_stages=3, outer_stages=3),
        32: Blocks(64, 128, 128, 128, inner_stages=4, outer_stages=3),
        64: Blocks(64, 128, 128, 128, inner_stages=3, outer_stages=3),
    },
}
"""(model width, hidden width) -> the most rows served -> measured tiles. Other shapes get a guess."""


class Sizes(NamedTuple):
    """The sizes of a step."""

    rows: int
    width: int
    hidden: int
    experts: int
    chosen: int
    alike: bool = False
    """The same tiles for any number of rows: with others, the tensor cores may sum in another order."""

    @property
    def pairs(self) -> int:
        return self.rows * self.chosen

    @property
    def groups(self) -> int:
        """The most experts that the rows can choose together."""
        return min(self.experts, self.pairs)

    @property
    def blocks(self) -> Blocks:
        return blocks_of(MOST_ROWS if self.alike else self.rows, self.width, self.hidden)


def blocks_of(rows: int, width: int, hidden: int) -> Blocks:
    """The measured tiles, or a guess: few rows get small tiles, so that enough programs read at the same time."""
    for most, blocks in sorted(TABLE.get((width, hidden), {}).items()):
        if rows <= most:
            return blocks
    few = rows <= 2
    return Blocks(
        inner=_divisor(hidden, 16 if few else 32),
        outer=_divisor(width, 32 if few else 64),
        depth=_divisor(width, 128),
        outer_depth=_divisor(hidden, 128),
    )


def _divisor(of: int, most: int) -> int:
    """The largest power of two up to `most` that divides a multiple of 16."""
    return min(most, of & -of)


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
    x, norm, logits, normed, table, shares, eps,
    W: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, ALL: tl.constexpr, CHOSEN: tl.constexpr,
    RENORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program for each row. normed `[R, W]`; table int32 and shares float32 `[R, C]`: the experts of each row in
    ascending order. WIDTH >= W and ALL >= E are powers of two."""
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


@triton.jit
def _expert_of(table, group, pairs, ALL: tl.constexpr, BY_PAIR: tl.constexpr):
    """The expert of a group of programs; bool `[ALL]`: its pairs, none for a group that has nothing to do.

    The table was complete when the previous kernel began, so nothing is waited for."""
    at = tl.arange(0, ALL)
    chosen = tl.load(table + at, mask=at < pairs, other=-1, cache_modifier=".cg")
    if BY_PAIR:
        expert = tl.load(table + group, cache_modifier=".cg")
        mine = chosen == expert
        earlier = tl.sum((mine & (at < group)).to(tl.int32), 0)
        return expert, mine & (earlier == 0)
    return group, chosen == group


@triton.jit
def _pairs_of(mine, rank, first, ALL: tl.constexpr, M: tl.constexpr):
    """int32 `[M]`: the pairs of these ranks; 0 past the last."""
    hit = mine[None, :] & (rank[None, :] == first + tl.arange(0, M)[:, None])
    return tl.sum(tl.where(hit, tl.arange(0, ALL)[None, :], 0), 1)


@triton.jit
def _product(tile, value, total):
    """tile `[N, K]`, value `[M, K]`. From 64 on, weight rows are the left operand, total `[N, M]`; fewer are the right
    one, total `[M, N]`."""
    return tl.dot(tile, value.T, total) if tile.shape[0] >= 64 else tl.dot(value, tile.T, total)


@triton.jit
def _prefetch_rows(gate_up, expert, tile, W: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr):
    """Ask for the first columns of a tile of gate and up."""
    number = tl.arange(0, 2 * BLOCK)
    row = expert.to(tl.int64) * (2 * F) + number // BLOCK * F + tile * BLOCK + number % BLOCK
    AHEAD: tl.constexpr = W if W < COLUMNS_AHEAD else COLUMNS_AHEAD
    _prefetch(gate_up + row * W, AHEAD * (gate_up.dtype.element_ty.primitive_bitwidth // 8), 2 * BLOCK)


@triton.jit(do_not_specialize=["pairs"])
def inner_kernel(
    normed, tiles, gate_up, scales, table, inner, pairs,
    W: tl.constexpr, F: tl.constexpr, M: tl.constexpr, ALL: tl.constexpr, BY_PAIR: tl.constexpr, CHOSEN: tl.constexpr,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """inner `[P, F]`: silu(gate) * up of each pair. tiles: a map of gate and up, `[2E, F, W]`; scales float32 `[E, 2F]`
    of weights in eight bits, or None."""
    TILES: tl.constexpr = F // BLOCK
    ROWS: tl.constexpr = 2 * BLOCK
    group, tile = tl.program_id(0) // TILES, tl.program_id(0) % TILES
    if PDL and not BY_PAIR and tl.program_id(0) < EARLY:
        _prefetch_rows(gate_up, group, tile, W, F, BLOCK)
    _begin(PDL)
    expert, mine = _expert_of(table, group, pairs, ALL, BY_PAIR)
    count = tl.sum(mine.to(tl.int32), 0)
    if count > 0:
        if PDL and (BY_PAIR or tl.program_id(0) >= EARLY):
            _prefetch_rows(gate_up, expert, tile, W, F, BLOCK)
        rank = tl.cumsum(mine.to(tl.int32), 0) - 1
        column, at = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DEPTH)[None, :]
        first = 0
        while first < count:
            inside = first + tl.arange(0, M) < count
            pair = _pairs_of(mine, rank, first, ALL, M)
            value_at = normed + (pair // CHOSEN)[:, None] * W + at
            total = tl.zeros((ROWS, M) if ROWS >= 64 else (M, ROWS), tl.float32)
            for w in tl.range(0, W, DEPTH, num_stages=STAGES):
                weight = tiles.load([2 * expert, tile * BLOCK, w]).reshape(ROWS, DEPTH)
                value = tl.load(value_at + w, mask=inside[:, None], other=0.0, eviction_policy="evict_last")
                total = _product(weight.to(value.dtype), value, total)
            if ROWS >= 64:
                total = total.T
            gate, up = tl.split(total.reshape(M, 2, BLOCK).permute(0, 2, 1))
            if scales is not None:
                gate *= tl.load(scales + expert * (2 * F) + column)[None, :]
                up *= tl.load(scales + expert * (2 * F) + F + column)[None, :]
            result = gate * tl.sigmoid(gate) * up
            to = inner + pair[:, None] * F + column[None, :]
            tl.store(to, result.to(inner.dtype.element_ty), mask=inside[:, None])
            first += M


@triton.jit(do_not_specialize=["rows"])
def outer_kernel(
    inner, tiles, down, scales, table, shares, residual, partials, counters, out, rows,
    W: tl.constexpr, F: tl.constexpr, M: tl.constexpr, ALL: tl.constexpr, BY_PAIR: tl.constexpr, CHOSEN: tl.constexpr,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, RESIDUAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """partials float32 `[P, W]`: the result of each pair; tiles: a map of down, `[E * W, F]`; counters int32
    `[W / BLOCK]`, zeros between launches; scales float32 `[E, W]` of weights in eight bits, or None."""
    TILES: tl.constexpr = W // BLOCK
    group, tile = tl.program_id(0) // TILES, tl.program_id(0) % TILES
    expert, mine = _expert_of(table, group, rows * CHOSEN, ALL, BY_PAIR)
    count = tl.sum(mine.to(tl.int32), 0)
    if PDL and count > 0:
        down_row = down + (expert.to(tl.int64) * W + tile * BLOCK + tl.arange(0, BLOCK)) * F
        _prefetch(down_row, F * (down.dtype.element_ty.primitive_bitwidth // 8), BLOCK)
    _begin(PDL)
    column = tile * BLOCK + tl.arange(0, BLOCK)
    if count > 0:
        rank = tl.cumsum(mine.to(tl.int32), 0) - 1
        at = tl.arange(0, DEPTH)[None, :]
        first = 0
        while first < count:
            inside = first + tl.arange(0, M) < count
            pair = _pairs_of(mine, rank, first, ALL, M)
            inner_at = inner + pair[:, None] * F + at
            total = tl.zeros((BLOCK, M) if BLOCK >= 64 else (M, BLOCK), tl.float32)
            for f in tl.range(0, F, DEPTH, num_stages=STAGES):
                weight = tiles.load([expert * W + tile * BLOCK, f])
                value = tl.load(inner_at + f, mask=inside[:, None], other=0.0, eviction_policy="evict_last")
                total = _product(weight.to(value.dtype), value, total)
            if BLOCK >= 64:
                total = total.T
            if scales is not None:
                total *= tl.load(scales + expert * W + column)[None, :]
            total *= tl.load(shares + pair, mask=inside, other=0.0)[:, None]
            tl.store(partials + pair[:, None] * W + column[None, :], total, mask=inside[:, None])
            first += M
    tl.debug_barrier()
    if tl.atomic_add(counters + tile, 1, sem="acq_rel") == tl.num_programs(0) // TILES - 1:
        tl.store(counters + tile, 0)
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


def _made(device: torch.device) -> Tensor:
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=device)


counters = Workspaces(_made, "run a mixture of experts")
"""int32, zeros between launches: of the tiles of down."""


def unfit(x: Tensor, weights: "PackedExperts") -> str | None:
    """The reason that these can't be computed here; None if they can."""
    gate_up, down = weights.gate_up, weights.down
    experts, width, hidden = down.shape
    if x.dtype not in (torch.bfloat16, torch.float16) or weights.dtype not in (x.dtype, FP8):
        return "rows must be of two-byte numbers, and weights of the same or of eight bits with scales"
    if not 0 < x.shape[0] <= MOST_ROWS or experts > MOST_EXPERTS:
        return f"at most {MOST_ROWS} rows and {MOST_EXPERTS} experts can be computed"
    if width % _MULTIPLE or hidden % _MULTIPLE or width // _MULTIPLE > _COUNTERS:
        return f"widths must be multiples of {_MULTIPLE}"
    return None if gate_up.is_contiguous() and down.is_contiguous() else "weights must be contiguous"


def sparse_step(
    x: Tensor,
    logits: Tensor,
    weights: "PackedExperts",
    sizes: "ExpertSizes",
    norm: Tensor,
    eps: float,
    residual: Tensor | None = None,
) -> Tensor:
    """x `[R, W]`, not yet normed, the router's logits float32 `[R, E]`, norm `[W]`, residual `[R, W]` -> `[R, W]`.

    Raises ValueError for what is `unfit`."""
    if (why := unfit(x, weights)) is not None:
        raise ValueError(why)
    made = Sizes(*x.shape, weights.down.shape[2], sizes.experts, sizes.chosen, is_batch_invariant())
    x, logits = x.contiguous(), logits.contiguous()
    residual = None if residual is None else residual.contiguous()
    table = torch.empty(made.pairs, dtype=torch.int32, device=x.device)
    shares, partials = (torch.empty(n, device=x.device) for n in (made.pairs, made.pairs * made.width))
    inner, normed, out = x.new_empty(made.pairs, made.hidden), torch.empty_like(x), torch.empty_like(x)
    launches = constants(made, renormed=sizes.renormed, residual=residual is not None, pdl=can_overlap(x.device))
    (_, chosen), (_, first), (_, second) = launches
    gate_up, down = maps(weights, made.blocks)
    choose_kernel[(made.rows,)](x, norm, logits, normed, table, shares, eps, **chosen)
    inner_kernel[(made.groups * (made.hidden // first["BLOCK"]),)](
        normed, gate_up, weights.gate_up, weights.gate_up_scale, table, inner, made.pairs, **first
    )
    outer_kernel[(made.groups * (made.width // second["BLOCK"]),)](
        inner, down, weights.down, weights.down_scale, table, shares, residual, partials, counters(x.device), out,
        made.rows, **second,
    )  # fmt: skip
    return out


def maps(weights: "PackedExperts", blocks: Blocks) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Tensor maps of gate and up, `[2E, F, W]`, and of down, `[E * W, F]`."""
    experts, width, hidden = weights.down.shape
    return (
        TensorDescriptor(
            weights.gate_up, [2 * experts, hidden, width], [hidden * width, width, 1], [2, blocks.inner, blocks.depth]
        ),
        TensorDescriptor(weights.down, [experts * width, hidden], [hidden, 1], [blocks.outer, blocks.outer_depth]),
    )


def constants(
    sizes: Sizes, *, renormed: bool, residual: bool, pdl: bool, blocks: Blocks | None = None
) -> list[tuple[Any, dict[str, Any]]]:
    """The kernels in their order, with their compile-time arguments and options."""
    blocks = blocks or sizes.blocks
    common: dict[str, Any] = {"CHOSEN": sizes.chosen, "PDL": pdl, "launch_pdl": pdl}
    products = {
        "W": sizes.width, "F": sizes.hidden, "M": TILE, "ALL": _power(sizes.pairs),
        "BY_PAIR": sizes.pairs <= sizes.experts, **common,
    }  # fmt: skip
    chosen = {
        "W": sizes.width, "WIDTH": _power(sizes.width), "E": sizes.experts, "ALL": _power(sizes.experts),
        "RENORMED": renormed, "num_warps": 4, **common,
    }  # fmt: skip
    first = {
        "BLOCK": blocks.inner, "DEPTH": blocks.depth, "STAGES": blocks.inner_stages, "num_warps": blocks.inner_warps,
    }  # fmt: skip
    second = {
        "BLOCK": blocks.outer, "DEPTH": blocks.outer_depth, "STAGES": blocks.outer_stages, "RESIDUAL": residual,
        "num_warps": blocks.outer_warps,
    }  # fmt: skip
    return [(choose_kernel, chosen), (inner_kernel, products | first), (outer_kernel, products | second)]


def _power(least: int) -> int:
    """The smallest power of two of at least this, and 16."""
    return max(16, 1 << (least - 1).bit_length())


def warm(sizes: Sizes, blocks: Blocks, dtype: torch.dtype) -> None:
    """Compile the products with these tiles into Triton's cache, for bfloat16 rows and the present GPU; nothing is
    launched. `dtype`: of the weights."""
    from walkgraph.layers.moe.packed_experts import PackedExperts

    given, exact, whole = torch.bfloat16, torch.float32, torch.int32
    scale = exact if dtype == FP8 else None
    experts, width, hidden = sizes.experts, sizes.width, sizes.hidden
    like = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((2 * hidden, width), (width, hidden)))
    gate_up, down = maps(PackedExperts(*(one.expand(experts, -1, -1) for one in like)), blocks)
    _, (_, first), (_, second) = constants(sizes, renormed=True, residual=True, pdl=True, blocks=blocks)
    inner_kernel.warmup(given, gate_up, dtype, scale, whole, given, sizes.pairs, **first, grid=(1,))
    outer_kernel.warmup(
        given, down, dtype, scale, whole, exact, given, exact, whole, given, sizes.rows, **second, grid=(1,)
    )  # fmt: skip
