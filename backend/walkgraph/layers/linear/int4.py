"""Weights of linears in four bits: a quarter of their memory, with errors of some tenth of a weight's size.

A weight is cut along its inputs into groups of 128 numbers, each with a scale: a number is `(q - 8) * scale`, with q
from 0 to 15. Two are packed in a byte: byte j of a group holds number j in its low half and number j + 64 in its high
half, so that a kernel reads both halves as rows of two plain products.

`Int4Weight` stands where the weight of an `nn.Linear` does: it is multiplied, cut and joined by rows as other weights
are. Whatever else is asked of it is refused, so that nothing makes a large copy by accident.

Shape letters: R rows, N outputs, K inputs, G groups of a row (K / 128, rounded up).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP = 128
"""Numbers that share a scale."""
HALF = GROUP // 2
"""Bytes of a group, and how far apart the two numbers of a byte are."""
_ZERO = 8
_SHRUNK = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""Shares of a group's largest number that its scale may be made for: what is larger is cut, and the rest is finer."""
_AT_ONCE = 1 << 24
"""Numbers that are quantized at once; their float32 copies take some hundreds of MiB."""


class Int4Weight(Tensor):
    """A weight `[N, K]` in four bits. Its type is that of the rows that it is multiplied with."""

    numbers: Tensor
    """uint8 `[N, 64 * G]`"""
    scales: Tensor
    """`[N, G]` of the rows' type."""

    def __new__(cls, numbers: Tensor, scales: Tensor, columns: int) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls, (numbers.shape[0], columns), dtype=scales.dtype, device=numbers.device, requires_grad=False
        )
        made.numbers, made.scales = numbers, scales
        return made

    def __init__(self, numbers: Tensor, scales: Tensor, columns: int) -> None:
        """`columns`: K."""

    @classmethod
    def of(cls, weight: Tensor) -> Self:
        """Quantize weight `[N, K]`. Each group takes the scale, of a few, that gives the least squared error."""
        rows = max(1, _AT_ONCE // weight.shape[1])
        parts = [_quantized(part) for part in weight.split(rows)]
        numbers, scales = (torch.cat(same) for same in zip(*parts, strict=True))
        return cls(numbers, scales, weight.shape[1])

    def plain(self) -> Tensor:
        """`[N, K]` of the scales' type."""
        bytes_ = self.numbers.unflatten(1, (-1, HALF))
        q = torch.cat([bytes_ & 15, bytes_ >> 4], 2).to(self.scales.dtype) - _ZERO
        return (q * self.scales[..., None]).flatten(1)[:, : self.shape[1]]

    def rows(self, at: slice) -> Self:
        """Some of the outputs; shares memory."""
        return type(self)(self.numbers[at], self.scales[at], self.shape[1])

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.scales.nbytes

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Int4Weight({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(*args, **(kwargs or {}))
        if func in _PLAIN or func.__name__ == "__get__":
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return NotImplemented

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(f"weights in four bits have no `{func}`")


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """`[N, K]` -> numbers uint8 `[N, 64 * G]`, scales of its type `[N, G]`."""
    padded = F.pad(weight.float(), (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    # The number furthest from zero becomes -8 exactly, whatever its sign.
    furthest = padded.gather(2, padded.abs().argmax(2, keepdim=True)) / -_ZERO
    best, found = torch.full_like(furthest, torch.inf), torch.zeros_like(furthest)
    for share in _SHRUNK:
        scale = (furthest * share).to(weight.dtype).float()
        error = (_levels(padded, scale) * scale - padded).square().sum(2, keepdim=True)
        found, best = torch.where(error < best, scale, found), torch.minimum(error, best)
    q = (_levels(padded, found) + _ZERO).to(torch.uint8)
    numbers = q[..., :HALF] | (q[..., HALF:] << 4)
    return numbers.flatten(1), found[..., 0].to(weight.dtype)


def _levels(x: Tensor, scale: Tensor) -> Tensor:
    """The nearest multiples of each group's scale, from -8 to 7; a group of zeros has none."""
    return (x / scale.where(scale != 0, 1.0)).round().clamp(-_ZERO, _ZERO - 1)


class Fused(TypedDict, total=False):
    """The work of a linear beside its product, as `walkgraph.layers.linear.step_linear.linear` describes it."""

    norm: Tensor | None
    eps: float
    residual: Tensor | None
    gated: bool
    bias: Tensor | None
    exact: bool


def fused(x: Tensor, weight: Int4Weight, **beside: Unpack[Fused]) -> Tensor | None:
    """`walkgraph.layers.linear.step_linear.linear` of any number of rows in one launch; None where the kernel doesn't
    serve them."""
    if not x.is_cuda or x.dtype not in (torch.bfloat16, torch.float16) or x.shape[1] % GROUP or not x.shape[0]:
        return None
    from walkgraph.layers.kernels.int4 import multiply

    return multiply(x, weight.numbers, weight.scales, **beside)


def _linear(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    found = fused(x.flatten(0, -2), weight, bias=bias)
    return F.linear(x, weight.plain(), bias) if found is None else found.unflatten(0, x.shape[:-1])


def _cat(parts: Sequence[Int4Weight], dim: int = 0) -> Int4Weight:
    if dim != 0 or len({part.shape[1] for part in parts}) > 1:
        raise ValueError("weights in four bits are joined by rows of equal width")
    return Int4Weight(
        torch.cat([part.numbers for part in parts]), torch.cat([part.scales for part in parts]), parts[0].shape[1]
    )


def _split(weight: Int4Weight, sizes: Sequence[int], dim: int = 0) -> list[Int4Weight]:
    if dim != 0:
        raise ValueError("weights in four bits are cut by rows")
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [weight.rows(slice(start, end)) for start, end in pairwise(ends)]


def _item(weight: Int4Weight, at: Any) -> Int4Weight:
    if not isinstance(at, slice):
        raise ValueError("weights in four bits are cut by rows")
    return weight.rows(at)


def _same(weight: Int4Weight) -> Int4Weight:
    return weight.rows(slice(None))


_HANDLERS: Mapping[Any, Callable[..., Any]] = {
    F.linear: _linear,
    torch.cat: _cat,
    Tensor.split: _split,
    Tensor.__getitem__: _item,
    Tensor.detach: _same,
    Tensor.data.__get__: _same,  # pyright: ignore[reportAttributeAccessIssue]
}
_PLAIN = frozenset(
    (Tensor.requires_grad_, Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point, Tensor.element_size)
)
"""Operations that torch asks of every parameter and that read no numbers."""
