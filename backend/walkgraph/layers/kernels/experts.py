"""One step of a mixture of experts: RMS norm, router, the chosen experts' MLPs, their sum and the residual, in three
launches that read each chosen expert's weights once and no other's.

`route_kernel` computes the router's logits; its last program chooses the experts and sorts the pairs of a row and an
expert by expert. An expert that some row has chosen makes a *group* of pairs. The grids of the two products cover as
many groups as the rows can make at most, and programs of empty groups end at once. So no shape depends on the routing,
and a captured graph serves any.

`inner_kernel` multiplies the rows of a group with a tile of gate and up rows. `outer_kernel` multiplies with a tile of
down rows and stores each pair's result; the last program of a tile sums every row's results in the order of their
experts. Thus a row's numbers don't depend on the order of programs.

Shape letters: R rows, M rows of a tile, E experts, C experts chosen for each row, W model width, F hidden width.
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

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.overlap import can_overlap
from walkgraph.layers.kernels.workspaces import Workspaces
from walkgraph.layers.linear.fp8_format import FP8

if TYPE_CHECKING:
    from walkgraph.checkpoints.language import ExpertSizes
    from walkgraph.layers.moe.packed_experts import PackedExperts

TILE = 16
"""Rows of a tile: the fewest that the tensor cores multiply. An expert rarely has more rows of a step."""
ROUTED = 16
"""Experts of a program of the router."""
MOST_ROWS, MOST_EXPERTS = 64, 512
_MULTIPLE = 16
"""Widths must be multiples of this."""
_LEAST = tl.constexpr(-1e30)
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


TABLE: dict[tuple[int, int], dict[int, Blocks]] = {}
"""(model width, hidden width) -> the most groups served -> measured tiles. Other shapes get a guess."""


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
    def groups(self) -> int:
        """The most groups that the rows can make."""
        return min(self.experts, self.rows * self.chosen)

    @property
    def every(self) -> int:
        """A power of two of at least all experts."""
        return max(16, 1 << (self.experts - 1).bit_length())

    @property
    def tile(self) -> int:
        """Rows of the router's only tile."""
        return MOST_ROWS if self.alike else max(16, 1 << (self.rows - 1).bit_length())

    @property
    def blocks(self) -> Blocks:
        return blocks_of(MOST_EXPERTS if self.alike else self.groups, self.width, self.hidden)


def blocks_of(groups: int, width: int, hidden: int) -> Blocks:
    """The measured tiles, or a guess: few groups get small tiles, so that enough programs read at the same time."""
    for most, blocks in sorted(TABLE.get((width, hidden), {}).items()):
        if groups <= most:
            return blocks
    few = groups <= 16
    return Blocks(
        inner=_divisor(hidden, 16 if few else 64),
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


@triton.jit(do_not_specialize=["rows"])
def route_kernel(
    x, norm, router, logits, counter, groups, sorted_rows, sorted_shares, places, rows, eps,
    W: tl.constexpr, E: tl.constexpr, ALL: tl.constexpr, M: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr,
    DEPTH: tl.constexpr, STAGES: tl.constexpr, RENORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """logits float32 `[M, ALL]`; groups int32 `[ALL, 4]`: expert, first pair, number of pairs; sorted_rows int32 and
    sorted_shares float32 `[R * C]`; places int32 `[R, C]`. ALL: a power of two >= E."""
    _begin(PDL)
    m, at = tl.arange(0, M)[:, None], tl.arange(0, DEPTH)[None, :]
    expert = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    weight_at = router + tl.minimum(expert, E - 1)[:, None] * W + at
    total = tl.zeros((M, BLOCK), tl.float32)
    squares = tl.zeros((M, DEPTH), tl.float32)
    for w in tl.range(0, W, DEPTH, num_stages=STAGES):
        value = tl.load(x + m * W + at + w, mask=m < rows, other=0.0).to(tl.float32)
        squares += value * value
        value *= tl.load(norm + at + w).to(tl.float32)
        weight = tl.load(weight_at + w)
        total = tl.dot(value.to(weight.dtype), tl.trans(weight), total)
    total *= tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / W + eps)
    tl.store(logits + m * ALL + expert[None, :], total, mask=(expert < E)[None, :])
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(counter, 0)
        _choose(logits, groups, sorted_rows, sorted_shares, places, rows, E, ALL, M, CHOSEN, RENORMED)


@triton.jit
def _choose(
    logits, groups, sorted_rows, sorted_shares, places, rows,
    E: tl.constexpr, ALL: tl.constexpr, M: tl.constexpr, CHOSEN: tl.constexpr, RENORMED: tl.constexpr,
):  # fmt: skip
    m, e = tl.arange(0, M)[:, None], tl.arange(0, ALL)[None, :]
    value = tl.load(logits + m * ALL + e, mask=(m < rows) & (e < E), other=_LEAST, cache_modifier=".cg")
    # A row of NaN chooses some experts too; its results are NaN anyway.
    value = tl.where(value > _LEAST, value, _LEAST)
    mass = tl.where(e < E, tl.exp(value - tl.max(value, 1, keep_dims=True)), 0.0)
    left = tl.where(e < E, value, float("-inf"))
    for _ in tl.static_range(CHOSEN):
        best = tl.max(left, 1, keep_dims=True)
        first = tl.min(tl.where(left == best, e, ALL), 1, keep_dims=True)
        left = tl.where(e == first, float("-inf"), left)
    picked = (left == float("-inf")) & (e < E)
    share = tl.where(picked, mass, 0.0)
    if RENORMED:
        share /= tl.sum(share, 1, keep_dims=True)
    else:
        share /= tl.sum(mass, 1, keep_dims=True)
    picked = picked & (m < rows)
    one = picked.to(tl.int32)
    pairs = tl.sum(one, 0)
    start = tl.cumsum(pairs, 0) - pairs
    place = start[None, :] + tl.cumsum(one, 0) - one
    tl.store(sorted_rows + place, m + tl.zeros_like(place), mask=picked)
    tl.store(sorted_shares + place, share, mask=picked)
    tl.store(places + m * CHOSEN + tl.cumsum(one, 1) - one, place, mask=picked)
    number, some = tl.arange(0, ALL), (pairs > 0).to(tl.int32)
    group = groups + (tl.cumsum(some, 0) - some) * 4
    tl.store(group, number, mask=pairs > 0)
    tl.store(group + 1, start, mask=pairs > 0)
    tl.store(group + 2, pairs, mask=pairs > 0)
    tl.store(groups + number * 4 + 2, tl.zeros_like(number), mask=number >= tl.sum(some, 0))


@triton.jit
def inner_kernel(
    x, norm, gate_up, scales, groups, sorted_rows, inner, eps,
    W: tl.constexpr, F: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """inner `[R * C, F]`: silu(gate) * up of each pair. scales float32 `[E, 2F]` of weights in eight bits, or None."""
    TILES: tl.constexpr = F // BLOCK
    group, tile = groups + tl.program_id(0) // TILES * 4, tl.program_id(0) % TILES
    _begin(PDL)
    pairs = tl.load(group + 2)
    if pairs > 0:
        expert, start = tl.load(group).to(tl.int64), tl.load(group + 1)
        column, at = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DEPTH)[None, :]
        gate_at = gate_up + expert * (2 * F * W) + column[:, None] * W + at
        first = 0
        while first < pairs:
            pair = first + tl.arange(0, M)
            mine = pair < pairs
            row = tl.load(sorted_rows + start + pair, mask=mine, other=0)
            x_at = x + row[:, None] * W + at
            gate, up = tl.zeros((M, BLOCK), tl.float32), tl.zeros((M, BLOCK), tl.float32)
            squares = tl.zeros((M, DEPTH), tl.float32)
            for w in tl.range(0, W, DEPTH, num_stages=STAGES):
                gate_rows = tl.load(gate_at + w, eviction_policy="evict_first")
                up_rows = tl.load(gate_at + F * W + w, eviction_policy="evict_first")
                value = tl.load(x_at + w, mask=mine[:, None], other=0.0, eviction_policy="evict_last").to(tl.float32)
                squares += value * value
                value *= tl.load(norm + at + w, eviction_policy="evict_last").to(tl.float32)
                rounded = value.to(x.dtype.element_ty)
                gate = tl.dot(rounded, tl.trans(gate_rows.to(x.dtype.element_ty)), gate)
                up = tl.dot(rounded, tl.trans(up_rows.to(x.dtype.element_ty)), up)
            scale = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / W + eps)
            gate *= scale
            up *= scale
            if scales is not None:
                gate *= tl.load(scales + expert * (2 * F) + column)[None, :]
                up *= tl.load(scales + expert * (2 * F) + F + column)[None, :]
            result = gate * tl.sigmoid(gate) * up
            to = inner + (start + pair)[:, None] * F + column[None, :]
            tl.store(to, result.to(inner.dtype.element_ty), mask=mine[:, None])
            first += M


@triton.jit(do_not_specialize=["rows"])
def outer_kernel(
    inner, down, scales, groups, sorted_shares, places, residual, partials, counters, out, rows,
    W: tl.constexpr, F: tl.constexpr, M: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    STAGES: tl.constexpr, RESIDUAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """partials float32 `[R * C, W]`: the result of each pair; counters int32 `[W / BLOCK]`, zeros between launches;
    scales float32 `[E, W]` of weights in eight bits, or None."""
    TILES: tl.constexpr = W // BLOCK
    group, tile = groups + tl.program_id(0) // TILES * 4, tl.program_id(0) % TILES
    column = tile * BLOCK + tl.arange(0, BLOCK)
    _begin(PDL)
    pairs = tl.load(group + 2)
    if pairs > 0:
        expert, start = tl.load(group).to(tl.int64), tl.load(group + 1)
        at = tl.arange(0, DEPTH)[None, :]
        weight_at = down + expert * (W * F) + column[:, None] * F + at
        first = 0
        while first < pairs:
            pair = first + tl.arange(0, M)
            mine = pair < pairs
            total = tl.zeros((M, BLOCK), tl.float32)
            inner_at = inner + (start + pair)[:, None] * F + at
            for f in tl.range(0, F, DEPTH, num_stages=STAGES):
                weight = tl.load(weight_at + f, eviction_policy="evict_first")
                value = tl.load(inner_at + f, mask=mine[:, None], other=0.0, eviction_policy="evict_last")
                total = tl.dot(value, tl.trans(weight.to(value.dtype)), total)
            if scales is not None:
                total *= tl.load(scales + expert * W + column)[None, :]
            total *= tl.load(sorted_shares + start + pair, mask=mine, other=0.0)[:, None]
            tl.store(partials + (start + pair)[:, None] * W + column[None, :], total, mask=mine[:, None])
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
                place = tl.load(places + row * CHOSEN + c, mask=inside, other=0)
                result = partials + place[:, None] * W + column[None, :]
                total += tl.load(result, mask=inside[:, None], other=0.0, cache_modifier=".cg")
            to = row[:, None] * W + column[None, :]
            if RESIDUAL:
                total += tl.load(residual + to, mask=inside[:, None], other=0.0).to(tl.float32)
            tl.store(out + to, total.to(out.dtype.element_ty), mask=inside[:, None])
            first += M


def _made(device: torch.device) -> Tensor:
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=device)


counters = Workspaces(_made, "run a mixture of experts")
"""int32, zeros between launches: of the router, then of the tiles of down."""


def unfit(x: Tensor, weights: "PackedExperts") -> str | None:
    """The reason that these can't be computed here; None if they can."""
    gate_up, down = weights.gate_up, weights.down
    experts, width, hidden = down.shape
    if x.dtype not in (torch.bfloat16, torch.float16) or weights.dtype not in (x.dtype, FP8):
        return "rows must be of two-byte numbers, and weights of the same or of eight bits with scales"
    if not 0 < x.shape[0] <= MOST_ROWS or experts > MOST_EXPERTS:
        return f"at most {MOST_ROWS} rows and {MOST_EXPERTS} experts can be computed"
    if width % _MULTIPLE or hidden % _MULTIPLE or width // _MULTIPLE >= _COUNTERS:
        return f"widths must be multiples of {_MULTIPLE}"
    return None if gate_up.is_contiguous() and down.is_contiguous() else "weights must be contiguous"


def sparse_step(
    x: Tensor,
    router: Tensor,
    weights: "PackedExperts",
    sizes: "ExpertSizes",
    norm: Tensor,
    eps: float,
    residual: Tensor | None = None,
) -> Tensor:
    """x `[R, W]`, not yet normed, router `[E, W]`, norm `[W]`, residual `[R, W]` -> `[R, W]`.

    Raises ValueError for what is `unfit`."""
    if (why := unfit(x, weights)) is not None:
        raise ValueError(why)
    hidden = weights.down.shape[2]
    made = Sizes(*x.shape, hidden, sizes.experts, sizes.chosen, is_batch_invariant())
    x, pairs = x.contiguous(), made.rows * made.chosen
    residual = None if residual is None else residual.contiguous()
    whole = {"dtype": torch.int32, "device": x.device}
    exact = {"dtype": torch.float32, "device": x.device}
    groups, sorted_rows, places = (torch.empty(n, **whole) for n in (4 * made.every, pairs, pairs))
    logits, shares, partials = (torch.empty(n, **exact) for n in (made.tile * made.every, pairs, pairs * made.width))
    inner, out, zeros = x.new_empty(pairs, made.hidden), torch.empty_like(x), counters(x.device)
    launches = constants(made, renormed=sizes.renormed, residual=residual is not None, pdl=can_overlap(x.device))
    (_, routed), (_, first), (_, second) = launches
    route_kernel[(triton.cdiv(made.experts, ROUTED),)](
        x, norm, router, logits, zeros, groups, sorted_rows, shares, places, made.rows, eps, **routed
    )
    inner_kernel[(made.groups * (made.hidden // first["BLOCK"]),)](
        x, norm, weights.gate_up, weights.gate_up_scale, groups, sorted_rows, inner, eps, **first
    )
    outer_kernel[(made.groups * (made.width // second["BLOCK"]),)](
        inner, weights.down, weights.down_scale, groups, shares, places, residual, partials, zeros[1:], out,
        made.rows, **second,
    )  # fmt: skip
    return out


def constants(sizes: Sizes, *, renormed: bool, residual: bool, pdl: bool) -> list[tuple[Any, dict[str, Any]]]:
    """The kernels in their order, with their compile-time arguments and options."""
    blocks, widths = sizes.blocks, {"W": sizes.width, "F": sizes.hidden}
    common: dict[str, Any] = {"PDL": pdl, "launch_pdl": pdl}
    routed = {
        "W": sizes.width, "E": sizes.experts, "ALL": sizes.every, "M": sizes.tile, "CHOSEN": sizes.chosen,
        "BLOCK": ROUTED, "DEPTH": blocks.depth, "STAGES": 3, "RENORMED": renormed, "num_warps": 8, **common,
    }  # fmt: skip
    first = {"M": TILE, "BLOCK": blocks.inner, "DEPTH": blocks.depth, "STAGES": blocks.inner_stages}
    second = {
        "M": TILE, "CHOSEN": sizes.chosen, "BLOCK": blocks.outer, "DEPTH": blocks.outer_depth,
        "STAGES": blocks.outer_stages, "RESIDUAL": residual,
    }  # fmt: skip
    return [
        (route_kernel, routed),
        (inner_kernel, {**widths, **first, **common, "num_warps": blocks.inner_warps}),
        (outer_kernel, {**widths, **second, **common, "num_warps": blocks.outer_warps}),
    ]
