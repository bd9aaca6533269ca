"""A language model: a decoder with one set of weights, whose layers have a plain MLP or a mixture of experts. It is
Llama, Mistral and Qwen3, and Orpheus, a Llama whose vocabulary ends in audio codes.

Parameter names are the public checkpoint's.

On a shard of a tensor-parallel group the model is smaller: it has a part of the heads, of the MLPs and of the
vocabulary's rows, and of experts either a part of each or some as a whole. Every shard computes all rows and answers
with all logits.

Shape letters: R rows, B rows of a step, W width, D head dim, V vocabulary.
"""

from collections.abc import Mapping
from functools import partial
from typing import Self, cast

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.abi.states import Placed
from walkgraph.architectures.language.decoding import step_logits
from walkgraph.architectures.language.rows import AfterLayer, RowLayers
from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig
from walkgraph.checkpoints.sharding.experts import ExpertParallel, HeldExperts, Loads, held_experts
from walkgraph.checkpoints.sharding.language import shard_config
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.decoder import DecoderLayer, StepSlot, swiglu
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.linear.vocabulary import VocabularyEmbedding, vocabulary_head, whole_logits
from walkgraph.layers.moe.shared_expert import SharedExpertMLP
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope
from walkgraph.layers.tally import tally

_ONE = ""
"""Suffix of the only set of weights, which has plain names."""


class LanguageStack(nn.Module):
    def __init__(
        self, config: LanguageConfig, shard: Shard = WHOLE, held: Mapping[int, HeldExperts] | None = None
    ) -> None:
        """`config`: the shard's. `held`: layer -> its experts on a shard that holds whole ones."""
        super().__init__()
        held = held or {}
        self.embed_tokens = VocabularyEmbedding(config.vocab, config.width, shard)
        self.layers = nn.ModuleList(
            decoder_layer(config, index, shard, held.get(index)) for index in range(config.layers)
        )
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rope = NeoxRope(config.head_dim, config.rope_theta, config.scaling, config.sections)

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """ids and positions int64 `[R]` -> states before the final norm `[R, W]`."""
        parts, rotation = {_ONE: self.embed_tokens(ids)}, self.rope(positions)
        for index, layer in enumerate(self.layers):
            parts = cast(DecoderLayer, layer)(index, parts, rotation, attend)
        return parts[_ONE]


class LanguageModel(nn.Module):
    """Rows in, logits out. Only `attend`, `Placed` rows and slots keep anything between calls."""

    def __init__(
        self,
        config: LanguageConfig,
        shard: Shard = WHOLE,
        how: ExpertParallel | None = None,
        loads: Loads | None = None,
    ) -> None:
        """`config`: of the whole model. `how`: divides mixtures by whole experts, if given; `loads`: of experts. Raises
        ValueError for a model that can't be divided."""
        super().__init__()
        self.config, self.shard = shard_config(config, shard.count, how), shard
        held = held_experts(config, shard.index, shard.count, how, loads) if how else None
        self.model = LanguageStack(self.config, shard, held)
        if not config.tied:
            self.lm_head = vocabulary_head(config.width, config.vocab, shard)
        self._rows: RowLayers | None = None
        self.distinct_experts: Tensor | None = None
        """Tally of the experts that a layer reads in a step; None for a model without experts."""

    @property
    def head(self) -> Tensor:
        """`[V, W]`, or this shard's rows of it."""
        return self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend, asked: Tensor | None = None) -> Tensor:
        """ids and positions int64 `[R]` -> logits `[R, V]`, or of the `asked` rows int64 alone."""
        x = self.model(ids, positions, attend)
        return self._whole(F.linear(self.model.norm(x if asked is None else x[asked]), self.head))

    def read(self, ids: Tensor, positions: Tensor, asked: Tensor, to: Placed) -> Tensor:
        """Rows of any calls, ids and positions int64 `[R]`, asked int64 `[K]` -> logits of the asked rows `[K, V]`.
        Needs `pack`."""
        return self.read_rows(self.model.embed_tokens(ids), positions, asked, to)

    def read_rows(
        self, x: Tensor, positions: Tensor, asked: Tensor, to: Placed, after: AfterLayer | None = None
    ) -> Tensor:
        """`read` of rows x `[R, W]`, possibly changed in place, at positions `[R]`, or `[R, A]` on several axes."""
        if self._rows is None:
            raise RuntimeError(UNPACKED)
        x = self._rows.through(x, self._rows.turns(positions), to, after=after)
        return self._whole(linear(x[asked], self.head, norm=self.model.norm.weight, eps=self.model.norm.eps))

    def step(self, token: Tensor, slot: StepSlot) -> Tensor:
        """One token of every row, int64 `[B]` -> logits `[B, V]`. Needs `pack`."""
        return self._whole(step_logits(self.model, self.head, token, slot))

    def pack(self) -> Self:
        """Lay out the loaded weights for `read` and `step`; this freezes them."""
        for layer in self.model.layers:
            cast(DecoderLayer, layer).pack()
        self._rows = RowLayers(self.model.layers, _ONE, self.model.rope)
        mixtures = [part for part in self.modules() if isinstance(part, SparseMLP)]
        if mixtures:
            self.distinct_experts = tally(self.head.device)
        for mixture in mixtures:
            mixture.tally = self.distinct_experts
        return self

    def _whole(self, logits: Tensor) -> Tensor:
        """The logits of this shard's rows of the head -> `[..., V]`."""
        return whole_logits(logits, self.config.vocab, self.shard)


def decoder_layer(
    config: LanguageConfig, index: int, shard: Shard = WHOLE, held: HeldExperts | None = None
) -> DecoderLayer:
    """The layer of an index, with a plain MLP or a mixture of experts. `config`: the shard's; `held`: its experts, if
    it holds whole ones."""
    experts = config.experts_of(index)
    mlp = swiglu if experts is None else partial(_sparse, experts, held)
    return DecoderLayer(config.shape, mlp=mlp, shard=shard)


def _sparse(experts: ExpertSizes, held: HeldExperts | None, shape: DecoderShape) -> nn.Module:
    return (SharedExpertMLP if experts.shared else SparseMLP)(shape.width, experts, held)
