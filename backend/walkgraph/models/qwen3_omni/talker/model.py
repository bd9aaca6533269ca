"""The talker's network: layers over rows of text and speech, and the projections of the thinker's rows to its width.

Parameter names are the public checkpoint's, less `talker.`

Shape letters: R rows, B rows of a step, W width, D width of the thinker's rows, V vocabulary of first codes, N words
of the thinker's vocabulary.
"""

from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.abi.states import Placed
from walkgraph.architectures.language.model import decoder_layer
from walkgraph.architectures.language.rows import RowLayers
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.layers.decoder import DecoderLayer, StepSlot
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm
from walkgraph.layers.rope import NeoxRope
from walkgraph.models.qwen3_omni.talker.config import TalkerConfig

_CHUNK = 16384
"""Words that are projected at once."""


class Projection(nn.Module):
    """Projects rows of the thinker's width to the talker's."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(config.heard, config.inner)
        self.linear_fc2 = nn.Linear(config.inner, config.stack.width)

    def forward(self, x: Tensor) -> Tensor:
        """`[R, D]` -> `[R, W]`."""
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class TalkerStack(nn.Module):
    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.codec_embedding = nn.Embedding(config.vocab, config.width)
        self.layers = nn.ModuleList(decoder_layer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rope = NeoxRope(config.head_dim, config.rope_theta, config.scaling, config.sections)


class Talker(nn.Module):
    """Rows in, logits of the first code out. Only `Placed` rows and slots keep anything between calls."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.config = config
        self.model = TalkerStack(config.stack)
        self.codec_head = nn.Linear(config.stack.width, config.stack.vocab, bias=False)
        self.text_projection = Projection(config)
        self._rows: RowLayers | None = None

    def embed(self, codes: Tensor) -> Tensor:
        """Ids of its own vocabulary int64 `[R]` -> `[R, W]`."""
        return self.model.codec_embedding(codes)

    def words(self, table: Tensor) -> Tensor:
        """The thinker's table of words `[N, D]` -> their rows `[N, W]`."""
        with torch.inference_mode():
            return torch.cat([self.text_projection(part) for part in table.split(_CHUNK)])

    def keep(self, x: Tensor, positions: Tensor, to: Placed) -> None:
        """Append rows whose output nothing reads: x `[R, W]`, positions `[R]`, or `[R, 3]`. Needs `pack`."""
        rows = self._packed()
        rows.last_keys(x, rows.turns(positions), to)

    def read(self, x: Tensor, positions: Tensor, to: Placed) -> tuple[Tensor, Tensor]:
        """Rows x `[R, W]`, positions `[R]` -> logits `[R, V]` and rows after the final norm `[R, W]`. Needs `pack`."""
        rows = self._packed()
        return self._answers(rows.through(x.clone(), rows.turns(positions), to))

    def step(self, x: Tensor, slot: StepSlot) -> tuple[Tensor, Tensor]:
        """One new row of each sequence, x `[B, W]` -> logits `[B, V]` and rows after the final norm `[B, W]`. Needs
        `pack`."""
        frequencies = self.model.rope.frequencies(x.device)
        for index, layer in enumerate(self.model.layers):
            x = cast(DecoderLayer, layer).step(index, x, slot, frequencies)
        return self._answers(x)

    def pack(self) -> Self:
        """Lay out the loaded weights for `keep`, `read` and `step`; this freezes them."""
        for layer in self.model.layers:
            cast(DecoderLayer, layer).pack()
        self._rows = RowLayers(self.model.layers, "", self.model.rope)
        return self

    def _answers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = rms_norm(x, self.model.norm.weight, self.model.norm.eps)
        return linear(hidden, self.codec_head.weight), hidden

    def _packed(self) -> RowLayers:
        if self._rows is None:
            raise RuntimeError(UNPACKED)
        return self._rows
