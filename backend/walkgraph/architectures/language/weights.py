"""The weights of a language model, in the layout of Transformers: experts are one matrix each."""

from pathlib import Path
from typing import Unpack

from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.language import LanguageConfig


def load_language_model(folder: Path, config: LanguageConfig, **on: Unpack[Loading]) -> LanguageModel:
    """Load the model and pack it; strict. With tied embeddings a file may hold a head too, which repeats the table."""
    spare = ("lm_head.weight",) if config.tied else ()
    return load(lambda: LanguageModel(config), folder, "model", names=Names(spare=spare), **on).pack()
