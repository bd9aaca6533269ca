"""Gemma's layers in pi0.5's two variants: with plain norms for the prefix, with modulated norms for the actions.

Parameter names are the public checkpoint's.

Shape letters: B rows of a batch, L tokens of a row, S tokens that are seen, W width, H query heads, G key/value heads,
D head dim, F hidden width.
"""

from typing import Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.layers.attention.dense_attention import KV, dense_attention
from walkgraph.layers.decoder import DecoderAttention
from walkgraph.layers.linear.mlp import GeGLU
from walkgraph.layers.linear.packed import Packable
from walkgraph.layers.rope import Rotation, rotate


class Modulation(NamedTuple):
    """A flow time's effect on a norm and on what follows it: float32, broadcastable to `[B, L, W]`."""

    scale: Tensor
    shift: Tensor
    gate: Tensor

    @classmethod
    def of(cls, numbers: Tensor) -> Self:
        """`[B, 3, W]` -> the modulation of each row's tokens."""
        return cls(*numbers[:, :, None].unbind(1))


class GemmaNorm(Packable):
    """Root-mean-square norm that multiplies by 1 + weight; computed in float32, rounded once."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps
        self.scale: Tensor | None = None
        """float32 `[W]`: 1 + weight, once packed."""

    def forward(self, x: Tensor) -> Tensor:
        """x `[..., W]` -> like it."""
        return F.rms_norm(x.float(), self.weight.shape, 1 + self.weight.float(), self.eps).to(x.dtype)

    def pack(self) -> None:
        self.scale = 1 + self.weight.detach().float()

    @property
    def is_packed(self) -> bool:
        return self.scale is not None


class AdaNorm(nn.Module):
    """Root-mean-square norm without a weight; scale, shift and gate come from a condition."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 3 * width)
        self.width, self.eps = width, eps
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)
        # Gates of 1: a model for training starts like one with plain norms.
        nn.init.ones_(self.dense.bias[2 * width :])

    def numbers(self, condition: Tensor) -> Tensor:
        """`[n, W]` -> float32 `[n, 3, W]`: scale, shift, gate."""
        return self.dense(condition.to(self.dense.weight.dtype)).float().unflatten(-1, (3, self.width))

    def forward(self, x: Tensor, by: Modulation) -> Tensor:
        """x `[B, L, W]` -> like it; the caller applies the gate."""
        normed = F.rms_norm(x.float(), (self.width,), None, self.eps)
        return (normed * (1 + by.scale) + by.shift).to(x.dtype)


def heads(attention: DecoderAttention, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
    """x `[B, L, W]`, normed -> q `[B, L, H, D]`, k and v `[B, L, G, D]`, turned."""
    q, k, v = attention.qkv(x.flatten(0, 1), "")
    q, k, v = (part.unflatten(0, x.shape[:2]) for part in (rotate(q, rotation), rotate(k, rotation), v))
    return q, k, v


def attended(attention: DecoderAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """q `[B, L, H, D]`, k and v `[B, S, G, D]`, mask bool `[B, 1, L or 1, S]` -> `[B, L, W]`."""
    return attention.out(dense_attention(q, k, v, mask).flatten(0, 1), "").unflatten(0, q.shape[:2])


N = TypeVar("N", GemmaNorm, AdaNorm)


class GemmaLayer(nn.Module, Generic[N]):
    def __init__(self, shape: DecoderShape, norm: type[N]) -> None:
        super().__init__()
        self.self_attn = DecoderAttention(shape, ("",))
        self.mlp = GeGLU(shape.width, shape.hidden)
        self.input_layernorm = norm(shape.width, shape.norm_eps)
        self.post_attention_layernorm = norm(shape.width, shape.norm_eps)


class PrefixLayer(GemmaLayer[GemmaNorm]):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape, GemmaNorm)

    def forward(self, x: Tensor, rotation: Rotation, mask: Tensor | None) -> tuple[Tensor, KV]:
        """x `[B, L, W]`, attending each other within `mask` -> `[B, L, W]`, and keys and values `[B, L, G, D]`."""
        q, k, v = heads(self.self_attn, self.input_layernorm(x), rotation)
        x = x + attended(self.self_attn, q, k, v, mask)
        return x + self.mlp(self.post_attention_layernorm(x)), (k, v)

    def keys(self, x: Tensor, rotation: Rotation) -> KV:
        """The keys and values of `forward` alone, for the last layer, whose output nothing reads."""
        normed = self.input_layernorm(x).flatten(0, 1)
        k, v = (self.self_attn.part(f"{name}_proj", "")(normed) for name in "kv")
        k, v = (part.unflatten(1, (-1, self.self_attn.shape.head_dim)) for part in (k, v))
        return rotate(k, rotation).unflatten(0, x.shape[:2]), v.unflatten(0, x.shape[:2])

    def pack(self) -> None:
        """Lay weights that read one input side by side. State names stay; parameters become frozen views."""
        self.self_attn.pack()
        for part in (self.mlp, self.input_layernorm, self.post_attention_layernorm):
            part.pack()


class ExpertLayer(GemmaLayer[AdaNorm]):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape, AdaNorm)

    def forward(
        self, x: Tensor, rotation: Rotation, by: tuple[Modulation, Modulation], seen: KV, mask: Tensor | None
    ) -> Tensor:
        """x `[B, L, W]`, attending each other and `seen`, `[B, S, G, D]` -> `[B, L, W]`."""
        q, k, v = heads(self.self_attn, self.input_layernorm(x, by[0]), rotation)
        k, v = torch.cat([seen[0].to(k.dtype), k], 1), torch.cat([seen[1].to(v.dtype), v], 1)
        x = _gated(x, attended(self.self_attn, q, k, v, mask), by[0])
        return _gated(x, self.mlp(self.post_attention_layernorm(x, by[1])), by[1])

    def pack(self) -> None:
        """Like `PrefixLayer.pack`."""
        self.self_attn.pack()
        self.mlp.pack()


def _gated(x: Tensor, more: Tensor, by: Modulation) -> Tensor:
    return (x.float() + more.float() * by.gate).to(x.dtype)
