"""`walkgraph.layers.attention.block_attention.place_heads` on a GPU: a program reads one token's product once."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable

HEADS = 16
"""Query heads that a program holds at once."""
WARPS = 4


@triton.jit
def _turned(at, norm, cos, sin, eps, inside, D: tl.constexpr, NORM: tl.constexpr):
    """The two halves of some heads, float32, normed and rotated."""
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, HALF)[None, :]
    low = tl.load(at + d, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + HALF + d, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        rstd = tl.rsqrt(tl.sum(low * low + high * high, 1, keep_dims=True) / D + eps)
        low *= rstd * tl.load(norm + d).to(tl.float32)
        high *= rstd * tl.load(norm + HALF + d).to(tl.float32)
    return low * cos - high * sin, high * cos + low * sin


@triton.jit(do_not_specialize=["tokens", "block", "first"])
def heads_kernel(
    qkv, q_norm, k_norm, cos, sin, q, slot_k, slot_v, slots, tokens, block, first, slot_stride, eps,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr,
    NORM: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """One program per token: the `tokens` of each row's `block` tokens that start at `first`. GROUPS: a power of two >=
    G. EACH: every token has an angle of its own."""
    HALF: tl.constexpr = D // 2
    row = tl.program_id(0)
    b = row // tokens
    at = (b * block + first + row % tokens).to(tl.int64)
    d = tl.arange(0, HALF)[None, :]
    turn = (row if EACH else b) * HALF + d
    c, s = tl.load(cos + turn), tl.load(sin + turn)
    base = qkv + row.to(tl.int64) * ((H + 2 * G) * D)
    for start in tl.static_range(0, H, HEADS):
        h = start + tl.arange(0, HEADS)[:, None]
        low, high = _turned(base + h * D, q_norm, c, s, eps, h < H, D, NORM)
        to = q + (at * H + h) * D + d
        tl.store(to, low.to(q.dtype.element_ty), mask=h < H)
        tl.store(to + HALF, high.to(q.dtype.element_ty), mask=h < H)
    g = tl.arange(0, GROUPS)[:, None]
    inside = g < G
    slot = tl.load(slots + at) * slot_stride
    low, high = _turned(base + (H + g) * D, k_norm, c, s, eps, inside, D, NORM)
    to = slot_k + slot + g * D + d
    tl.store(to, low.to(slot_k.dtype.element_ty), mask=inside)
    tl.store(to + HALF, high.to(slot_k.dtype.element_ty), mask=inside)
    whole = g * D + tl.arange(0, D)[None, :]
    value = tl.load(base + (H + G) * D + whole, mask=inside, other=0.0)
    tl.store(slot_v + slot + whole, value.to(slot_v.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def turns_kernel(positions, frequencies, cos, sin, tokens, half, HALF: tl.constexpr):
    """One program per token. HALF: a power of two >= half."""
    row, d = tl.program_id(0), tl.arange(0, HALF)
    position = (tl.load(positions + row // tokens) + row % tokens).to(tl.float32)
    angle = position * tl.load(frequencies + d, mask=d < half, other=0.0)
    tl.store(cos + row * half + d, tl.cos(angle), mask=d < half)
    tl.store(sin + row * half + d, tl.sin(angle), mask=d < half)


def turns(positions: Tensor, tokens: int, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """`layers.attention.block_attention.rotary_from_first`: cosines and sines, float32."""
    half = frequencies.shape[0]
    cos, sin = (frequencies.new_empty(positions.shape[0], tokens, half) for _ in range(2))
    block = triton.next_power_of_2(half)
    turns_kernel[(positions.shape[0] * tokens,)](
        positions, frequencies, cos, sin, tokens, half, HALF=block, num_warps=2
    )
    return cos, sin


def place(qkv: Tensor, turns: "RotaryTable", norms: "HeadNorms | None", to: "HeadTargets", first: int) -> None:
    """`layers.attention.block_attention.place_heads`. Raises ValueError for rows that aren't contiguous, or D that is
    not a power of two."""
    groups, width = to.k.shape[1:]
    if width & (width - 1) or not (qkv.is_contiguous() and to.q.is_contiguous()):
        raise ValueError(f"placing heads needs contiguous rows and a head width that is a power of two, not {width}")
    if to.k.stride() != to.v.stride() or to.k.stride()[1:] != (width, 1):
        raise ValueError("keys and values of a slot must be contiguous, with equal strides")
    rows = turns.cos.shape[0]
    heads = qkv.shape[1] // width - 2 * groups
    q_norm, k_norm, eps = norms or (None, None, 0.0)
    heads_kernel[(qkv.shape[0],)](
        qkv, q_norm, k_norm, turns.cos, turns.sin, to.q, to.k, to.v, to.slots,
        qkv.shape[0] // rows, to.slots.shape[0] // rows, first, to.k.stride(0), eps,
        H=heads, G=groups, D=width, HEADS=min(HEADS, triton.next_power_of_2(max(1, heads))),
        GROUPS=triton.next_power_of_2(groups), NORM=norms is not None, EACH=turns.cos.dim() == 3, num_warps=WARPS,
    )  # fmt: skip
