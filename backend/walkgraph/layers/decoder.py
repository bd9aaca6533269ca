"""One decoder layer for every family: pre-norm attention and an MLP that the caller chooses, with one or two sets of
weights.

A layer has a `forward` over any rows, and a `step` of one new token per row, which reads nothing on the host.

With two sets ("experts"), the caller orders a batch's rows so that `rows[:split]` use the first and `rows[split:]` the
second: plain slices, no gathers, no router. All rows meet in one attention. A set's parameters are named with its
suffix, which the network chooses.

On a shard of a tensor-parallel group, the shape's heads and hidden width are the shard's, and the outputs of `o_proj`
and `down_proj` are summed over the group.

Shape letters: R rows, B rows of a step, W model width, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.attention.paged_rows import StepRows
from walkgraph.layers.attention.step_attention import step_attention
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.linear.packed import UNPACKED, Packable, Packed
from walkgraph.layers.linear.sharded import added
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import Rotation, rotate


class DecoderMLP(Protocol):
    """The MLP of a decoder layer, a module: `SwiGLU` or another."""

    def __call__(self, x: Tensor) -> Tensor:
        """Many rows x `[R, W]`, normed -> `[R, W]`."""
        ...

    def step(self, x: Tensor, norm: RMSNorm, residual: Tensor | None) -> Tensor:
        """Few rows x `[B, W]`, not yet normed -> `[B, W]`, with the residual added if given. Needs `pack`."""
        ...

    def pack(self) -> None:
        """Lay weights that read one input side by side. State names stay; parameters become frozen views."""
        ...


def swiglu(shape: DecoderShape) -> nn.Module:
    return SwiGLU(shape.width, shape.hidden)


class StepSlot(Protocol):
    """The caches of a step's rows: `PagedSlot` of the engine."""

    @property
    def k(self) -> Sequence[Tensor]:
        """Per layer `[S, G, D]`."""
        ...

    @property
    def v(self) -> Sequence[Tensor]: ...

    @property
    def rows(self) -> StepRows: ...


class DecoderAttention(Packable):
    def __init__(self, shape: DecoderShape, suffixes: tuple[str, ...]) -> None:
        super().__init__()
        self.shape, self.suffixes = shape, suffixes
        self.packed: dict[str, Packed] = {}
        q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        for suffix in suffixes:
            self.add_module(f"q_proj{suffix}", nn.Linear(shape.width, q_width, bias=shape.qkv_bias))
            self.add_module(f"k_proj{suffix}", nn.Linear(shape.width, kv_width, bias=shape.qkv_bias))
            self.add_module(f"v_proj{suffix}", nn.Linear(shape.width, kv_width, bias=shape.qkv_bias))
            self.add_module(f"o_proj{suffix}", nn.Linear(q_width, shape.width, bias=False))
            if shape.qk_norm:
                self.add_module(f"q_norm{suffix}", RMSNorm(shape.head_dim, shape.norm_eps))
                self.add_module(f"k_norm{suffix}", RMSNorm(shape.head_dim, shape.norm_eps))

    def qkv(self, x: Tensor, suffix: str) -> tuple[Tensor, Tensor, Tensor]:
        """x `[R, W]` -> q `[R, H, D]`, k and v `[R, G, D]`, before the rotation."""
        shape = (x.shape[0], -1, self.shape.head_dim)
        if suffix in self.packed:
            parts = F.linear(x, *self.packed[suffix]).view(shape)
            q, k, v = parts.split([self.shape.heads, self.shape.kv_heads, self.shape.kv_heads], 1)
        else:
            q, k, v = (self.part(f"{name}_proj", suffix)(x).view(shape) for name in "qkv")
        if self.shape.qk_norm:
            q, k = self._part("q_norm", suffix)(q), self._part("k_norm", suffix)(k)
        return q, k, v

    def out(self, heads: Tensor, suffix: str) -> Tensor:
        """`[R, H, D]` -> `[R, W]`."""
        return self._part("o_proj", suffix)(heads.flatten(1))

    def step(self, layer: int, x: Tensor, slot: StepSlot, frequencies: Tensor, norm: RMSNorm, suffix: str) -> Tensor:
        """x `[B, W]`, not yet normed -> attended heads `[B, H * D]`."""
        shape, qkv = self.shape, self.few_qkv(x, norm, suffix)
        q_norm, k_norm = (self._weight(name, suffix) if shape.qk_norm else None for name in ("q_norm", "k_norm"))
        caches, eps = (slot.k[layer], slot.v[layer]), shape.norm_eps
        return step_attention(qkv, *caches, slot.rows, frequencies, shape.heads, q_norm=q_norm, k_norm=k_norm, eps=eps)

    def few_qkv(self, x: Tensor, norm: RMSNorm, suffix: str, *, queries: bool = True) -> Tensor:
        """Few rows, x `[B, W]`, not yet normed -> `[B, (H + 2G) * D]`; without `queries` `[B, 2G * D]`."""
        if suffix not in self.packed:
            raise RuntimeError(UNPACKED)
        weight, bias = self.packed[suffix]
        if not queries:
            skipped = self.shape.heads * self.shape.head_dim
            weight, bias = weight[skipped:], None if bias is None else bias[skipped:]
        return linear(x, weight, bias=bias, norm=norm.weight, eps=norm.eps)

    def pack(self) -> None:
        """Lay q, k and v side by side, so that one product reads them; this freezes them."""
        for s in self.suffixes:
            self.packed[s] = Packed.of(*(self.part(f"{name}_proj", s) for name in "qkv"))

    @property
    def is_packed(self) -> bool:
        return bool(self.packed)

    def part(self, name: str, suffix: str) -> nn.Linear:
        """One of the four maps: `q_proj`, `k_proj`, `v_proj`, `o_proj`."""
        return cast(nn.Linear, self._modules[name + suffix])

    def _weight(self, name: str, suffix: str) -> Tensor:
        return cast(RMSNorm, self._part(name, suffix)).weight

    def _part(self, name: str, suffix: str) -> nn.Module:
        return cast(nn.Module, self._modules[name + suffix])


class DecoderLayer(nn.Module):
    def __init__(
        self,
        shape: DecoderShape,
        suffixes: tuple[str, ...] = ("",),
        mlp: Callable[[DecoderShape], nn.Module] = swiglu,
        shard: Shard = WHOLE,
    ) -> None:
        """`mlp` makes the `DecoderMLP` of each set of weights; its parameters are named `mlp<suffix>.*`."""
        super().__init__()
        self.suffixes, self.shard = suffixes, shard
        self.self_attn = DecoderAttention(shape, suffixes)
        for suffix in suffixes:
            self.add_module(f"mlp{suffix}", mlp(shape))
            self.add_module(f"input_layernorm{suffix}", RMSNorm(shape.width, shape.norm_eps))
            self.add_module(f"post_attention_layernorm{suffix}", RMSNorm(shape.width, shape.norm_eps))

    def forward(self, layer: int, parts: dict[str, Tensor], rotation: Rotation, attend: Attend) -> dict[str, Tensor]:
        """`parts`: suffix -> its rows `[R_s, W]`, in the order of all rows; returns the same keys.

        `layer` is the index that `attend` files keys and values under.
        """
        projected = [self.self_attn.qkv(self._part("input_layernorm", s)(x), s) for s, x in parts.items()]
        q, k, v = projected[0] if len(projected) == 1 else (torch.cat(same) for same in zip(*projected, strict=True))
        heads = attend(layer, rotate(q, rotation), rotate(k, rotation), v)
        slices = heads.split([x.shape[0] for x in parts.values()]) if len(parts) > 1 else (heads,)
        out: dict[str, Tensor] = {}
        for (suffix, x), attended in zip(parts.items(), slices, strict=True):
            x = x + self.shard.sum(self.self_attn.out(attended, suffix))
            mlp, norm = self._part("mlp", suffix), self._part("post_attention_layernorm", suffix)
            out[suffix] = x + self.shard.sum(mlp(norm(x)))
        return out

    def step(self, layer: int, x: Tensor, slot: StepSlot, frequencies: Tensor, suffix: str = "") -> Tensor:
        """One new token of every row: x `[B, W]` -> `[B, W]`; its keys and values are appended to the slot's caches.

        `frequencies`: float32 `[D/2]`, of the rotary positions. Needs `pack`.
        """
        norm = cast(RMSNorm, self._part("input_layernorm", suffix))
        return self.attended(self.self_attn.step(layer, x, slot, frequencies, norm, suffix), x, suffix)

    def attended(self, heads: Tensor, x: Tensor, suffix: str = "") -> Tensor:
        """The part of the layer after attention, for few rows: heads `[B, H * D]`, x `[B, W]` -> `[B, W]`. Needs
        `pack`."""
        norm, out = cast(RMSNorm, self._part("post_attention_layernorm", suffix)), self.self_attn.part("o_proj", suffix)
        x = added(x, self.shard, lambda residual: linear(heads, out.weight, residual=residual))
        return added(x, self.shard, lambda residual: self._mlp(suffix).step(x, norm, residual))

    def pack(self) -> None:
        """Lay weights that read one input side by side. State names stay; parameters become frozen views."""
        self.self_attn.pack()
        for suffix in self.suffixes:
            self._mlp(suffix).pack()

    def _mlp(self, suffix: str) -> DecoderMLP:
        return cast(DecoderMLP, self._part("mlp", suffix))

    def _part(self, name: str, suffix: str) -> nn.Module:
        return cast(nn.Module, self._modules[name + suffix])
