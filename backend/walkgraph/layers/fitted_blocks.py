"""Layers of an encoder for a few hundred rows on Hopper, five launches each: norm and product; attention; product and
sum; norm, product and gelu; product and sum.

Shape letters: R rows, W width, N columns of a product's result, K, H heads, D head dim.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from walkgraph.layers.attention.paged_blocks import Places
from walkgraph.layers.encoder import EncoderWeights
from walkgraph.layers.kernels.fitted_product import (
    MOST_ROWS,
    Cut,
    Norm,
    added,
    choose,
    is_present,
    mapped,
    placed,
    plain,
)
from walkgraph.layers.norm.layer_norm import row_sums


@dataclass(frozen=True, slots=True)
class _Normed:
    """A linear map and the norm before it: the weight includes the norm's scale, the bias its offset."""

    weight: Tensor
    """`[N, K]`"""
    bias: Tensor
    """float32 `[N]`"""
    totals: Tensor
    """float32 `[N]`: sums of the weight's rows."""
    eps: float

    def norm(self, sums: Tensor) -> Norm:
        return Norm(sums, self.totals, self.eps)


@dataclass(frozen=True, slots=True)
class Projection:
    """A norm and a map, as a layer's to queries, keys and values, with the rows that they will take."""

    x: Tensor
    sums: Tensor
    of: _Normed

    def rows(self) -> Tensor:
        """`[R, N]`: with a layer's, N is 3W."""
        one = self.of
        return mapped(self.x, one.weight, one.bias, one.norm(self.sums), _cut(self.x, one.weight), gelu=False)

    def placed(self, places: Places) -> Tensor:
        """Turned queries `[R, H, D]`; keys and values are in their places."""
        one = self.of
        return placed(self.x, one.weight, one.bias, one.norm(self.sums), places, _cut(self.x, one.weight))


class _Layer(NamedTuple):
    qkv: _Normed
    out: Tensor
    out_bias: Tensor
    """float32, as the other biases."""
    fc1: _Normed
    fc2: Tensor
    fc2_bias: Tensor


class FittedMap:
    """A linear map on one device."""

    def __init__(self, linear: nn.Linear) -> None:
        self._weight, self._bias = linear.weight, _float(linear.bias)

    @classmethod
    def of(cls, linear: nn.Linear) -> Self | None:
        """None where the launch doesn't run, and for a map that it doesn't take: see `FittedBlocks.of`."""
        return cls(linear) if is_present(linear.weight.device) and _is_taken(linear.weight, linear.bias) else None

    def __call__(self, x: Tensor) -> Tensor:
        """x `[R, K]`, which `fits` -> `[R, N]`."""
        return plain(x, self._weight, self._bias, _cut(x, self._weight))


class FittedBlocks:
    """The layers of one network on one device."""

    def __init__(self, layers: Sequence[EncoderWeights], end: tuple[nn.LayerNorm, nn.Linear] | None) -> None:
        """end: a norm and a linear map behind the layers.

        Scale and offset of each norm go into the linear map behind it, and the norm has none from now on: what the
        layers compute stays the same."""
        self._layers = [
            _Layer(
                _folded(one.norm, *one.qkv),
                one.out.weight,
                _float(one.out.bias),
                _folded(one.mlp_norm, one.fc1.weight, one.fc1.bias),
                one.fc2.weight,
                _float(one.fc2.bias),
            )
            for one in layers
        ]
        self._end = None if end is None else _folded(end[0], end[1].weight, end[1].bias)

    @classmethod
    def of(cls, layers: Sequence[EncoderWeights], end: tuple[nn.LayerNorm, nn.Linear] | None = None) -> Self | None:
        """None where the launches don't run, and for maps without biases, or whose weights aren't bfloat16 or have
        widths that no tile divides."""
        first = layers[0]
        linears = [first.out, first.fc1, first.fc2, *([] if end is None else [end[1]])]
        maps = [first.qkv, *((part.weight, part.bias) for part in linears)]
        taken = is_present(first.out.weight.device) and all(_is_taken(*one) for one in maps)
        return cls(layers, end) if taken else None

    def __call__(self, x: Tensor, attend: Callable[[int, Projection], Tensor], sums: Tensor | None = None) -> Tensor:
        """x `[R, W]` -> `[R, W]`, or what the end makes of it. attend: layer and its projection -> heads `[R, H, D]`;
        sums: `row_sums` of x, if they are known."""
        sums = row_sums(x) if sums is None else sums
        for index, layer in enumerate(self._layers):
            heads = attend(index, Projection(x, sums, layer.qkv)).flatten(1)
            x, sums = added(heads, layer.out, layer.out_bias, x, _cut(x, layer.out))
            fc1 = layer.fc1
            y = mapped(x, fc1.weight, fc1.bias, fc1.norm(sums), _cut(x, fc1.weight), gelu=True)
            x, sums = added(y, layer.fc2, layer.fc2_bias, x, _cut(x, layer.fc2))
        return x if self._end is None else Projection(x, sums, self._end).rows()


def fits(x: Tensor) -> bool:
    """True if the launches take these rows."""
    return len(x) <= MOST_ROWS and x.is_contiguous() and not torch.is_grad_enabled()


def _is_taken(weight: Tensor, bias: Tensor | None) -> bool:
    return bias is not None and weight.dtype == torch.bfloat16 and choose(1, *weight.shape) is not None


def _folded(norm: nn.LayerNorm, weight: Tensor, bias: Tensor | None) -> _Normed:
    with torch.inference_mode():
        exact = weight.float() @ norm.bias.float() + _float(bias)
        weight.copy_(weight.float() * norm.weight.float())
        _given(bias).copy_(exact)
        norm.weight.fill_(1)
        norm.bias.zero_()
        return _Normed(weight, exact, weight.float().sum(1), norm.eps)


def _float(bias: Tensor | None) -> Tensor:
    return _given(bias).detach().float()


def _given(bias: Tensor | None) -> Tensor:
    if bias is None:
        raise ValueError("every map of these layers has a bias")
    return bias


def _cut(x: Tensor, weight: Tensor) -> Cut:
    if (cut := choose(len(x), *weight.shape)) is None:
        raise ValueError(f"a product of {tuple(weight.shape)} has no tiles")
    return cut
