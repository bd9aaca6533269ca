"""The weights of Orpheus' Llama, in the layout of Transformers."""

from pathlib import Path
from typing import Any

import torch

from walkgraph.architectures.weights import Names, Progress, load
from walkgraph.models.orpheus.config import LlamaConfig
from walkgraph.models.orpheus.llama import Llama


def load_llama(
    folder: Path,
    config: LlamaConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Llama:
    """The model, packed; strict. With tied embeddings a file may hold a head too: it is the table again."""
    spare = ("lm_head.weight",) if config.tied else ()
    on: dict[str, Any] = {"device": device, "dtype": dtype, "progress": progress}
    return load(lambda: Llama(config), folder, "model", **on, names=Names(spare=spare)).pack()
