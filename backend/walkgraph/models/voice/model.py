"""The speaker's network: one row for each frame, made of the frame before it and of the unit that is spoken.

Shape letters: R rows, B rows of a step, W width, V tokens.
"""

from typing import Self, cast

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.abi.states import Placed
from walkgraph.architectures.language.rows import RowLayers
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.decoder import DecoderLayer, StepSlot
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm
from walkgraph.layers.rope import NeoxRope
from walkgraph.models.voice.config import VoiceConfig

_ONE = ""
"""Suffix of the only set of weights, which has plain names."""


class Speaker(nn.Module):
    """Rows in, logits of the frames' tokens out. Only `attend`, `Placed` rows and slots keep anything between calls."""

    def __init__(self, config: VoiceConfig) -> None:
        super().__init__()
        self.config = config
        units, width = len(config.units), config.width
        self.token = nn.Embedding(config.vocab + 1, width)
        """The last row stands for the frame before the first one."""
        self.unit = nn.Embedding(units, width)
        self.following = nn.Embedding(units, width)
        self.age = nn.Embedding(config.ages, width)
        self.layers = nn.ModuleList(DecoderLayer(config.shape) for _ in range(config.layers))
        self.norm = RMSNorm(width, config.norm_eps)
        self.head = nn.Linear(width, config.vocab, bias=False)
        self.rope = NeoxRope(config.head_dim, config.rope_theta)
        self._rows: RowLayers | None = None

    def embed(self, token: Tensor, unit: Tensor, following: Tensor, age: Tensor) -> Tensor:
        """The frame before, the unit that is spoken, the one after it, and the frames of the unit so far, each int64
        `[R]` -> `[R, W]`."""
        return self.token(token) + self.unit(unit) + self.following(following) + self.age(age)

    def forward(self, x: Tensor, positions: Tensor, attend: Attend, asked: Tensor) -> Tensor:
        """x `[R, W]`, positions int64 `[R]` -> logits of the asked rows `[K, V]`."""
        parts, rotation = {_ONE: x}, self.rope(positions)
        for index, layer in enumerate(self.layers):
            parts = cast(DecoderLayer, layer)(index, parts, rotation, attend)
        return F.linear(self.norm(parts[_ONE][asked]), self.head.weight)

    def read(self, x: Tensor, positions: Tensor, to: Placed) -> Tensor:
        """x `[R, W]`, positions `[R]` -> logits `[R, V]`. Needs `pack`."""
        if self._rows is None:
            raise RuntimeError(UNPACKED)
        return self._logits(self._rows.through(x, self._rows.turns(positions), to))

    def step(self, x: Tensor, slot: StepSlot) -> Tensor:
        """One new row of each sequence, x `[B, W]` -> logits `[B, V]`. Needs `pack`."""
        frequencies = self.rope.frequencies(x.device)
        for index, layer in enumerate(self.layers):
            x = cast(DecoderLayer, layer).step(index, x, slot, frequencies)
        return self._logits(x)

    def pack(self) -> Self:
        """Lay out the loaded weights for `read` and `step`; this freezes them."""
        for layer in self.layers:
            cast(DecoderLayer, layer).pack()
        self._rows = RowLayers(self.layers, _ONE, self.rope)
        return self

    def _logits(self, x: Tensor) -> Tensor:
        return linear(rms_norm(x, self.norm.weight, self.norm.eps), self.head.weight)
