"""The weights of Orpheus' Llama, in the layout of Transformers."""

from pathlib import Path
from typing import Unpack

from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.models.orpheus.config import LlamaConfig
from walkgraph.models.orpheus.llama import Llama


def load_llama(folder: Path, config: LlamaConfig, **on: Unpack[Loading]) -> Llama:
    """Load the model and pack it; strict. With tied embeddings a file may hold a head too, which repeats the table."""
    spare = ("lm_head.weight",) if config.tied else ()
    return load(lambda: Llama(config), folder, "model", names=Names(spare=spare), **on).pack()
