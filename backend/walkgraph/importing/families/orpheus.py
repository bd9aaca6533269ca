"""Orpheus: a Llama whose vocabulary ends in audio tokens, in the layout of Transformers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from walkgraph.errors import InvalidInput
from walkgraph.importing.contents import Contents, Shape
from walkgraph.importing.family import Beside, Family, Part, Shapes, gated, linear, norm, section, whole

_AUDIO_BASE, _SLOTS, _CODEBOOK = 128266, 7, 4096
_HEAD = "lm_head.weight"


def _recognises(contents: Contents) -> bool:
    config = contents.config
    return config.get("model_type") == "llama" or "LlamaForCausalLM" in (config.get("architectures") or ())


def _parts(contents: Contents) -> list[Part]:
    config = contents.config
    if config.get("attention_bias") or config.get("mlp_bias"):
        raise InvalidInput("its layers have biases, and those of this family have none")
    vocab = whole(config, "vocab_size")
    tokens: Mapping[str, Any] = section(config, "speech_tokens") if "speech_tokens" in config else {}
    needed = whole(tokens, "audio_base", _AUDIO_BASE) + _SLOTS * whole(tokens, "codebook", _CODEBOOK)
    if vocab < needed:
        raise InvalidInput(
            f"it is a Llama of {vocab} tokens, and Orpheus has {needed} or more, the last of them sounds: a Llama that "
            "only writes can't be served yet"
        )
    tied = bool(config.get("tie_word_embeddings", False))
    return [Part("model", dict(_tensors(config, vocab, tied=tied)), _named if tied else dict)]


def _tensors(config: Mapping[str, Any], vocab: int, *, tied: bool) -> Iterator[tuple[str, Shape]]:
    width, hidden, heads = (whole(config, k) for k in ("hidden_size", "intermediate_size", "num_attention_heads"))
    head = whole(config, "head_dim", width // heads)
    queries, keys = heads * head, whole(config, "num_key_value_heads") * head
    yield "model.embed_tokens.weight", (vocab, width)
    for layer in range(whole(config, "num_hidden_layers")):
        at = f"model.layers.{layer}"
        for part, out in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield from linear(f"{at}.self_attn.{part}", out, width, bias=False)
        yield from linear(f"{at}.self_attn.o_proj", width, queries, bias=False)
        yield from gated(f"{at}.mlp", width, hidden)
        for part in ("input_layernorm", "post_attention_layernorm"):
            yield from norm(f"{at}.{part}", width, bias=False)
    yield from norm("model.norm", width, bias=False)
    if not tied:
        yield _HEAD, (vocab, width)


def _named(found: Shapes) -> Shapes:
    """With tied embeddings a head is the table again."""
    return {name: shape for name, shape in found.items() if name != _HEAD}


def _notes(contents: Contents) -> Iterable[str]:
    if not contents.has("tokenizer.json"):
        yield "it has no `tokenizer.json`: put the one of the same model there"


def is_snac(contents: Contents) -> bool:
    return {"vq_strides", "decoder_rates"} <= contents.config.keys() and "model" in contents.weights


FAMILY = Family(
    name="orpheus",
    title="Orpheus",
    graph="orpheus",
    weights="orpheus",
    kinds=("llama", "LlamaForCausalLM", "orpheus"),
    recognises=_recognises,
    parts=_parts,
    notes=_notes,
    beside={
        "snac": Beside(
            title="SNAC, the vocoder",
            recognises=is_snac,
            without="its vocoder has random weights, so that what it speaks is noise: put SNAC (24 kHz, `config.json` "
            "and `model.safetensors`) into a folder beside this one, and import again",
        )
    },
)
