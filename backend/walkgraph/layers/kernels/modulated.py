"""Products of modulated rows on Hopper, one launch each: the kernels behind `walkgraph.layers.norm.modulated`.

x and weights come through tensor maps; a program owns a tile of rows and weight rows, and a part of the depth. Programs
that share a tile store their sums in the linears' workspace; the last to arrive adds them in order, so results don't
depend on which one that is.

Modulations are read before waiting for the previous launch's end, so they must not change once the rows have begun.

Rows come weighted: multiplied by 1 + scale of their norm and not yet divided by their root mean square, which is the
product's last factor. The relative rounding error is the same.

Where a tile has two halves, as gate and up rows or the two halves of a head, its weight rows are `height` apart.

Shape letters: B blocks, R rows, M rows of a tile, N weight rows, K depth, H query heads, G key/value heads, D head dim.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.linear import workspace
from walkgraph.layers.kernels.modulated_config import Cut

if TYPE_CHECKING:
    from walkgraph.layers.attention.heads import HeadTargets, RotaryTable

WARPS = 4
_SMALL = tl.constexpr(4096)
"""Numbers of a tile up to which its epilogue's inputs are loaded before the sums and held in registers."""


@triton.jit
def _await(OVERLAP: tl.constexpr):
    if OVERLAP > 0:
        gdc_wait()
    if OVERLAP == 1:
        gdc_launch_dependents()


@triton.jit
def _ahead(
    weight, stride, lead, at, first, HEIGHT: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, AHEAD: tl.constexpr
):
    """Prefetch the beginning of N weight rows into L2."""
    piece = tl.arange(0, N)
    row = (lead + piece // WIDTH) * HEIGHT + at + piece % WIDTH
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [weight + row.to(tl.int64) * stride + first, tl.full([N], AHEAD * 2, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _place(rows, M: tl.constexpr, SPLIT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HALVES: tl.constexpr):
    """A program's row tile, column tile and part, the half of its weight rows, and their first index in it. Programs
    that share weights run side by side."""
    down = (rows + M - 1) // M
    r, rest = tl.program_id(0) % down, tl.program_id(0) // down
    part, block = rest % SPLIT, rest // SPLIT
    return r, block, part, block * WIDTH // HEIGHT * HALVES, block * WIDTH % HEIGHT


@triton.jit
def _ready(
    tiles, weight, stride, part, lead, at,
    K: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    DEPTH: tl.constexpr, AHEAD: tl.constexpr, OVERLAP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Prefetch weights, and wait for the previous launch. EARLY: return them whole, `[N, DEPTH]`."""
    first = part * (K // SPLIT)
    if OVERLAP == 2:
        gdc_launch_dependents()
    whole = part  # a placeholder that nobody reads
    if EARLY:
        whole = tiles.load([lead, at, first]).reshape(N, DEPTH)
    elif OVERLAP > 0 and AHEAD > 0:
        _ahead(weight, stride, lead, at, first, HEIGHT, N, WIDTH, AHEAD)
    _await(OVERLAP)
    return whole


@triton.jit
def _sums(
    x, tiles, whole, r, part, lead, at,
    K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """This program's share of a tile's sums, float32 `[M, N]`."""
    first = part * (K // SPLIT)
    if EARLY:
        return tl.dot(x.load([r * M, first]), whole.T)
    total = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, K // SPLIT, DEPTH, num_stages=STAGES):
        tile = tiles.load([lead, at, first + k]).reshape(N, DEPTH)
        total = tl.dot(x.load([r * M, first + k]), tile.T, total)
    return total


@triton.jit
def _left(total, partials, counters, tile, part, M: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr):
    """Store a share of a tile's sums; returns true for the last program of the tile."""
    if SPLIT == 1:
        return tile >= 0
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(partials + (tile * SPLIT + part) * (M * N) + at, total)
    # Every thread stores its share before one of them counts it.
    tl.debug_barrier()
    return tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1


@triton.jit
def _gathered(total, partials, counters, tile, M: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr):
    """Add up the shares of a tile in order, and reset its counter to zero."""
    if SPLIT == 1:
        return total
    tl.store(counters + tile, 0)
    here = partials + tile * (SPLIT * M * N) + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.load(here, cache_modifier=".cg")
    for other in tl.static_range(1, SPLIT):
        total += tl.load(here + other * (M * N), cache_modifier=".cg")
    return total


@triton.jit
def _squares(squares, parts, m, rows, PARTS: tl.constexpr):
    """float32 `[M, PARTS]`; PARTS: a power of two >= parts."""
    p = tl.arange(0, PARTS)[None, :]
    there = (m < rows)[:, None] & (p < parts)
    return tl.load(squares + p * rows + m[:, None], mask=there, other=0.0)


@triton.jit
def _rstd(squared, eps, K: tl.constexpr):
    """float32 `[M, 1]`: the factors that norm the rows."""
    return tl.rsqrt(tl.sum(squared, 1, keep_dims=True) / K + eps)


@triton.jit
def _of_block(table, stride, m, rows, tokens, n):
    """`[M, len(n)]`: columns n of the table, from the row of each row's block."""
    block = (tl.minimum(m, rows - 1) // tokens).to(tl.int64)
    return tl.load(table + block[:, None] * stride + n[None, :])


@triton.jit
def _halves(total, M: tl.constexpr, WIDTH: tl.constexpr):
    return total.reshape(M, 2, WIDTH).permute(0, 2, 1).split()


@triton.jit
def _gate(gate, up, scale, gate_bias, up_bias, out, m, n, rows, HEIGHT: tl.constexpr):
    gate = gate * scale + gate_bias.to(tl.float32)
    up = up * scale + up_bias.to(tl.float32)
    # gelu's tanh form: (1 + tanh(u)) / 2 is the sigmoid of 2 u.
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    value = (gate * tl.sigmoid(inner) * up).to(out.dtype.element_ty)
    tl.store(out + m.to(tl.int64)[:, None] * HEIGHT + n[None, :], value, mask=(m < rows)[:, None])


@triton.jit(do_not_specialize=["parts", "rows", "tokens"])
def gated_kernel(
    x, tiles, weight, squares, bias, out, partials, counters, parts, rows, tokens, stride, bias_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, OVERLAP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """gelu(gate) * up; HEIGHT: columns of the result."""
    WIDTH: tl.constexpr = N // 2
    SOON: tl.constexpr = M * N <= _SMALL
    r, block, part, lead, at = _place(rows, M, SPLIT, HEIGHT, WIDTH, 2)
    m, n = r * M + tl.arange(0, M), at + tl.arange(0, WIDTH)
    if SOON:
        low = _of_block(bias, bias_stride, m, rows, tokens, n)
        high = _of_block(bias + HEIGHT, bias_stride, m, rows, tokens, n)
    whole = _ready(
        tiles, weight, stride, part, lead, at, K, N, SPLIT, HEIGHT, WIDTH, DEPTH, AHEAD, OVERLAP, EARLY
    )  # fmt: skip
    if SOON:
        squared = _squares(squares, parts, m, rows, PARTS)
    total = _sums(x, tiles, whole, r, part, lead, at, K, M, N, DEPTH, SPLIT, STAGES, EARLY)
    tile = block * ((rows + M - 1) // M) + r
    if _left(total, partials, counters, tile, part, M, N, SPLIT):
        total = _gathered(total, partials, counters, tile, M, N, SPLIT)
        if not SOON:
            low = _of_block(bias, bias_stride, m, rows, tokens, n)
            high = _of_block(bias + HEIGHT, bias_stride, m, rows, tokens, n)
            squared = _squares(squares, parts, m, rows, PARTS)
        gate, up = _halves(total, M, WIDTH)
        _gate(gate, up, _rstd(squared, eps, K), low, high, out, m, n, rows, HEIGHT)


@triton.jit(do_not_specialize=["parts", "rows", "tokens"])
def gated_after(
    product, squares, bias, out, parts, rows, tokens, bias_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The epilogue of `gated_kernel` for a product `[rows, 2 * HEIGHT]`; N: columns of a tile, of both halves."""
    WIDTH: tl.constexpr = N // 2
    r, _, _, _, at = _place(rows, M, 1, HEIGHT, WIDTH, 2)
    m, n = r * M + tl.arange(0, M), at + tl.arange(0, WIDTH)
    low = _of_block(bias, bias_stride, m, rows, tokens, n)
    high = _of_block(bias + HEIGHT, bias_stride, m, rows, tokens, n)
    _await(OVERLAP)
    here = product + m.to(tl.int64)[:, None] * (2 * HEIGHT) + n[None, :]
    gate = tl.load(here, mask=(m < rows)[:, None], other=0.0)
    up = tl.load(here + HEIGHT, mask=(m < rows)[:, None], other=0.0)
    squared = _squares(squares, parts, m, rows, PARTS)
    _gate(gate.to(tl.float32), up.to(tl.float32), _rstd(squared, eps, K), low, high, out, m, n, rows, HEIGHT)


@triton.jit
def _add(total, x, gate, scale, out, weighted, squares, block, m, n, rows, WIDE: tl.constexpr):
    """x `[M, N]`; n: its columns, those of the block."""
    inside, at = (m < rows)[:, None], m.to(tl.int64)[:, None] * WIDE + n[None, :]
    rounded = (x.to(tl.float32) + total * gate.to(tl.float32)).to(out.dtype.element_ty)
    tl.store(out + at, rounded, mask=inside)
    value = rounded.to(tl.float32)
    tl.store(squares + block * rows + m, tl.sum(value * value, 1), mask=m < rows)
    value *= 1 + scale.to(tl.float32)
    tl.store(weighted + at, value.to(weighted.dtype.element_ty), mask=inside)


@triton.jit
def _tile_of(x, m, n, rows, WIDE: tl.constexpr):
    return tl.load(x + m.to(tl.int64)[:, None] * WIDE + n[None, :], mask=(m < rows)[:, None], other=0.0)


@triton.jit(do_not_specialize=["rows", "tokens"])
def added_kernel(
    inner, tiles, weight, x, gate, scale, out, weighted, squares, partials, counters,
    rows, tokens, stride, gate_stride, scale_stride,
    K: tl.constexpr, HEIGHT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, OVERLAP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x + gate * (inner @ weight.T), also weighted for the norm after it, with squares `[HEIGHT / N, rows]`."""
    SOON: tl.constexpr = M * N <= _SMALL
    r, block, part, lead, at = _place(rows, M, SPLIT, HEIGHT, N, 1)
    m, n = r * M + tl.arange(0, M), block * N + tl.arange(0, N)
    if SOON:
        gates = _of_block(gate, gate_stride, m, rows, tokens, n)
        scales = _of_block(scale, scale_stride, m, rows, tokens, n)
    whole = _ready(
        tiles, weight, stride, part, lead, at, K, N, SPLIT, HEIGHT, N, DEPTH, AHEAD, OVERLAP, EARLY
    )  # fmt: skip
    if SOON:
        before = _tile_of(x, m, n, rows, HEIGHT)
    total = _sums(inner, tiles, whole, r, part, lead, at, K, M, N, DEPTH, SPLIT, STAGES, EARLY)
    tile = block * ((rows + M - 1) // M) + r
    if _left(total, partials, counters, tile, part, M, N, SPLIT):
        total = _gathered(total, partials, counters, tile, M, N, SPLIT)
        if not SOON:
            gates = _of_block(gate, gate_stride, m, rows, tokens, n)
            scales = _of_block(scale, scale_stride, m, rows, tokens, n)
            before = _tile_of(x, m, n, rows, HEIGHT)
        _add(total, before, gates, scales, out, weighted, squares, block, m, n, rows, HEIGHT)


@triton.jit(do_not_specialize=["rows", "tokens"])
def added_after(
    product, x, gate, scale, out, weighted, squares, rows, tokens, gate_stride, scale_stride,
    HEIGHT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The epilogue of `added_kernel` for a product `[rows, HEIGHT]`."""
    r, block, _, _, _ = _place(rows, M, 1, HEIGHT, N, 1)
    m, n = r * M + tl.arange(0, M), block * N + tl.arange(0, N)
    gates = _of_block(gate, gate_stride, m, rows, tokens, n)
    scales = _of_block(scale, scale_stride, m, rows, tokens, n)
    _await(OVERLAP)
    total, before = _tile_of(product, m, n, rows, HEIGHT), _tile_of(x, m, n, rows, HEIGHT)
    _add(total.to(tl.float32), before, gates, scales, out, weighted, squares, block, m, n, rows, HEIGHT)


@triton.jit
def _turn(
    low, high, scale, low_bias, high_bias, c, s, q, slot_k, slot_v, slot, head, m, n, rows,
    HEIGHT: tl.constexpr, H: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = 2 * HEIGHT
    inside, here = (m < rows)[:, None], n[None, :]
    low = low * scale + low_bias.to(tl.float32)
    high = high * scale + high_bias.to(tl.float32)
    if head < H + G:
        low, high = low * c - high * s, high * c + low * s
    if head < H:
        to = q + (m.to(tl.int64) * (H * D) + head * D)[:, None] + here
        tl.store(to, low.to(q.dtype.element_ty), mask=inside)
        tl.store(to + HEIGHT, high.to(q.dtype.element_ty), mask=inside)
    elif head < H + G:
        to = slot_k + (slot + (head - H) * D)[:, None] + here
        tl.store(to, low.to(slot_k.dtype.element_ty), mask=inside)
        tl.store(to + HEIGHT, high.to(slot_k.dtype.element_ty), mask=inside)
    else:
        to = slot_v + (slot + (head - H - G) * D)[:, None] + here
        tl.store(to, low.to(slot_v.dtype.element_ty), mask=inside)
        tl.store(to + HEIGHT, high.to(slot_v.dtype.element_ty), mask=inside)


@triton.jit
def _angles(cos, sin, m, n, rows, tokens, HEIGHT: tl.constexpr, EACH: tl.constexpr):
    row = tl.minimum(m, rows - 1)
    turn = (row if EACH else row // tokens)[:, None] * HEIGHT + n[None, :]
    return tl.load(cos + turn), tl.load(sin + turn)


@triton.jit(do_not_specialize=["parts", "rows", "tokens"])
def placed_kernel(
    x, tiles, weight, squares, bias, cos, sin, q, slot_k, slot_v, slots, partials, counters,
    parts, rows, tokens, stride, bias_stride, slot_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, H: tl.constexpr, G: tl.constexpr, TURNS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    AHEAD: tl.constexpr, OVERLAP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Queries, keys and values, rotated and written to their places; HEIGHT: D / 2. TURNS: every row has an angle of
    its own."""
    WIDTH: tl.constexpr = N // 2
    SOON: tl.constexpr = M * N <= _SMALL
    r, block, part, lead, at = _place(rows, M, SPLIT, HEIGHT, WIDTH, 2)
    m, n, first = r * M + tl.arange(0, M), at + tl.arange(0, WIDTH), bias + lead * HEIGHT
    if SOON:
        low_bias = _of_block(first, bias_stride, m, rows, tokens, n)
        high_bias = _of_block(first + HEIGHT, bias_stride, m, rows, tokens, n)
    whole = _ready(
        tiles, weight, stride, part, lead, at, K, N, SPLIT, HEIGHT, WIDTH, DEPTH, AHEAD, OVERLAP, EARLY
    )  # fmt: skip
    if SOON:
        c, s = _angles(cos, sin, m, n, rows, tokens, HEIGHT, TURNS)
        slot = tl.load(slots + m, mask=m < rows, other=0)
        squared = _squares(squares, parts, m, rows, PARTS)
    total = _sums(x, tiles, whole, r, part, lead, at, K, M, N, DEPTH, SPLIT, STAGES, EARLY)
    tile = block * ((rows + M - 1) // M) + r
    if _left(total, partials, counters, tile, part, M, N, SPLIT):
        total = _gathered(total, partials, counters, tile, M, N, SPLIT)
        if not SOON:
            low_bias = _of_block(first, bias_stride, m, rows, tokens, n)
            high_bias = _of_block(first + HEIGHT, bias_stride, m, rows, tokens, n)
            c, s = _angles(cos, sin, m, n, rows, tokens, HEIGHT, TURNS)
            slot = tl.load(slots + m, mask=m < rows, other=0)
            squared = _squares(squares, parts, m, rows, PARTS)
        low, high = _halves(total, M, WIDTH)
        _turn(
            low, high, _rstd(squared, eps, K), low_bias, high_bias, c, s, q, slot_k, slot_v, slot * slot_stride,
            lead // 2, m, n, rows, HEIGHT, H, G,
        )  # fmt: skip


@triton.jit(do_not_specialize=["parts", "rows", "tokens"])
def placed_after(
    product, squares, bias, cos, sin, q, slot_k, slot_v, slots, parts, rows, tokens, bias_stride, slot_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, H: tl.constexpr, G: tl.constexpr, TURNS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The epilogue of `placed_kernel` for a product of all heads; N: columns of a tile, of both halves of a head."""
    WIDTH: tl.constexpr = N // 2
    r, _, _, lead, at = _place(rows, M, 1, HEIGHT, WIDTH, 2)
    m, n, first = r * M + tl.arange(0, M), at + tl.arange(0, WIDTH), lead * HEIGHT
    low_bias = _of_block(bias + first, bias_stride, m, rows, tokens, n)
    high_bias = _of_block(bias + first + HEIGHT, bias_stride, m, rows, tokens, n)
    slot = tl.load(slots + m, mask=m < rows, other=0) * slot_stride
    _await(OVERLAP)
    WIDE: tl.constexpr = (H + 2 * G) * 2 * HEIGHT
    low = _tile_of(product + first, m, n, rows, WIDE).to(tl.float32)
    high = _tile_of(product + first + HEIGHT, m, n, rows, WIDE).to(tl.float32)
    c, s = _angles(cos, sin, m, n, rows, tokens, HEIGHT, TURNS)
    scale = _rstd(_squares(squares, parts, m, rows, PARTS), eps, K)
    _turn(
        low, high, scale, low_bias, high_bias, c, s, q, slot_k, slot_v, slot, lead // 2, m, n, rows, HEIGHT, H, G
    )  # fmt: skip


def gated(cut: Cut, weighted: Tensor, squares: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`walkgraph.layers.norm.modulated.gated` for a cut that fits: weighted `[R, W]` and squares `[parts, R]` of the
    rows, contiguous."""
    rows, depth = weighted.shape
    height = weight.shape[0] // 2
    out = weighted.new_empty(rows, height)
    sizes = squares.shape[0], rows, rows // bias.shape[0]
    given = {"K": depth, "HEIGHT": height, "PARTS": _padded(squares)}
    if cut.library:
        gated_after[_grid(cut, rows, weight)](
            F.linear(weighted, weight), squares, bias, out, *sizes, bias.stride(0), eps, **given, **_after(cut)
        )
        return out
    gated_kernel[_grid(cut, rows, weight)](
        *_maps(cut, weighted, weight, height, 2), weight, squares, bias, out, *workspace(weight.device), *sizes,
        weight.stride(0), bias.stride(0), eps, **given, **constants(cut, depth),
    )  # fmt: skip
    return out


def added(
    cut: Cut, x: Tensor, inner: Tensor, weight: Tensor, gate: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`walkgraph.layers.norm.modulated.add` for a cut that fits -> x, weighted and squares of the new rows; x and inner
    contiguous."""
    (rows, depth), width = inner.shape, weight.shape[0]
    out, weighted = torch.empty_like(x), torch.empty_like(x)
    squares = torch.empty(width // cut.columns, rows, dtype=torch.float32, device=x.device)
    sizes = rows, rows // gate.shape[0]
    if cut.library:
        added_after[_grid(cut, rows, weight)](
            F.linear(inner, weight), x, gate, scale, out, weighted, squares, *sizes, gate.stride(0), scale.stride(0),
            HEIGHT=width, **_after(cut),
        )  # fmt: skip
        return out, weighted, squares
    added_kernel[_grid(cut, rows, weight)](
        *_maps(cut, inner, weight, width, 1), weight, x, gate, scale, out, weighted, squares, *workspace(x.device),
        *sizes, weight.stride(0), gate.stride(0), scale.stride(0), K=depth, HEIGHT=width, **constants(cut, depth),
    )  # fmt: skip
    return out, weighted, squares


def placed(
    cut: Cut,
    weighted: Tensor,
    squares: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    turns: "RotaryTable",
    to: "HeadTargets",
) -> None:
    """`walkgraph.layers.norm.modulated.place` for a cut that fits. Raises ValueError for other memory layouts."""
    (rows, depth), (groups, width) = weighted.shape, to.k.shape[1:]
    if to.k.stride() != to.v.stride() or to.k.stride()[1:] != (width, 1) or not to.q.is_contiguous():
        raise ValueError("queries must be contiguous, and so must keys and values of a slot, with equal strides")
    places = *turns, to.q, to.k, to.v, to.slots
    sizes = squares.shape[0], rows, rows // bias.shape[0]
    heads = weight.shape[0] // width - 2 * groups
    given = {"K": depth, "HEIGHT": width // 2, "PARTS": _padded(squares), "H": heads, "G": groups}
    given["TURNS"] = turns.cos.dim() == 3
    if cut.library:
        placed_after[_grid(cut, rows, weight)](
            F.linear(weighted, weight), squares, bias, *places, *sizes, bias.stride(0), to.k.stride(0), eps,
            **given, **_after(cut),
        )  # fmt: skip
        return
    placed_kernel[_grid(cut, rows, weight)](
        *_maps(cut, weighted, weight, width // 2, 2), weight, squares, bias, *places, *workspace(weight.device),
        *sizes, weight.stride(0), bias.stride(0), to.k.stride(0), eps, **given, **constants(cut, depth),
    )  # fmt: skip


def _after(cut: Cut) -> dict[str, Any]:
    """Arguments of the kernel that follows a product of the library."""
    return {
        "M": cut.rows, "N": cut.columns, "OVERLAP": cut.overlap, "num_warps": WARPS, "launch_pdl": cut.overlap > 0,
    }  # fmt: skip


def _padded(squares: Tensor) -> int:
    """Round up to few numbers, so that few kernels are compiled."""
    return 1 << max(4, (squares.shape[0] - 1).bit_length())


def _grid(cut: Cut, rows: int, weight: Tensor) -> tuple[int]:
    return (-(-rows // cut.rows) * (weight.shape[0] // cut.columns) * cut.split,)


def _maps(cut: Cut, x: Tensor, weight: Tensor, height: int, halves: int) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Tensor maps of the rows, and of the weight in pieces of `height` rows. They read zeros past the last row."""
    stride, depth = weight.stride(0), weight.shape[1]
    return (
        TensorDescriptor(x, list(x.shape), list(x.stride()), [cut.rows, cut.depth]),
        TensorDescriptor(
            weight, [weight.shape[0] // height, height, depth], [height * stride, stride, 1],
            [halves, cut.columns // halves, cut.depth],
        ),
    )  # fmt: skip


def constants(cut: Cut, depth: int) -> dict[str, Any]:
    """The compile-time arguments of a kernel that depend on its cut, and its options."""
    return {
        "M": cut.rows, "N": cut.columns, "DEPTH": cut.depth, "SPLIT": cut.split, "STAGES": cut.stages,
        "AHEAD": min(cut.ahead, depth // cut.split), "OVERLAP": cut.overlap, "EARLY": cut.early, "num_warps": WARPS,
        "num_stages": cut.stages, "launch_pdl": cut.overlap > 0,
    }  # fmt: skip
