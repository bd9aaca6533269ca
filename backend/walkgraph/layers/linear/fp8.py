"""Linears of thousands of rows in eight-bit floats (e4m3): twice the products of bfloat16 in the same time, with errors
of a few percent of a product's size.

A weight has a scale per output, and each row its own: `(rows @ weight.T) * row scale * weight scale`. Rows are scaled
by the kernels that produce them, so they are written once. CPUs compute with the same rounded numbers in float32.

Shape letters: M rows, N outputs, K inputs, W model width, H query heads, G key/value heads, D head dim, F hidden width.
"""

from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import MLP_ROWS, FlowLinears, PlainFlowLinears
from walkgraph.layers.linear.fp8_format import FP8, LARGEST, LEAST
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.norm.rms_norm import RMSNorm

_MULTIPLE = 16
"""Inputs and outputs must be multiples of this for a GPU's products."""


class Scaled(NamedTuple):
    """Numbers in eight bits with their scales: rows, or a weight."""

    numbers: Tensor
    """e4m3 `[M, K]`"""
    scale: Tensor
    """float32 `[M, 1]`: a row's values are its numbers times this."""

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """Quantize x `[M, K]`, row by row."""
        x = x.float()
        largest = x.abs().amax(1, keepdim=True).clamp(min=LEAST)
        return cls((x * (LARGEST / largest)).clamp(-LARGEST, LARGEST).to(FP8), largest / LARGEST)

    def plain(self) -> Tensor:
        """float32 `[M, K]`"""
        return self.numbers.float() * self.scale

    def rows(self, first: int, count: int) -> Self:
        return type(self)(self.numbers[first : first + count], self.scale[first : first + count])


def product(x: Scaled, weight: Scaled, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor:
    """x of `[M, K]`, weight of `[N, K]`, bias `[N]` of the result's type -> `[M, N]`."""
    if x.numbers.is_cuda:
        return torch._scaled_mm(
            x.numbers,
            weight.numbers.t(),
            scale_a=x.scale,
            scale_b=weight.scale.t(),
            bias=bias,
            out_dtype=dtype,
            use_fast_accum=True,
        )
    y = F.linear(x.numbers.float(), weight.numbers.float()) * x.scale * weight.scale.t()
    return (y if bias is None else y + bias.float()).to(dtype)


def scaled(x: Tensor) -> Scaled:
    """x `[B, N, K]`, contiguous rows, any block stride -> scaled `[B * N, K]`."""
    if x.is_cuda:
        from walkgraph.layers.kernels.fp8 import rows_fp8

        return Scaled(*rows_fp8(x))
    return Scaled.of(x.flatten(0, 1))


def scaled_norm(x: Tensor, norm: RMSNorm) -> Scaled:
    """x `[M, W]` contiguous -> its norm, scaled without rounding in between."""
    if x.is_cuda:
        from walkgraph.layers.kernels.fp8 import norm_fp8

        return Scaled(*norm_fp8(x, norm.weight, norm.eps))
    return Scaled.of(F.rms_norm(x.float(), norm.weight.shape, norm.weight.float(), norm.eps))


def scaled_gated(gate_up: Tensor) -> Scaled:
    """`[M, 2F]` contiguous, gate columns first -> silu(gate) * up, scaled `[M, F]`."""
    if gate_up.is_cuda:
        from walkgraph.layers.kernels.fp8 import gated_fp8

        return Scaled(*gated_fp8(gate_up))
    gate, up = gate_up.float().chunk(2, 1)
    return Scaled.of(F.silu(gate) * up)


class Fp8Linear(nn.Module):
    """Takes the place of an `nn.Linear`; its weight may be a part of a larger one."""

    def __init__(self, whole: Scaled, first: int, part: nn.Linear) -> None:
        super().__init__()
        self.whole, self.weight = whole, whole.rows(first, part.out_features)
        self.bias = part.bias

    def forward(self, x: Tensor) -> Tensor:
        """x `[M, K]` -> `[M, N]` of its type."""
        return product(scaled(x[None]), self.weight, x.dtype, self.bias)


def supported(device: torch.device, dtype: torch.dtype, *widths: int) -> bool:
    """True if products of these widths are possible: on tensor cores with e4m3 and row scales."""
    if device.type != "cuda":
        return True
    fits = dtype == torch.bfloat16 and not any(width % _MULTIPLE for width in widths)
    return fits and torch.cuda.get_device_capability(device) >= (9, 0)


def quantise(layer: DecoderLayer, suffix: str) -> None:
    """Keep one set of a packed layer's weights only in eight bits. Norms and biases stay."""
    attention, mlp = layer.self_attn, cast(SwiGLU, layer.get_submodule(f"mlp{suffix}"))
    packed, gate_up = attention.packed.pop(suffix), mlp.gate_up
    if gate_up is None:
        raise RuntimeError("a layer is packed before its weights are kept in eight bits")
    mlp.gate_up = None
    _replace(attention, [f"{name}_proj{suffix}" for name in "qkv"], packed.weight)
    _replace(attention, [f"o_proj{suffix}"], attention.part("o_proj", suffix).weight)
    _replace(mlp, ["gate_proj", "up_proj"], gate_up.weight)
    _replace(mlp, ["down_proj"], mlp.down_proj.weight)


def _replace(parent: nn.Module, names: list[str], weight: Tensor) -> None:
    whole, first = Scaled.of(weight), 0
    for name in names:
        part = cast(nn.Linear, parent.get_submodule(name))
        setattr(parent, name, Fp8Linear(whole, first, part))
        first += part.out_features


class Fp8FlowLinears:
    """`FlowLinears` of a layer with a set of weights that `quantise` has converted."""

    def __init__(self, layer: DecoderLayer, suffix: str) -> None:
        attention, mlp = layer.self_attn, layer.get_submodule(f"mlp{suffix}")
        self._q, self._o = (_part(attention, f"{name}_proj{suffix}") for name in "qo")
        self._gate, self._down = _part(mlp, "gate_proj"), _part(mlp, "down_proj")
        biases = [_part(attention, f"{name}_proj{suffix}").bias for name in "qkv"]
        self._bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        self._shard = layer.shard
        self._first = cast(RMSNorm, layer.get_submodule(f"input_layernorm{suffix}"))
        self._second = cast(RMSNorm, layer.get_submodule(f"post_attention_layernorm{suffix}"))

    def qkv(self, x: Tensor) -> Tensor:
        return product(scaled_norm(x, self._first), self._q.whole, x.dtype, self._bias)

    def o(self, heads: Tensor, x: Tensor) -> None:
        x.add_(self._shard.sum(product(scaled(heads), self._o.whole, x.dtype)))

    def mlp(self, x: Tensor) -> None:
        for rows in x.split(MLP_ROWS):
            gate_up = product(scaled_norm(rows, self._second), self._gate.whole, x.dtype)
            rows.add_(self._shard.sum(product(scaled_gated(gate_up), self._down.whole, x.dtype)))


def _part(parent: nn.Module, name: str) -> Fp8Linear:
    part = parent.get_submodule(name)
    if not isinstance(part, Fp8Linear):
        raise TypeError(f"`{name}` is not kept in eight bits")
    return part


def flow_linears(layer: DecoderLayer, suffix: str) -> FlowLinears:
    """The linears for the number format of the layer's set of weights."""
    kept = isinstance(layer.self_attn.get_submodule(f"o_proj{suffix}"), Fp8Linear)
    return Fp8FlowLinears(layer, suffix) if kept else PlainFlowLinears(layer, suffix)
