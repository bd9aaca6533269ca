"""Llama: a dense decoder with one set of weights, and Orpheus, a Llama whose vocabulary ends in audio codes.

Parameter names are the public checkpoint's.

Shape letters: R rows, B rows of a step, W width, D head dim, V vocabulary.
"""

from typing import Self, cast

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.decoding import step_logits
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.decoder import DecoderLayer, StepSlot
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope
from walkgraph.models.orpheus.config import LlamaConfig

_ONE = ""
"""Suffix of the only set of weights, which has plain names."""


class LlamaModel(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.width)
        self.layers = nn.ModuleList(DecoderLayer(config.shape) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rope = NeoxRope(config.head_dim, config.rope_theta, config.scaling)

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """ids and positions int64 `[R]` -> states before the final norm `[R, W]`."""
        parts, rotation = {_ONE: self.embed_tokens(ids)}, self.rope(positions)
        for index, layer in enumerate(self.layers):
            parts = cast(DecoderLayer, layer)(index, parts, rotation, attend)
        return parts[_ONE]


class Llama(nn.Module):
    """Rows in, logits out. Only `attend` and slots keep anything between calls."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        if not config.tied:
            self.lm_head = nn.Linear(config.width, config.vocab, bias=False)

    @property
    def head(self) -> Tensor:
        """`[V, W]`"""
        return self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend, asked: Tensor | None = None) -> Tensor:
        """ids and positions int64 `[R]` -> logits `[R, V]`, or of the `asked` rows int64 alone."""
        x = self.model(ids, positions, attend)
        return F.linear(self.model.norm(x if asked is None else x[asked]), self.head)

    def step(self, token: Tensor, slot: StepSlot) -> Tensor:
        """One token of every row, int64 `[B]` -> logits `[B, V]`. Needs `pack`."""
        return step_logits(self.model, self.head, token, slot)

    def pack(self) -> Self:
        """Lay out the loaded weights for `step`; this freezes them."""
        for layer in self.model.layers:
            cast(DecoderLayer, layer).pack()
        return self
