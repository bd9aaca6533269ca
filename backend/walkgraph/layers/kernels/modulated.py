"""Products of modulated rows on Hopper, one launch each: what `walkgraph.layers.modulated` runs there.

x and weights come through tensor maps; a program owns a tile of rows and weight rows, and a part of the depth. Programs
that share a tile leave their sums in the linears' workspace; the last to arrive adds them in their order, so results
don't depend on who that is. So products of two streams of one device must not overlap.

Rows come weighted: multiplied by 1 + scale of their norm and not yet divided by their root mean square, which is the
product's last factor; rounded so, they have the same relative error.

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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.linear import workspace
from walkgraph.layers.kernels.modulated_config import Cut

if TYPE_CHECKING:
    from walkgraph.layers.block_attention import Places, Turns


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
    """Ask for the beginning of N weight rows into L2."""
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
    """Which tile and part a program has: row tile, column tile, part; and its weight rows: in which half of all, and
    from where on there. Programs that share weights run side by side."""
    down = (rows + M - 1) // M
    r, rest = tl.program_id(0) % down, tl.program_id(0) // down
    part, block = rest % SPLIT, rest // SPLIT
    return r, block, part, block * WIDTH // HEIGHT * HALVES, block * WIDTH % HEIGHT


@triton.jit
def _sums(
    x, tiles, weight, stride, r, part, lead, at,
    K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr, HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """This program's share of a tile's sums, float32 `[M, N]`."""
    PART: tl.constexpr = K // SPLIT
    first = part * PART
    if OVERLAP == 2:
        gdc_launch_dependents()
    if OVERLAP > 0 and AHEAD > 0:
        _ahead(weight, stride, lead, at, first, HEIGHT, N, WIDTH, AHEAD)
    _await(OVERLAP)
    total = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, PART, DEPTH, num_stages=STAGES):
        tile = tiles.load([lead, at, first + k]).reshape(N, DEPTH)
        total = tl.dot(x.load([r * M, first + k]), tile.T, total)
    return total


@triton.jit
def _left(total, partials, counters, tile, part, M: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr):
    """Leave a share of a tile's sums -> whether all programs of the tile have."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(partials + (tile * SPLIT + part) * (M * N) + at, total)
    # Every thread's share is written before one of them counts it.
    tl.debug_barrier()
    return tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1


@triton.jit
def _gathered(partials, counters, tile, M: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr):
    """The shares of a tile added up in their order; its counter is put back to zero."""
    tl.store(counters + tile, 0)
    here = partials + tile * (SPLIT * M * N) + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.load(here, cache_modifier=".cg")
    for other in tl.static_range(1, SPLIT):
        total += tl.load(here + other * (M * N), cache_modifier=".cg")
    return total


@triton.jit
def _rstd(squares, parts, m, rows, eps, K: tl.constexpr, PARTS: tl.constexpr):
    """float32 `[M, 1]`: what rows are multiplied by to be normed. PARTS: a power of two >= parts."""
    p = tl.arange(0, PARTS)[None, :]
    there = (m < rows)[:, None] & (p < parts)
    total = tl.sum(tl.load(squares + p * rows + m[:, None], mask=there, other=0.0), 1, keep_dims=True)
    return tl.rsqrt(total / K + eps)


@triton.jit
def _of_block(table, stride, m, rows, tokens, n):
    """float32 `[M, len(n)]`: columns n of the table's row of every row's block."""
    block = (tl.minimum(m, rows - 1) // tokens).to(tl.int64)
    return tl.load(table + block[:, None] * stride + n[None, :]).to(tl.float32)


@triton.jit
def _halves(total, M: tl.constexpr, WIDTH: tl.constexpr):
    return total.reshape(M, 2, WIDTH).permute(0, 2, 1).split()


@triton.jit
def _gate(
    total, squares, bias, out, r, at, parts, rows, tokens, bias_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, M: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    m, n = r * M + tl.arange(0, M), at + tl.arange(0, WIDTH)
    scale = _rstd(squares, parts, m, rows, eps, K, PARTS)
    gate, up = _halves(total, M, WIDTH)
    gate = gate * scale + _of_block(bias, bias_stride, m, rows, tokens, n)
    up = up * scale + _of_block(bias + HEIGHT, bias_stride, m, rows, tokens, n)
    # gelu's tanh form: (1 + tanh(u)) / 2 is the sigmoid of 2 u.
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    value = (gate * tl.sigmoid(inner) * up).to(out.dtype.element_ty)
    tl.store(out + m.to(tl.int64)[:, None] * HEIGHT + n[None, :], value, mask=(m < rows)[:, None])


@triton.jit(do_not_specialize=["parts", "rows", "tokens"])
def gated_kernel(
    x, tiles, weight, squares, bias, out, partials, counters, parts, rows, tokens, stride, bias_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """gelu(gate) * up; HEIGHT: columns of the result."""
    WIDTH: tl.constexpr = N // 2
    r, block, part, lead, at = _place(rows, M, SPLIT, HEIGHT, WIDTH, 2)
    total = _sums(
        x, tiles, weight, stride, r, part, lead, at, K, M, N, DEPTH, SPLIT, HEIGHT, WIDTH, STAGES, AHEAD, OVERLAP
    )
    if SPLIT == 1:
        _gate(total, squares, bias, out, r, at, parts, rows, tokens, bias_stride, eps, K, HEIGHT, PARTS, M, WIDTH)
    else:
        tile = block * ((rows + M - 1) // M) + r
        if _left(total, partials, counters, tile, part, M, N, SPLIT):
            total = _gathered(partials, counters, tile, M, N, SPLIT)
            _gate(total, squares, bias, out, r, at, parts, rows, tokens, bias_stride, eps, K, HEIGHT, PARTS, M, WIDTH)


@triton.jit
def _add(
    total, x, gate, scale, out, weighted, squares, r, block, rows, tokens, gate_stride, scale_stride,
    WIDE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    m, n = r * M + tl.arange(0, M), block * N + tl.arange(0, N)
    inside, at = (m < rows)[:, None], m.to(tl.int64)[:, None] * WIDE + n[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value += total * _of_block(gate, gate_stride, m, rows, tokens, n)
    rounded = value.to(out.dtype.element_ty)
    tl.store(out + at, rounded, mask=inside)
    value = rounded.to(tl.float32)
    tl.store(squares + block * rows + m, tl.sum(value * value, 1), mask=m < rows)
    value *= 1 + _of_block(scale, scale_stride, m, rows, tokens, n)
    tl.store(weighted + at, value.to(weighted.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "tokens"])
def added_kernel(
    inner, tiles, weight, x, gate, scale, out, weighted, squares, partials, counters,
    rows, tokens, stride, gate_stride, scale_stride,
    K: tl.constexpr, HEIGHT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """x + gate * (inner @ weight.T), also weighted for the norm after it, with squares `[HEIGHT / N, rows]`."""
    r, block, part, lead, at = _place(rows, M, SPLIT, HEIGHT, N, 1)
    total = _sums(
        inner, tiles, weight, stride, r, part, lead, at, K, M, N, DEPTH, SPLIT, HEIGHT, N, STAGES, AHEAD, OVERLAP
    )
    if SPLIT == 1:
        _add(
            total, x, gate, scale, out, weighted, squares, r, block, rows, tokens, gate_stride, scale_stride,
            HEIGHT, M, N,
        )  # fmt: skip
    else:
        tile = block * ((rows + M - 1) // M) + r
        if _left(total, partials, counters, tile, part, M, N, SPLIT):
            total = _gathered(partials, counters, tile, M, N, SPLIT)
            _add(
                total, x, gate, scale, out, weighted, squares, r, block, rows, tokens, gate_stride, scale_stride,
                HEIGHT, M, N,
            )  # fmt: skip


@triton.jit
def _turn(
    total, squares, bias, cos, sin, q, slot_k, slot_v, slots, r, head, at, parts, rows, tokens, bias_stride,
    slot_stride, eps, K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, H: tl.constexpr, G: tl.constexpr,
    EACH: tl.constexpr, M: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = 2 * HEIGHT
    m, n = r * M + tl.arange(0, M), at + tl.arange(0, WIDTH)
    inside, here = (m < rows)[:, None], n[None, :]
    scale = _rstd(squares, parts, m, rows, eps, K, PARTS)
    low, high = _halves(total, M, WIDTH)
    low = low * scale + _of_block(bias + head * D, bias_stride, m, rows, tokens, n)
    high = high * scale + _of_block(bias + head * D + HEIGHT, bias_stride, m, rows, tokens, n)
    if head < H + G:
        row = tl.minimum(m, rows - 1)
        turn = (row if EACH else row // tokens)[:, None] * HEIGHT + here
        c, s = tl.load(cos + turn), tl.load(sin + turn)
        low, high = low * c - high * s, high * c + low * s
    if head < H:
        to = q + (m.to(tl.int64) * (H * D) + head * D)[:, None] + here
        tl.store(to, low.to(q.dtype.element_ty), mask=inside)
        tl.store(to + HEIGHT, high.to(q.dtype.element_ty), mask=inside)
    else:
        slot = tl.load(slots + m, mask=m < rows, other=0) * slot_stride
        if head < H + G:
            to = slot_k + (slot + (head - H) * D)[:, None] + here
            tl.store(to, low.to(slot_k.dtype.element_ty), mask=inside)
            tl.store(to + HEIGHT, high.to(slot_k.dtype.element_ty), mask=inside)
        else:
            to = slot_v + (slot + (head - H - G) * D)[:, None] + here
            tl.store(to, low.to(slot_v.dtype.element_ty), mask=inside)
            tl.store(to + HEIGHT, high.to(slot_v.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["parts", "rows", "tokens"])
def placed_kernel(
    x, tiles, weight, squares, bias, cos, sin, q, slot_k, slot_v, slots, partials, counters,
    parts, rows, tokens, stride, bias_stride, slot_stride, eps,
    K: tl.constexpr, HEIGHT: tl.constexpr, PARTS: tl.constexpr, H: tl.constexpr, G: tl.constexpr, EACH: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    AHEAD: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Queries, keys and values, turned, where they belong; HEIGHT: D / 2. EACH: every row has turns of its own."""
    WIDTH: tl.constexpr = N // 2
    r, block, part, lead, at = _place(rows, M, SPLIT, HEIGHT, WIDTH, 2)
    total = _sums(
        x, tiles, weight, stride, r, part, lead, at, K, M, N, DEPTH, SPLIT, HEIGHT, WIDTH, STAGES, AHEAD, OVERLAP
    )
    if SPLIT == 1:
        _turn(
            total, squares, bias, cos, sin, q, slot_k, slot_v, slots, r, lead // 2, at, parts, rows, tokens,
            bias_stride, slot_stride, eps, K, HEIGHT, PARTS, H, G, EACH, M, WIDTH,
        )  # fmt: skip
    else:
        tile = block * ((rows + M - 1) // M) + r
        if _left(total, partials, counters, tile, part, M, N, SPLIT):
            total = _gathered(partials, counters, tile, M, N, SPLIT)
            _turn(
                total, squares, bias, cos, sin, q, slot_k, slot_v, slots, r, lead // 2, at, parts, rows, tokens,
                bias_stride, slot_stride, eps, K, HEIGHT, PARTS, H, G, EACH, M, WIDTH,
            )  # fmt: skip


@triton.jit(do_not_specialize=["tokens"])
def rows_kernel(
    x, scale, shift, out, squares, tokens, scale_stride, shift_stride, eps,
    W: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A program for one row: weighted, with its sum of squares; WHOLE: normed, scaled and shifted."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside, block = columns < W, row // tokens
    value = tl.load(x + row * W + columns, mask=inside, other=0.0).to(tl.float32)
    factor = 1 + tl.load(scale + block * scale_stride + columns, mask=inside, other=0.0).to(tl.float32)
    total = tl.sum(value * value, 0)
    value *= factor
    if WHOLE:
        added = tl.load(shift + block * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)
        value = value * tl.rsqrt(total / W + eps) + added
    else:
        tl.store(squares + row, total)
    tl.store(out + row * W + columns, value.to(out.dtype.element_ty), mask=inside)


def weigh(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """x `[R, W]` contiguous, scale `[B, W]` -> x * (1 + scale), and squares float32 `[1, R]`."""
    out, squares = torch.empty_like(x), torch.empty(1, x.shape[0], dtype=torch.float32, device=x.device)
    _rows(x, scale, None, out, squares, 0.0)
    return out, squares


def modulate(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """`walkgraph.layers.modulated.modulated`; x contiguous."""
    out = torch.empty_like(x)
    _rows(x, scale, shift, out, None, eps)
    return out


def _rows(x: Tensor, scale: Tensor, shift: Tensor | None, out: Tensor, squares: Tensor | None, eps: float) -> None:
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    rows_kernel[(rows,)](
        x, scale, shift, out, squares, rows // scale.shape[0], scale.stride(0),
        0 if shift is None else shift.stride(0), eps, W=width, BLOCK=block, WHOLE=shift is not None,
        num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip


def gated(cut: Cut, weighted: Tensor, squares: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`walkgraph.layers.modulated.gated` for a cut that fits: weighted `[R, W]` and squares `[parts, R]` of the rows,
    contiguous."""
    rows, depth = weighted.shape
    height = weight.shape[0] // 2
    out = weighted.new_empty(rows, height)
    gated_kernel[_grid(cut, rows, weight)](
        *_maps(cut, weighted, weight, height, 2), weight, squares, bias, out, *workspace(weight.device),
        squares.shape[0], rows, rows // bias.shape[0], weight.stride(0), bias.stride(0), eps,
        K=depth, HEIGHT=height, PARTS=_padded(squares), **constants(cut, depth),
    )  # fmt: skip
    return out


def added(
    cut: Cut, x: Tensor, inner: Tensor, weight: Tensor, gate: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`walkgraph.layers.modulated.add` for a cut that fits -> x, weighted and squares of the new rows; x and inner
    contiguous."""
    (rows, depth), width = inner.shape, weight.shape[0]
    out, weighted = torch.empty_like(x), torch.empty_like(x)
    squares = torch.empty(width // cut.columns, rows, dtype=torch.float32, device=x.device)
    added_kernel[_grid(cut, rows, weight)](
        *_maps(cut, inner, weight, width, 1), weight, x, gate, scale, out, weighted, squares, *workspace(x.device),
        rows, rows // gate.shape[0], weight.stride(0), gate.stride(0), scale.stride(0),
        K=depth, HEIGHT=width, **constants(cut, depth),
    )  # fmt: skip
    return out, weighted, squares


def placed(
    cut: Cut, weighted: Tensor, squares: Tensor, weight: Tensor, bias: Tensor, eps: float, turns: "Turns", to: "Places"
) -> None:
    """`walkgraph.layers.modulated.place` for a cut that fits. Raises ValueError for what lies otherwise."""
    (rows, depth), (groups, width) = weighted.shape, to.k.shape[1:]
    if to.k.stride() != to.v.stride() or to.k.stride()[1:] != (width, 1) or not to.q.is_contiguous():
        raise ValueError("queries must be contiguous, and keys and values of a slot lie side by side, both alike")
    placed_kernel[_grid(cut, rows, weight)](
        *_maps(cut, weighted, weight, width // 2, 2), weight, squares, bias, *turns, to.q, to.k, to.v, to.slots,
        *workspace(weight.device), squares.shape[0], rows, rows // bias.shape[0], weight.stride(0), bias.stride(0),
        to.k.stride(0), eps, K=depth, HEIGHT=width // 2, PARTS=_padded(squares),
        H=weight.shape[0] // width - 2 * groups, G=groups, EACH=turns.cos.dim() == 3, **constants(cut, depth),
    )  # fmt: skip


def _padded(squares: Tensor) -> int:
    """Few numbers, so that few kernels are compiled."""
    return max(16, triton.next_power_of_2(squares.shape[0]))


def _grid(cut: Cut, rows: int, weight: Tensor) -> tuple[int]:
    return (-(-rows // cut.rows) * (weight.shape[0] // cut.columns) * cut.split,)


def _maps(cut: Cut, x: Tensor, weight: Tensor, height: int, halves: int) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Tensor maps of the rows, and of the weight in pieces of `height` rows. What lies past the last row is zeros."""
    stride, depth = weight.stride(0), weight.shape[1]
    return (
        TensorDescriptor(x, list(x.shape), list(x.stride()), [cut.rows, cut.depth]),
        TensorDescriptor(
            weight, [weight.shape[0] // height, height, depth], [height * stride, stride, 1],
            [halves, cut.columns // halves, cut.depth],
        ),
    )  # fmt: skip


def constants(cut: Cut, depth: int) -> dict[str, Any]:
    """The compile-time arguments of a kernel that follow from its cut, and its options."""
    return {
        "M": cut.rows, "N": cut.columns, "DEPTH": cut.depth, "SPLIT": cut.split, "STAGES": cut.stages,
        "AHEAD": min(cut.ahead, depth // cut.split), "OVERLAP": cut.overlap, "num_warps": cut.warps,
        "num_stages": cut.stages, "launch_pdl": cut.overlap > 0,
    }  # fmt: skip
