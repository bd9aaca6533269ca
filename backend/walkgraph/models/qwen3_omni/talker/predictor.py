"""The code predictor: from the talker's row of a frame and its first code to all codes of the frame, in one step.

Each code follows from those before it, so its layers run once for every further code. Their keys and values belong to
one frame, of as many positions as it has codes: they are in tensors of the step, not in pages of the engine.

Parameter names are the public checkpoint's, less `talker.code_predictor.`

Shape letters: B frames, C codes of a frame, V codes of a codebook, W width, H query heads, G key/value heads, D head
dim.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.language.model import decoder_layer
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.layers.attention.step_attention import step_attention
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.decoder_stack import MOST_ROWS, DecoderStack, StackSizes, stack_of
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope
from walkgraph.layers.sound.speech import Frames, whole_frames

_FRAMES = 512
"""Frames that constants are made for ahead."""
Choose = Callable[[int, Tensor], Tensor]
"""(index of a further code, its logits `[B, V]`) -> the codes, int64 `[B]`; below 0 where nothing can be chosen, which
counts as code 0."""


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
        self._constants: _Constants | None = None
        self._stack: DecoderStack | None = None

    def pack(self) -> Self:
        """Lay out the loaded weights for `frames`; this freezes them."""
        for layer in self.model.layers:
            cast(DecoderLayer, layer).pack()
        self._constants = _Constants.of(_FRAMES, self.config.vocab, self._tables())
        config, model = self.config, self.model
        sizes = StackSizes(
            width=config.width,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            hidden=config.hidden,
            vocab=config.vocab,
            layers=config.layers,
            eps=config.norm_eps,
        )
        layers, norm = [cast(DecoderLayer, layer) for layer in model.layers], model.norm.weight
        self._stack = stack_of(sizes, self.groups, layers, norm, model.rope.frequencies(norm.device))
        return self

    def frames(self, hidden: Tensor, first: Tensor, code: Tensor, choose: Choose) -> Frames:
        """hidden `[B, W]`: the talker's rows after its final norm; first `[B, W]`: the embeddings of the first codes;
        code int64 `[B]`: these codes -> all codes. Needs `pack`."""
        constants = self._constants
        if constants is None:
            raise RuntimeError(UNPACKED)
        passes, chosen = self._passes(hidden), [code]
        for index in range(self.groups - 1):
            logits = passes.next(index, chosen[-1]) if index else passes.first(hidden, first)
            chosen.append(choose(index, logits))
        return whole_frames(torch.stack(chosen, 1), first.to(hidden.dtype), constants.table)

    def _passes(self, like: Tensor) -> "_Passes":
        """Begins the passes of a batch of frames, one for each row of `like`."""
        frames, stack = len(like), self._stack
        shape = (self.config.layers, frames * self.groups, self.config.kv_heads, self.config.head_dim)
        k, v = (torch.empty(shape, dtype=like.dtype, device=like.device) for _ in range(2))
        if stack is not None and frames <= MOST_ROWS and not is_batch_invariant():
            return _Launches(self, stack, k, v)
        return _Layers(self, self._caches(frames, k, v))

    def _tables(self) -> Tensor:
        """All embeddings of further codes, one table under the other; they become frozen views of it."""
        tables = [cast(nn.Embedding, one) for one in self.model.codec_embedding]
        with torch.no_grad():
            together = torch.cat([one.weight.data for one in tables])
        for one, rows in zip(tables, together.chunk(len(tables)), strict=True):
            one.weight = nn.Parameter(rows, requires_grad=False)
        return together

    def layered(self, x: Tensor, index: int, caches: "_Caches") -> Tensor:
        """x `[B, W]`, or for the first code the two rows of each frame `[2B, W]`, first rows first -> logits
        `[B, V]`."""
        batch = len(caches.at[0].rows)
        at = caches.at[:2] if index == 0 else caches.at[index + 1 : index + 2]
        for number, layer in enumerate(self.model.layers):
            x = self._layer(cast(DecoderLayer, layer), number, x, at, caches)
        norm = self.model.norm
        return linear(x[-batch:], self.head(index), norm=norm.weight, eps=norm.eps)

    def head(self, index: int) -> Tensor:
        """`[V, W]`"""
        return cast(nn.Linear, self.lm_head[index]).weight

    def embeddings(self, index: int) -> Tensor:
        """`[V, W]`"""
        return cast(nn.Embedding, self.model.codec_embedding[index]).weight

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

    def _caches(self, frames: int, k: Tensor, v: Tensor) -> "_Caches":
        constants, device = self._constants, k.device
        if constants is None:
            raise RuntimeError(UNPACKED)
        places = constants.places
        if frames > len(places.frames):
            places = _Places.of(frames, self.groups, device)
        return _Caches(k.unbind(), v.unbind(), places.rows(frames), self.model.rope.frequencies(device))


class _Passes(Protocol):
    """Gives the logits `[B, V]` of a batch's further codes, one after the other."""

    def first(self, hidden: Tensor, first: Tensor) -> Tensor:
        """The arguments are those of `CodePredictor.frames`."""
        ...

    def next(self, index: int, code: Tensor) -> Tensor:
        """code int64 `[B]`: the code before the one of `index`."""
        ...


class _Layers:
    """Layer after layer."""

    def __init__(self, network: CodePredictor, caches: "_Caches") -> None:
        self._network, self._caches = network, caches

    def first(self, hidden: Tensor, first: Tensor) -> Tensor:
        return self._network.layered(torch.cat([hidden, first]), 0, self._caches)

    def next(self, index: int, code: Tensor) -> Tensor:
        x = F.embedding(code.clamp(min=0), self._network.embeddings(index - 1))
        return self._network.layered(x, index, self._caches)


class _Launches:
    """One launch for all layers."""

    def __init__(self, network: CodePredictor, stack: DecoderStack, k: Tensor, v: Tensor) -> None:
        self._network, self._stack, self._k, self._v = network, stack, k, v

    def first(self, hidden: Tensor, first: Tensor) -> Tensor:
        head = self._network.head(0)
        if 2 * len(hidden) <= MOST_ROWS:
            return self._stack(torch.cat([hidden, first]), self._k, self._v, head, first=0, passes=2)
        self._stack(hidden.contiguous(), self._k, self._v, None, first=0)
        return self._stack(first.contiguous(), self._k, self._v, head, first=1)

    def next(self, index: int, code: Tensor) -> Tensor:
        table, head = self._network.embeddings(index - 1), self._network.head(index)
        return self._stack(table, self._k, self._v, head, first=index + 1, codes=code)


class _Places(NamedTuple):
    """Places of a batch's rows."""

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


class _Constants(NamedTuple):
    """Tensors that every frame reads and none changes."""

    table: Tensor
    """`[(C - 1) * V, W]`: the embeddings of all further codes."""
    places: _Places

    @classmethod
    def of(cls, batch: int, vocab: int, table: Tensor) -> Self:
        return cls(table, _Places.of(batch, len(table) // vocab + 1, table.device))


class _Caches(NamedTuple):
    """The keys and values of a batch of frames."""

    k: Sequence[Tensor]
    """Per layer `[B * C, G, D]`; `v` likewise."""
    v: Sequence[Tensor]
    at: Sequence[_Rows]
    """Rows by the number of positions that are filled."""
    frequencies: Tensor
