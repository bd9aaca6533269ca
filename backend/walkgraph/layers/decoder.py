"""One decoder layer for every family: pre-norm attention and SwiGLU, with one or two sets of weights.

With two sets ("experts"), the caller orders a batch's rows so that `rows[:split]` use the first and `rows[split:]` the
second: plain slices, no gathers, no router. All rows meet in one attention. A set's parameters are named with its
suffix, which the network chooses.

Shape letters: R rows, W model width, H query heads, G key/value heads, D head dim.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from walkgraph.layers.attention import Attend
from walkgraph.layers.mlp import SwiGLU
from walkgraph.layers.norm import RMSNorm
from walkgraph.layers.rope import Rotation, rotate


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    """Width between the two matrices of the MLP."""
    norm_eps: float
    qkv_bias: bool
    qk_norm: bool
    """RMS norm of every query and key head, before the rotation."""


class DecoderAttention(nn.Module):
    def __init__(self, shape: DecoderShape, suffixes: tuple[str, ...]) -> None:
        super().__init__()
        self.shape, self.suffixes = shape, suffixes
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
        q = self._part("q_proj", suffix)(x).view(shape)
        k = self._part("k_proj", suffix)(x).view(shape)
        v = self._part("v_proj", suffix)(x).view(shape)
        if self.shape.qk_norm:
            q, k = self._part("q_norm", suffix)(q), self._part("k_norm", suffix)(k)
        return q, k, v

    def out(self, heads: Tensor, suffix: str) -> Tensor:
        """`[R, H, D]` -> `[R, W]`."""
        return self._part("o_proj", suffix)(heads.flatten(1))

    def _part(self, name: str, suffix: str) -> nn.Module:
        return cast(nn.Module, self._modules[name + suffix])


class DecoderLayer(nn.Module):
    def __init__(self, shape: DecoderShape, suffixes: tuple[str, ...] = ("",)) -> None:
        super().__init__()
        self.suffixes = suffixes
        self.self_attn = DecoderAttention(shape, suffixes)
        for suffix in suffixes:
            self.add_module(f"mlp{suffix}", SwiGLU(shape.width, shape.hidden))
            self.add_module(f"input_layernorm{suffix}", RMSNorm(shape.width, shape.norm_eps))
            self.add_module(f"post_attention_layernorm{suffix}", RMSNorm(shape.width, shape.norm_eps))

    def forward(self, layer: int, parts: dict[str, Tensor], rotation: Rotation, attend: Attend) -> dict[str, Tensor]:
        """`parts`: suffix -> its rows `[R_s, W]`, in the order of all rows; the same keys come back.

        `layer` is the index that `attend` files keys and values under.
        """
        projected = [self.self_attn.qkv(self._part("input_layernorm", s)(x), s) for s, x in parts.items()]
        q, k, v = projected[0] if len(projected) == 1 else (torch.cat(same) for same in zip(*projected, strict=True))
        heads = attend(layer, rotate(q, rotation), rotate(k, rotation), v)
        slices = heads.split([x.shape[0] for x in parts.values()]) if len(parts) > 1 else (heads,)
        out: dict[str, Tensor] = {}
        for (suffix, x), attended in zip(parts.items(), slices, strict=True):
            x = x + self.self_attn.out(attended, suffix)
            out[suffix] = x + self._part("mlp", suffix)(self._part("post_attention_layernorm", suffix)(x))
        return out

    def _part(self, name: str, suffix: str) -> nn.Module:
        return cast(nn.Module, self._modules[name + suffix])
