"""Sizes of a stack of decoder layers, and the rotary positions in configs."""

from collections.abc import Collection
from dataclasses import dataclass

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.fields import Fields


@dataclass(frozen=True, kw_only=True)
class LongContext:
    """How Llama 3 stretches rotary positions: slow dimensions turn `factor` times slower, fast ones as before."""

    factor: float
    low: float
    """A dimension that turns at most this often within `original` positions is slow."""
    high: float
    """One that turns at least this often is fast; in between the two are mixed linearly."""
    original: int
    """Positions that the model was first trained on."""

    def __post_init__(self) -> None:
        if self.factor < 1 or not self.low < self.high or self.original < 1:
            raise ValueError("rope scaling wants `factor` >= 1, `low` < `high` and positive `original` positions")


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Sizes shared by the layers of a stack."""

    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float

    def layer_of(self, *, width: int, hidden: int, qkv_bias: bool = False, qk_norm: bool = False) -> "DecoderShape":
        return DecoderShape(
            width=width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            hidden=hidden,
            norm_eps=self.norm_eps,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
        )


@dataclass(frozen=True, kw_only=True)
class StackSizes(AttentionSizes):
    layers: int


@dataclass(frozen=True, kw_only=True)
class DecoderShape(AttentionSizes):
    width: int
    hidden: int
    """Width between the two matrices of the MLP."""
    qkv_bias: bool
    qk_norm: bool
    """RMS norm of every query and key head, before the rotation."""


@dataclass(frozen=True, kw_only=True)
class DecoderSizes(StackSizes):
    """Sizes of a stack of layers with a vocabulary. Raises ValueError for sizes that don't fit together."""

    width: int
    hidden: int
    vocab: int
    rope_theta: float

    def __post_init__(self) -> None:
        sizes = (self.width, self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim, self.vocab)
        if min(sizes) < 1 or self.heads % self.kv_heads:
            raise ValueError(f"`heads` {self.heads} must be a multiple of `kv_heads` {self.kv_heads}, and no size 0")
        if self.head_dim % 2:
            raise ValueError(f"`head_dim` {self.head_dim} must be even for rotary positions")

    def layer(self, *, qkv_bias: bool, qk_norm: bool) -> DecoderShape:
        return self.layer_of(width=self.width, hidden=self.hidden, qkv_bias=qkv_bias, qk_norm=qk_norm)


def sizes_of(config: Fields) -> dict[str, int]:
    """The fields of `DecoderSizes` that a public `config.json` gives, without those of norms and positions."""
    width, heads = config.whole("hidden_size", limits.WIDTH), config.whole("num_attention_heads", limits.HEADS)
    return {
        "width": width,
        "hidden": config.whole("intermediate_size", limits.HIDDEN),
        "layers": config.whole("num_hidden_layers", limits.LAYERS),
        "heads": heads,
        "kv_heads": config.whole("num_key_value_heads", limits.HEADS),
        "head_dim": config.whole("head_dim", limits.HEAD_DIM, default=width // heads),
        "vocab": config.whole("vocab_size", limits.VOCAB),
    }


def rope_of(config: Fields) -> Fields:
    """The config's section on rotary positions. Older files have `rope_theta` beside `rope_scaling`, newer ones both in
    `rope_parameters`."""
    return config.section_or_empty("rope_parameters" if config.values.get("rope_parameters") else "rope_scaling")


def rope_kind(rope: Fields, known: Collection[str]) -> str:
    return rope.word("rope_type" if "rope_type" in rope.values else "type", known, "default")


def rope_base(config: Fields, rope: Fields, default: float | None = None) -> float:
    at = rope if rope.values.get("rope_theta") is not None else config
    return at.number("rope_theta", limits.BASE, default=default)
