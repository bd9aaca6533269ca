"""Plain language models, in the layout of Transformers."""

from collections.abc import Iterable

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Family, Part, language_model, tokenizer_faults
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.language import ARCHITECTURES, KINDS, kind_of
from walkgraph.models.llm.config import read_llm


def _recognises(contents: Contents) -> bool:
    return kind_of(Fields(contents.config)) is not None


def _parts(contents: Contents) -> list[Part]:
    return [language_model(read_llm(contents.folder).llm)]


def _notes(contents: Contents) -> Iterable[str]:
    return tokenizer_faults(contents, plain=False)


FAMILY = Family(
    name="llm",
    title="Language model",
    graph="llm",
    weights="llm",
    kinds=(*KINDS, *ARCHITECTURES),
    recognises=_recognises,
    general=True,
    parts=_parts,
    notes=_notes,
)
