"""Llama: a dense decoder with one set of weights, and Orpheus, a Llama whose vocabulary ends in audio codes.

Parameter names are the public checkpoint's.

Shape letters: R rows, B rows of a step, W width, D head dim, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, cast

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention import Attend
from walkgraph.layers.decoder import DecoderLayer, DecoderShape, DecoderSizes, StepSlot
from walkgraph.layers.norm import RMSNorm
from walkgraph.layers.rope import LongContext, NeoxRope
from walkgraph.networks.decoding import step_logits

_ONE = ""
"""The one set of weights has plain names."""


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderSizes):
    rope_theta: float = 5e5
    norm_eps: float = 1e-5
    scaling: LongContext | None = None
    tied: bool = True
    """The head is the table of embeddings."""

    @property
    def shape(self) -> DecoderShape:
        return self.layer(qkv_bias=False, qk_norm=False)

    @classmethod
    def published(cls, json: Mapping[str, Any]) -> Self:
        """From a public `config.json`. Raises KeyError, TypeError or ValueError for one that is no such model's."""
        if json.get("model_type") != "llama" or json.get("hidden_act", "silu") != "silu":
            raise ValueError("`model_type` must be `llama`, `hidden_act` `silu`")
        if json.get("attention_bias") or json.get("mlp_bias"):
            raise ValueError("biases are not part of this family")
        # Older files have `rope_theta` beside `rope_scaling`, newer ones both in `rope_parameters`.
        rope: Mapping[str, Any] = json.get("rope_parameters") or json.get("rope_scaling") or {}
        return cls(
            width=json["hidden_size"],
            hidden=json["intermediate_size"],
            layers=json["num_hidden_layers"],
            heads=json["num_attention_heads"],
            kv_heads=json["num_key_value_heads"],
            head_dim=json.get("head_dim") or json["hidden_size"] // json["num_attention_heads"],
            vocab=json["vocab_size"],
            rope_theta=float(rope.get("rope_theta") or json["rope_theta"]),
            norm_eps=json["rms_norm_eps"],
            scaling=_scaling(rope),
            tied=bool(json.get("tie_word_embeddings", False)),
        )


def _scaling(rope: Mapping[str, Any]) -> LongContext | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope scaling `{kind}` is not known; have `llama3`")
    return LongContext(
        factor=rope["factor"],
        low=rope["low_freq_factor"],
        high=rope["high_freq_factor"],
        original=rope["original_max_position_embeddings"],
    )


@dataclass(frozen=True, kw_only=True)
class SpeechTokens:
    """Ids of Orpheus's vocabulary; the defaults are the published model's."""

    bos: int = 128000
    eos: int = 128009
    """Ends a text."""
    start_of_speech: int = 128257
    end_of_speech: int = 128258
    start_of_human: int = 128259
    end_of_human: int = 128260
    start_of_ai: int = 128261
    audio_base: int = 128266
    """The first of `SLOTS * codebook` audio tokens."""
    codebook: int = 4096

    @classmethod
    def after_bytes(cls, codebook: int) -> Self:
        """For a vocabulary of 256 bytes, the special tokens, then the codes."""
        special = [f.name for f in fields(cls) if f.name not in ("audio_base", "codebook")]
        ids = {name: 256 + index for index, name in enumerate(special)}
        return cls(**ids, audio_base=256 + len(special), codebook=codebook)

    @property
    def vocab(self) -> int:
        """Tokens that a vocabulary must have."""
        return self.audio_base + SLOTS * self.codebook


SLOTS = 7
"""Codes of a frame: each has tokens of its own."""


@dataclass(frozen=True, kw_only=True)
class OrpheusConfig:
    llm: LlamaConfig
    tokens: SpeechTokens = SpeechTokens()

    def __post_init__(self) -> None:
        if self.tokens.vocab > self.llm.vocab:
            raise ValueError(f"the audio tokens end at {self.tokens.vocab}, beyond a vocabulary of {self.llm.vocab}")


ORPHEUS_3B = OrpheusConfig(
    llm=LlamaConfig(
        width=3072,
        hidden=8192,
        layers=28,
        heads=24,
        kv_heads=8,
        head_dim=128,
        vocab=156940,
        scaling=LongContext(factor=32.0, low=1.0, high=4.0, original=8192),
    )
)
"""Orpheus 3B as published: 3.3 billion parameters."""


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
    """Rows in, logits out; nothing is kept between calls but what `attend` and slots keep."""

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
        """Lay out the weights for `step`, once they are loaded; they are frozen by it."""
        for layer in self.model.layers:
            cast(DecoderLayer, layer).pack()
        return self
