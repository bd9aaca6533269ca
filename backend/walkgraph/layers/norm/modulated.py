"""Blocks of rows whose norms are modulated (adaRMS): scale, shift and gate belong to a block and apply to all its rows.

    y = norm(x) * (1 + scale) + shift        x' = x + gate * (f(y) @ weight.T)

Modulations are known before the rows, so a norm's shift is multiplied by the next product's weight beforehand and
becomes that product's bias (`Modulation.of`). On Hopper a product is one launch, which also stores its rows multiplied
by 1 + scale of the next norm, with their sums of squares, so that the next product can read them directly. Other
devices use the plain forms, which have gradients.

A layer is

    rows = begin(x, first.scale, eps)                            [R, W]
    place(rows, qkv, first.bias, turns, places)                  queries, keys and values, turned, where they are read
    rows = add(rows, heads, o, first.gate, second.scale)
    inner = gated(rows, gate_up, second.bias)                    [R, F]
    rows = add(rows, inner, down, second.gate, next.scale)

and the next layer goes on with these rows. After the last, `modulated(rows.x, scale, shift, eps)` is the final norm.

Shape letters: B blocks, n tokens of a block, R = B * n rows, block after block; W model width, K columns that are
multiplied, N columns of a product, F hidden width, T numbers of a table.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.block_attention import place_heads
from walkgraph.layers.attention.heads import HeadTargets, RotaryTable
from walkgraph.layers.invariance import is_batch_invariant

if TYPE_CHECKING:
    from walkgraph.layers.kernels.modulated_config import Cut

_MAJOR = 9
"""Compute capability that the kernels are written and measured for."""
_ALIGNED = 8
"""Rows begin at multiples of this many numbers, for tensor maps."""


class Modulation(NamedTuple):
    """Modulation of one norm, of the product after it, and of the addition that follows. Any floating type."""

    scale: Tensor
    """`[B, W]`: rows are multiplied by 1 + scale."""
    bias: Tensor
    """`[B, N]`"""
    gate: Tensor
    """`[B, W]`"""

    @classmethod
    def of(cls, scale: Tensor, shift: Tensor, gate: Tensor, weight: Tensor) -> "Modulation":
        """scale, shift, gate `[B, W]`; weight `[N, W]` of the product that reads the normed rows."""
        return cls(scale, F.linear(shift.float(), weight.float()).to(scale.dtype), gate)


def laid(modulations: Sequence[Modulation]) -> Tensor:
    """A table of all modulations, side by side: `[B, T]`."""
    return torch.cat([part for one in modulations for part in one], 1)


def lifted(table: Tensor, width: int, products: Sequence[int]) -> list[Modulation]:
    """The modulations that `laid` put into `table` `[B, T]`, as views. `products`: the N of each."""
    sizes = [size for product in products for size in (width, product, width)]
    parts: Iterator[Tensor] = iter(table.split(sizes, 1))
    return [Modulation(*one) for one in zip(parts, parts, parts, strict=True)]


class Rows(NamedTuple):
    """Rows before a norm. Create them with `begin`, `enter` and `add`."""

    x: Tensor
    """`[R, W]`"""
    scale: Tensor
    """`[B, W]`: the norm's scale."""
    eps: float
    weighted: Tensor | None = None
    """`[R, W]`: x * (1 + scale), if a kernel stored it."""
    squares: Tensor | None = None
    """float32 `[parts, R]`, present with `weighted`: the parts add up to a row's sum of squares."""


def modulated(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """x `[R, W]`, scale and shift `[B, W]` -> norm(x) * (1 + scale) + shift `[R, W]`, computed in float32, in x's
    type."""
    if _on_hopper(x, x.dtype):
        from walkgraph.layers.kernels.modulated_rows import modulate

        return modulate(x.contiguous(), scale, shift, eps)
    blocks = _normed(x, eps).unflatten(0, (scale.shape[0], -1))
    return torch.addcmul(shift.float()[:, None], blocks, 1 + scale.float()[:, None]).flatten(0, 1).to(x.dtype)


def begin(x: Tensor, scale: Tensor, eps: float) -> Rows:
    """x `[R, W]` before its first norm, of `scale` `[B, W]`."""
    if _on_hopper(x, x.dtype):
        from walkgraph.layers.kernels.modulated_rows import weigh

        x = x.contiguous()
        return Rows(x, scale, eps, *weigh(x, scale))
    return Rows(x, scale, eps)


def enter(given: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, eps: float, dtype: torch.dtype) -> Rows:
    """given float32 `[R, A]`, few numbers per row, through weight `[W, A]` and bias `[W]` -> rows of `dtype` before
    their first norm, of `scale` `[B, W]`."""
    fits = all(part.dtype == torch.float32 and part.is_contiguous() for part in (given, weight, bias))
    if fits and _on_hopper(given, dtype):
        from walkgraph.layers.kernels import modulated_rows

        x, *left = modulated_rows.enter(given, weight, bias, scale, dtype)
        return Rows(x, scale, eps, *left)
    return begin(F.linear(given.to(weight.dtype), weight, bias).to(dtype), scale, eps)


def product(rows: Rows, weight: Tensor, bias: Tensor) -> Tensor:
    """The normed and modulated rows times weight `[N, W]`, plus bias `[B, N]` -> `[R, N]` of their type."""
    wide = F.linear(_weighted(rows), weight).unflatten(0, (bias.shape[0], -1)) + bias[:, None]
    return wide.flatten(0, 1).to(rows.x.dtype)


def place(rows: Rows, weight: Tensor, bias: Tensor, turns: RotaryTable, to: HeadTargets) -> None:
    """Compute all heads with weight `[(H + 2G) * D, W]` (queries, keys, values), rotate them, and write them to their
    places, as `block_attention.place_heads` does."""
    cut = _cut(rows, rows.weighted, weight, to.k.shape[2] // 2)
    if cut is not None and rows.weighted is not None and rows.squares is not None:
        from walkgraph.layers.kernels.modulated import placed

        placed(cut, rows.weighted, rows.squares, weight, bias, rows.eps, turns, to)
        return
    place_heads(product(rows, weight, bias), turns, None, to, 0)


def gated(rows: Rows, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(gate) * up with gelu's tanh form; weight `[2F, W]` and bias `[B, 2F]`, gate first -> `[R, F]`."""
    cut = _cut(rows, rows.weighted, weight, weight.shape[0] // 2)
    if cut is not None and rows.weighted is not None and rows.squares is not None:
        from walkgraph.layers.kernels import modulated as kernels

        return kernels.gated(cut, rows.weighted, rows.squares, weight, bias, rows.eps)
    gate, up = product(rows, weight, bias).chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def add(rows: Rows, inner: Tensor, weight: Tensor, gate: Tensor, scale: Tensor) -> Rows:
    """x + gate * (inner @ weight.T), the rows before the norm of `scale`; inner `[R, K]`, weight `[W, K]`, gate and
    scale `[B, W]`."""
    cut = _cut(rows, inner, weight, 0)
    if cut is not None:
        from walkgraph.layers.kernels import modulated as kernels

        x, *given = kernels.added(cut, rows.x, inner.contiguous(), weight, gate, scale)
        return Rows(x, scale, rows.eps, *given)
    added = F.linear(inner, weight).unflatten(0, (gate.shape[0], -1)).float() * gate.float()[:, None]
    return Rows((rows.x + added.flatten(0, 1)).to(rows.x.dtype), scale, rows.eps)


def _on_hopper(x: Tensor, dtype: torch.dtype) -> bool:
    """True if kernels serve rows of this type on x's device."""
    return (
        x.is_cuda
        and dtype in (torch.bfloat16, torch.float16)
        and not torch.is_grad_enabled()
        and torch.cuda.get_device_capability(x.device)[0] == _MAJOR
    )


def _cut(rows: Rows, read: Tensor | None, weight: Tensor, height: int) -> "Cut | None":
    """The cut for multiplying `read` `[R, K]` by a weight in halves of `height` (0: no halves); None if no kernel fits:
    rows that didn't begin on Hopper, or no whole tiles."""
    if read is None or rows.weighted is None or read.dtype != weight.dtype or weight.stride(1) != 1:
        return None
    if weight.stride(0) % _ALIGNED or any(t.data_ptr() % (2 * _ALIGNED) for t in (read, weight)):
        return None
    from walkgraph.layers.kernels.modulated_config import choose

    return choose(read.shape[0], (weight.shape[0], weight.shape[1], height), alike=is_batch_invariant())


def _weighted(rows: Rows) -> Tensor:
    """norm(x) * (1 + scale) `[R, W]`."""
    blocks = _normed(rows.x, rows.eps).unflatten(0, (rows.scale.shape[0], -1))
    return (blocks * (1 + rows.scale.float()[:, None])).flatten(0, 1).to(rows.x.dtype)


def _normed(x: Tensor, eps: float) -> Tensor:
    """float32 `[R, W]`"""
    return F.rms_norm(x.float(), (x.shape[-1],), None, eps)
