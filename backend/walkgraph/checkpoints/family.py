"""A family's declaration for imports: how to recognize its checkpoints, and which tensors its network reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.decoder import DecoderSizes
from walkgraph.checkpoints.files import Shape, tokenizer_file
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.errors import InvalidInput

Shapes = dict[str, Shape]
"""Tensor -> its shape."""
Document = dict[str, Any]
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class Published:
    """Weights that somebody publishes, and what to make of them here."""

    repository: str
    """Its name where it is published: `owner/name`."""
    folder: str
    """The name of the folder for it, under a checkpoint root."""
    bytes: int
    """About how much there is to download."""
    files: tuple[str, ...]
    """The files that are read; `*` stands for any number of shards."""
    note: str = ""
    """A remark on what else has to be done or known, in a sentence."""


@dataclass(frozen=True)
class Part:
    """The tensors of one stem."""

    stem: str
    expected: Mapping[str, Shape]
    """Name in the network -> shape."""
    named: Callable[[Shapes], Shapes] = dict
    """Maps the files' names and shapes to the network's: renamed, joined, and without tensors that are not read."""


@dataclass(frozen=True)
class Companion:
    """A family whose weights are used beside another's, from a folder of their own."""

    title: str
    recognises: Callable[[Contents], bool]
    parts: Callable[[Contents], list[Part]]
    """The tensors that the config requires. Raises InvalidInput for a config that can't be served."""
    published: tuple[Published, ...] = ()


@dataclass(frozen=True)
class Beside:
    """Weights of another family that a graph also needs."""

    family: str
    """The family, which declares a `Companion`."""
    without: str
    """The effect of their absence, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    """The family's name in graphs."""
    title: str
    graph: str
    """The bundled graph that serves it."""
    weights: str
    """That graph's weight set."""
    kinds: tuple[str, ...] = ()
    """Names in configs (`model_type`, `type`, `architectures`); for an unknown checkpoint the nearest one is
    suggested."""
    recognises: Callable[[Contents], bool]
    general: bool = False
    """Recognised only where no other family is, as some of those have checkpoints of the same kind."""
    parts: Callable[[Contents], list[Part]]
    """The tensors that the config requires. Raises InvalidInput or NotFound for a config that the network doesn't
    support."""
    adapt: Callable[[Document, Contents], Iterable[str]] = lambda document, contents: ()
    """Adjusts the graph to the config; returns remarks for the user, in sentences."""
    notes: Callable[[Contents], Iterable[str]] = lambda contents: ()
    """Sentences that name missing or unreadable files next to the weights, without which the model can't be served."""
    beside: Mapping[str, Beside] = field(default_factory=dict[str, Beside])
    """Weight set of the graph -> the other family's weights for it."""
    published: tuple[Published, ...] = ()
    """The places that publish its weights, the recommended one first."""


# ── shapes shared by many networks ────────────────────────────────────────────────────────────────


def linear(name: str, out: int, into: int, *, bias: bool = True) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, into)
    if bias:
        yield f"{name}.bias", (out,)


def norm(name: str, width: int, *, bias: bool = True) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    if bias:
        yield f"{name}.bias", (width,)


def gated(name: str, width: int, hidden: int) -> Iterator[tuple[str, Shape]]:
    """An MLP with a gate."""
    for part in ("gate_proj", "up_proj"):
        yield from linear(f"{name}.{part}", hidden, width, bias=False)
    yield from linear(f"{name}.down_proj", width, hidden, bias=False)


def siglip(name: str, sizes: SiglipConfig, patch: Shape) -> Iterator[tuple[str, Shape]]:
    """A vision tower; `patch`: the shape that a row of its patch embedding reads."""
    width, hidden = sizes.width, sizes.hidden
    yield f"{name}.embeddings.patch_embedding.weight", (width, *patch)
    yield f"{name}.embeddings.patch_embedding.bias", (width,)
    yield f"{name}.embeddings.position_embedding.weight", (sizes.side**2, width)
    for layer in range(sizes.layers):
        at = f"{name}.encoder.layers.{layer}"
        for part in ("layer_norm1", "layer_norm2"):
            yield from norm(f"{at}.{part}", width)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{at}.self_attn.{part}", width, width)
        yield from linear(f"{at}.mlp.fc1", hidden, width)
        yield from linear(f"{at}.mlp.fc2", width, hidden)
    yield from norm(f"{name}.post_layernorm", width)


def projections(at: str, sizes: DecoderSizes, *, bias: bool, suffix: str = "") -> Iterator[tuple[str, Shape]]:
    """The projections of a decoder layer's attention; `bias`: for queries, keys and values."""
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    for part, out in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        yield from linear(f"{at}.self_attn.{part}{suffix}", out, sizes.width, bias=bias)
    yield from linear(f"{at}.self_attn.o_proj{suffix}", sizes.width, queries, bias=False)


def language_model(llm: LanguageConfig) -> Part:
    """A language model in the layout of Transformers. With tied embeddings a file may hold a head too, which repeats
    the table."""
    return Part("model", dict(_language_tensors(llm)), _headless if llm.tied else dict)


def _language_tensors(llm: LanguageConfig) -> Iterator[tuple[str, Shape]]:
    yield "model.embed_tokens.weight", (llm.vocab, llm.width)
    for layer in range(llm.layers):
        yield from decoder_layer(f"model.layers.{layer}", llm, layer)
    yield from norm("model.norm", llm.width, bias=False)
    if not llm.tied:
        yield _HEAD, (llm.vocab, llm.width)


def decoder_layer(at: str, llm: LanguageConfig, layer: int) -> Iterator[tuple[str, Shape]]:
    """A layer of a language model, with a plain MLP or a mixture of experts."""
    experts = llm.experts_of(layer)
    yield from projections(at, llm, bias=False)
    for part in ("q_norm", "k_norm") if llm.qk_norm else ():
        yield from norm(f"{at}.self_attn.{part}", llm.head_dim, bias=False)
    if experts is None:
        yield from gated(f"{at}.mlp", llm.width, llm.hidden)
    else:
        yield from linear(f"{at}.mlp.gate", experts.experts, llm.width, bias=False)
        for expert in range(experts.experts):
            yield from gated(f"{at}.mlp.experts.{expert}", llm.width, experts.hidden)
        if experts.shared:
            yield from gated(f"{at}.mlp.shared_expert", llm.width, experts.shared)
            yield from linear(f"{at}.mlp.shared_expert_gate", 1, llm.width, bias=False)
    for part in ("input_layernorm", "post_attention_layernorm"):
        yield from norm(f"{at}.{part}", llm.width, bias=False)


def _headless(found: Shapes) -> Shapes:
    return {name: shape for name, shape in found.items() if name != _HEAD}


# ── beside the weights ──────────────────────────────────────────────────────────────────────────


def tokenizer_faults(contents: Contents, *, plain: bool) -> Iterator[str]:
    """Reasons that the tokenizer can't be loaded, in sentences; `plain` as in `Trained`."""
    try:
        Trained(tokenizer_file(contents.folder), plain=plain)
    except InvalidInput as error:
        yield str(error)
