"""Orpheus: a Llama whose vocabulary ends in audio tokens, in the layout of Transformers."""

from collections.abc import Iterable

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Beside, Family, Part, Published, language_model, tokenizer_faults
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.language import is_llama
from walkgraph.checkpoints.tokenizer import added_tokens
from walkgraph.errors import InvalidInput
from walkgraph.models.orpheus.config import SpeechTokens, read_orpheus

_CODE = "<custom_token_"
"""Begins the names of audio tokens in the published tokenizer."""


def _recognises(contents: Contents) -> bool:
    config = Fields(contents.config)
    return is_llama(config) and (config.values.get("speech_tokens") is not None or _speaks(contents))


def _speaks(contents: Contents) -> bool:
    """True for a vocabulary that reaches the end of the audio tokens, unless the tokenizer names others there."""
    vocab = contents.config.get("vocab_size")
    if not isinstance(vocab, int) or vocab < SpeechTokens().vocab:
        return False
    try:
        added = added_tokens(contents.folder)
    except InvalidInput:
        return True
    return not added or any(name.startswith(_CODE) for name in added)


def _parts(contents: Contents) -> list[Part]:
    return [language_model(read_orpheus(contents.folder).llm)]


def _notes(contents: Contents) -> Iterable[str]:
    return tokenizer_faults(contents, plain=True)


FAMILY = Family(
    name="orpheus",
    title="Orpheus",
    graph="orpheus",
    weights="orpheus",
    kinds=("orpheus",),
    recognises=_recognises,
    parts=_parts,
    notes=_notes,
    published=(
        Published(
            "canopylabs/orpheus-3b-0.1-ft",
            "orpheus-3b-0.1-ft",
            6_600_000_000,
            ("config.json", "model*.safetensors", "model.safetensors.index.json", "tokenizer*.json"),
            "Its licence has to be accepted before the download. It needs SNAC in a folder next to it.",
        ),
    ),
    beside={
        "snac": Beside(
            family="snac",
            without="its vocoder has random weights, so its speech is noise: put SNAC (24 kHz, `config.json` "
            "and `model.safetensors`) into a folder beside this one, and import again",
        )
    },
)
