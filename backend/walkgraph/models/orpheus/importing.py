"""Orpheus: a Llama whose vocabulary ends in audio tokens, in the layout of Transformers."""

from collections.abc import Iterable, Iterator

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Beside, Family, Part, Shapes, gated, norm, projections, tokenizer_faults
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.files import Shape
from walkgraph.checkpoints.language import LanguageConfig, is_llama
from walkgraph.models.orpheus.config import read_orpheus

_HEAD = "lm_head.weight"


def _recognises(contents: Contents) -> bool:
    return is_llama(Fields(contents.config))


def _parts(contents: Contents) -> list[Part]:
    llm = read_orpheus(contents.folder).llm
    return [Part("model", dict(_tensors(llm)), _named if llm.tied else dict)]


def _tensors(llm: LanguageConfig) -> Iterator[tuple[str, Shape]]:
    yield "model.embed_tokens.weight", (llm.vocab, llm.width)
    for layer in range(llm.layers):
        at = f"model.layers.{layer}"
        yield from projections(at, llm, bias=False)
        yield from gated(f"{at}.mlp", llm.width, llm.hidden)
        for part in ("input_layernorm", "post_attention_layernorm"):
            yield from norm(f"{at}.{part}", llm.width, bias=False)
    yield from norm("model.norm", llm.width, bias=False)
    if not llm.tied:
        yield _HEAD, (llm.vocab, llm.width)


def _named(found: Shapes) -> Shapes:
    """Without the head of tied embeddings, which repeats the table."""
    return {name: shape for name, shape in found.items() if name != _HEAD}


def _notes(contents: Contents) -> Iterable[str]:
    return tokenizer_faults(contents, plain=True)


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
            family="snac",
            without="its vocoder has random weights, so its speech is noise: put SNAC (24 kHz, `config.json` "
            "and `model.safetensors`) into a folder beside this one, and import again",
        )
    },
)
