"""Sizes of a stack of decoder layers, and what configs say of its rotary positions."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from walkgraph.checkpoints.fields import BASE, HEAD_DIM, HEADS, HIDDEN, LAYERS, VOCAB, WIDTH, Fields


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


class Heads(Protocol):
    """What the layers of a stack have in common."""

    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...


def layer_shape(of: Heads, *, width: int, hidden: int, qkv_bias: bool = False, qk_norm: bool = False) -> DecoderShape:
    return DecoderShape(
        width=width,
        heads=of.heads,
        kv_heads=of.kv_heads,
        head_dim=of.head_dim,
        hidden=hidden,
        norm_eps=of.norm_eps,
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
    )


@dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """Of a stack of layers with a vocabulary. Raises ValueError for sizes that don't go together."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_theta: float
    norm_eps: float

    def __post_init__(self) -> None:
        sizes = (self.width, self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim, self.vocab)
        if min(sizes) < 1 or self.heads % self.kv_heads:
            raise ValueError(f"`heads` {self.heads} must be a multiple of `kv_heads` {self.kv_heads}, and no size 0")
        if self.head_dim % 2:
            raise ValueError(f"`head_dim` {self.head_dim} must be even for rotary positions")

    def layer(self, *, qkv_bias: bool, qk_norm: bool) -> DecoderShape:
        return layer_shape(self, width=self.width, hidden=self.hidden, qkv_bias=qkv_bias, qk_norm=qk_norm)


def sizes_of(config: Fields) -> dict[str, int]:
    """What `DecoderSizes` has of a public `config.json`, but for the numbers of its norms and positions."""
    width, heads = config.whole("hidden_size", WIDTH), config.whole("num_attention_heads", HEADS)
    return {
        "width": width,
        "hidden": config.whole("intermediate_size", HIDDEN),
        "layers": config.whole("num_hidden_layers", LAYERS),
        "heads": heads,
        "kv_heads": config.whole("num_key_value_heads", HEADS),
        "head_dim": config.whole("head_dim", HEAD_DIM, default=width // heads),
        "vocab": config.whole("vocab_size", VOCAB),
    }


def rope_of(config: Fields) -> Fields:
    """Older files have `rope_theta` beside `rope_scaling`, newer ones both in `rope_parameters`."""
    return config.section_or_empty("rope_parameters" if config.values.get("rope_parameters") else "rope_scaling")


def rope_kind(rope: Fields, known: Collection[str]) -> str:
    return rope.word("rope_type" if "rope_type" in rope.values else "type", known, "default")


def rope_base(config: Fields, rope: Fields, default: float | None = None) -> float:
    at = rope if rope.values.get("rope_theta") is not None else config
    return at.number("rope_theta", BASE, default=default)
