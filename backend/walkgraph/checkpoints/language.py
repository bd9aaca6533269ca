"""Sizes of a language model: a decoder of tokens, each layer with a plain MLP or a mixture of experts.

Several kinds of public models are one network with other sizes: Llama 3, Mistral, Qwen3, and Qwen3's mixtures.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import (
    DecoderShape,
    DecoderSizes,
    LongContext,
    rope_base,
    rope_kind,
    rope_of,
    sizes_of,
)
from walkgraph.checkpoints.fields import Fields
from walkgraph.errors import InvalidInput

_STRETCH, _POSITIONS = 1e6, 2**31
_QWEN_HEAD = 128
"""Width of a Qwen3 head whose config names none."""
_FULL = "full_attention"


@dataclass(frozen=True, kw_only=True)
class ExpertSizes:
    """The mixtures of experts of a stack of layers. Raises ValueError for sizes that don't fit together."""

    experts: int
    chosen: int
    """Experts that compute each token."""
    hidden: int
    """Width between the two matrices of an expert."""
    renormed: bool
    """The weights of a token's experts are scaled to a sum of 1."""
    every: int = 1
    """Each layer whose number, counted from 1, is a multiple of this has experts."""
    dense: tuple[int, ...] = ()
    """Indices of layers that have a plain MLP in any case."""
    shared: int = 0
    """Width between the two matrices of the MLP that computes every token beside the experts; 0: there is none."""

    def __post_init__(self) -> None:
        if not 0 < self.chosen <= self.experts or self.hidden < 1 or self.every < 1:
            raise ValueError(f"a token can't choose {self.chosen} of {self.experts} experts")

    def has(self, layer: int) -> bool:
        """True if the layer of this index has experts."""
        return layer not in self.dense and (layer + 1) % self.every == 0


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(DecoderSizes):
    rope_theta: float = 5e5
    norm_eps: float = 1e-5
    scaling: LongContext | None = None
    sections: tuple[int, ...] = ()
    """Pairs of a head's dimensions that turn by each axis of a position; empty if positions have one axis."""
    tied: bool = True
    """The head is the embedding table."""
    qk_norm: bool = False
    """RMS norm of every query and key head, before the rotation."""
    moe: ExpertSizes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sections and sum(self.sections) != self.head_dim // 2:
            raise ValueError(f"`mrope_section` {list(self.sections)} must sum to half of `head_dim` {self.head_dim}")

    @property
    def shape(self) -> DecoderShape:
        return self.layer(qkv_bias=False, qk_norm=self.qk_norm)

    def experts_of(self, layer: int) -> ExpertSizes | None:
        """The mixture of one layer; None for a layer with a plain MLP of `hidden`."""
        return self.moe if self.moe is not None and self.moe.has(layer) else None

    @classmethod
    def published(cls, config: Fields, kinds: Collection[str] = ("llama",)) -> Self:
        """Read a public `config.json` of one of the `kinds`. Raises InvalidInput or ValueError for another model."""
        if config.values.get("model_type") is not None:
            config.word("model_type", kinds)
        kind = kind_of(config)
        if kind is None or kind not in kinds:
            raise InvalidInput(f"it names neither `model_type` {_listed(kinds)} nor `architectures` of such a model")
        config.word("hidden_act", ("silu",), "silu")
        own, rope = _KINDS[kind](config), rope_of(config)
        found: dict[str, Any] = {
            **sizes_of(config),
            "rope_theta": rope_base(config, rope),
            "norm_eps": config.number("rms_norm_eps", limits.EPS),
            "scaling": _scaling(rope),
            "tied": config.flag("tie_word_embeddings"),
        }
        return cls(**{**found, **own})


def kind_of(config: Fields) -> str | None:
    """The kind of model that a config declares, by `model_type` or else by `architectures`; None for all others."""
    named: Any = config.values.get("model_type")
    if named is not None:
        return named if isinstance(named, str) and named in _KINDS else None
    listed: Any = config.values.get("architectures")
    among = cast(list[Any], listed) if isinstance(listed, list) else []
    return next((ARCHITECTURES[one] for one in among if isinstance(one, str) and one in ARCHITECTURES), None)


def is_llama(config: Fields) -> bool:
    """True if a config declares a Llama, under either name."""
    return kind_of(config) == "llama"


def _llama(config: Fields) -> dict[str, Any]:
    if config.flag("attention_bias") or config.flag("mlp_bias"):
        raise InvalidInput("its layers have biases, and those of this family have none")
    return {}


def _mistral(config: Fields) -> dict[str, Any]:
    if config.values.get("sliding_window") is not None:
        raise InvalidInput("its layers attend a sliding window, and only whole contexts can be served")
    return {}


def _qwen3(config: Fields) -> dict[str, Any]:
    if config.flag("attention_bias"):
        raise InvalidInput("its layers have biases, and those of this family have none")
    layers: Any = config.values.get("layer_types")
    if config.flag("use_sliding_window") or (layers is not None and set(_words(layers)) != {_FULL}):
        raise InvalidInput("its layers attend a sliding window, and only whole contexts can be served")
    found: dict[str, Any] = {"qk_norm": True}
    if config.values.get("head_dim") is None:
        found["head_dim"] = _QWEN_HEAD
    return found


def _qwen3_moe(config: Fields) -> dict[str, Any]:
    return {**_qwen3(config), "moe": published_experts(config)}


def published_experts(config: Fields) -> ExpertSizes:
    """The mixtures of experts of a public Qwen3 config. Raises InvalidInput or ValueError for sizes out of bounds."""
    layers = config.whole("num_hidden_layers", limits.LAYERS)
    experts = config.whole("num_experts", limits.EXPERTS)
    if layers * experts > limits.ALL_EXPERTS:
        raise InvalidInput(f"it has {layers} layers of {experts} experts, and at most {limits.ALL_EXPERTS} can be read")
    dense = config.wholes("mlp_only_layers", layers, layers, least=0) if config.values.get("mlp_only_layers") else ()
    return ExpertSizes(
        experts=experts,
        chosen=config.whole("num_experts_per_tok", limits.EXPERTS),
        hidden=config.whole("moe_intermediate_size", limits.HIDDEN),
        renormed=config.flag("norm_topk_prob"),
        every=config.whole("decoder_sparse_step", limits.LAYERS, default=1),
        dense=tuple(sorted(set(dense))),
    )


_KINDS: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
"""`model_type` -> the fields in which its config differs from the common ones."""
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
KINDS = tuple(_KINDS)


def _words(value: Any) -> list[str]:
    listed = cast(list[Any], value) if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else "" for one in listed]


def _listed(kinds: Collection[str]) -> str:
    return " or ".join(f"`{kind}`" for kind in kinds)


def _scaling(rope: Fields) -> LongContext | None:
    if rope_kind(rope, ("default", "llama3")) == "default":
        return None
    return LongContext(
        factor=rope.number("factor", _STRETCH, least=1),
        low=rope.number("low_freq_factor", _STRETCH),
        high=rope.number("high_freq_factor", _STRETCH),
        original=rope.whole("original_max_position_embeddings", _POSITIONS),
    )
