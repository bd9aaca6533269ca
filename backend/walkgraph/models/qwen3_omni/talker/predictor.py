"""The code predictor: from the talker's row of a frame and its first code to all codes of the frame, in one step.

Each code follows from those before it, so its layers run once for every further code. Their keys and values belong to
one frame, of as many positions as it has codes: they are in tensors of the step, not in pages of the engine.

Parameter names are the public checkpoint's, less `talker.code_predictor.`

Shape letters: B frames, C codes of a frame, V codes of a codebook, W width, H query heads, G key/value heads, D head
dim.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from walkgraph.architectures.language.model import decoder_layer
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.layers.attention.step_attention import step_attention
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope

_FRAMES = 512
"""Frames that constants are made for ahead."""
Choose = Callable[[int, Tensor], Tensor]
"""(index of a further code, its logits `[B, V]`) -> the codes, int64 `[B]`."""


class Frames(NamedTuple):
    """The codes of a batch of frames."""

    codes: Tensor
    """int64 `[B, C]`"""
    embedding: Tensor
    """`[B, W]`: the sum of the codes' embeddings."""


class _Rows(NamedTuple):
    """`StepRows` of frames that all have equally many positions: each frame is a page of its own."""

    rows: Tensor
    pages: Tensor
    lengths: Tensor
    positions: Tensor


class PredictorStack(nn.Module):
    def __init__(self, config: LanguageConfig, groups: int) -> None:
        super().__init__()
        self.codec_embedding = nn.ModuleList(nn.Embedding(config.vocab, config.width) for _ in range(groups - 1))
        self.layers = nn.ModuleList(decoder_layer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rope = NeoxRope(config.head_dim, config.rope_theta)


class CodePredictor(nn.Module):
    """Keeps nothing between frames."""

    def __init__(self, config: LanguageConfig, groups: int) -> None:
        super().__init__()
        self.config, self.groups = config, groups
        self.model = PredictorStack(config, groups)
        self.lm_head = nn.ModuleList(nn.Linear(config.width, config.vocab, bias=False) for _ in range(groups - 1))
        self._places: _Places | None = None

    def pack(self) -> Self:
        """Lay out the loaded weights for `frames`; this freezes them."""
        for layer in self.model.layers:
            cast(DecoderLayer, layer).pack()
        self._places = _Places.of(_FRAMES, self.groups, self.model.norm.weight.device)
        return self

    def frames(self, hidden: Tensor, first: Tensor, code: Tensor, choose: Choose) -> Frames:
        """hidden `[B, W]`: the talker's rows after its final norm; first `[B, W]`: the embeddings of the first codes;
        code int64 `[B]`: these codes -> all codes. Needs `pack`."""
        caches = self._caches(hidden)
        x, rows, codes = torch.cat([hidden, first]), [first], [code]
        for index, head in enumerate(self.lm_head):
            logits = self._pass(x, index, cast(nn.Linear, head), caches)
            codes.append(choose(index, logits))
            x = cast(nn.Embedding, self.model.codec_embedding[index])(codes[-1])
            rows.append(x)
        total = torch.stack(rows).sum(0, dtype=torch.float32)
        return Frames(torch.stack(codes, 1), total.to(hidden.dtype))

    def _pass(self, x: Tensor, index: int, head: nn.Linear, caches: "_Caches") -> Tensor:
        """x `[B, W]`, or for the first code the two rows of each frame `[2B, W]`, first rows first -> logits
        `[B, V]`."""
        batch = len(caches.at[0].rows)
        at = caches.at[:2] if index == 0 else caches.at[index + 1 : index + 2]
        for number, layer in enumerate(self.model.layers):
            x = self._layer(cast(DecoderLayer, layer), number, x, at, caches)
        norm = self.model.norm
        return linear(x[-batch:], head.weight, norm=norm.weight, eps=norm.eps)

    def _layer(self, layer: DecoderLayer, number: int, x: Tensor, at: Sequence[_Rows], caches: "_Caches") -> Tensor:
        """Like `DecoderLayer.step`, but the two rows of a frame share the reads of all weights."""
        attention, shape = layer.self_attn, layer.self_attn.shape
        qkv = attention.few_qkv(x, cast(RMSNorm, layer.get_submodule("input_layernorm")), "")
        q_norm, k_norm = (cast(RMSNorm, attention.get_submodule(f"{name}_norm")).weight for name in "qk")

        def attended(part: Tensor, rows: _Rows) -> Tensor:
            return step_attention(
                part,
                caches.k[number],
                caches.v[number],
                rows,
                caches.frequencies,
                shape.heads,
                q_norm=q_norm,
                k_norm=k_norm,
                eps=shape.norm_eps,
                page=self.groups,
            )

        if len(at) == 1:
            return layer.attended(attended(qkv, at[0]), x)
        heads = x.new_empty(len(x), shape.heads * shape.head_dim)
        for part, out, rows in zip(qkv.chunk(len(at)), heads.chunk(len(at)), at, strict=True):
            # The copy also keeps two launches over one cache from overlapping, as `step_attention` demands.
            out.copy_(attended(part, rows))
        return layer.attended(heads, x)

    def _caches(self, like: Tensor) -> "_Caches":
        batch, device, config, places = len(like), like.device, self.config, self._places
        if places is None:
            raise RuntimeError(UNPACKED)
        if batch > len(places.frames):
            places = _Places.of(batch, self.groups, device)
        shape = (config.layers, batch * self.groups, config.kv_heads, config.head_dim)
        k, v = (torch.empty(shape, dtype=like.dtype, device=device) for _ in range(2))
        return _Caches(k.unbind(), v.unbind(), places.rows(batch), self.model.rope.frequencies(device))


class _Places(NamedTuple):
    """Constants that are made once, as every frame reads them."""

    frames: Tensor
    """int32 `[B]`: 0, 1, 2, ..."""
    filled: Tensor
    """int32 `[C, B]`: the positions that are filled, equal in a row."""

    @classmethod
    def of(cls, batch: int, groups: int, device: torch.device) -> Self:
        frames, filled = (torch.arange(n, dtype=torch.int32, device=device) for n in (batch, groups))
        return cls(frames, filled[:, None].expand(-1, batch).contiguous())

    def rows(self, batch: int) -> list[_Rows]:
        frames = self.frames[:batch]
        return [_Rows(frames, frames[:, None], mine, mine) for mine in self.filled[:, :batch]]


class _Caches(NamedTuple):
    """The keys and values of a batch of frames."""

    k: Sequence[Tensor]
    """Per layer `[B * C, G, D]`; `v` likewise."""
    v: Sequence[Tensor]
    at: Sequence[_Rows]
    """Rows by the number of positions that are filled."""
    frequencies: Tensor
