"""Checkpoints in the public layouts, tiny, as people download them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.golden import llm_tiny, pi05_tiny
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.checkpoints.contents import read
from walkgraph.checkpoints.statistics import statistics_json
from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.importing.making import Made, make
from walkgraph.importing.recognising import Recognised, recognise
from walkgraph.layers.unset import unset
from walkgraph.models.orpheus.config import OrpheusConfig
from walkgraph.models.orpheus.presets import ORPHEUS
from walkgraph.models.snac.model import SNAC, Snac
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.placement.sizes import weights_folder

GIB = 2**30
LAPTOP = Hardware(
    host="here", cores=4, shm=GIB, devices=(Device(name="cpu", total=64 * GIB, free=64 * GIB, label="test"),)
)


def llama_json(config: OrpheusConfig) -> dict[str, Any]:
    """As Transformers publishes it."""
    llm = config.llm
    return {
        "model_type": "llama", "hidden_size": llm.width, "intermediate_size": llm.hidden,
        "num_hidden_layers": llm.layers, "num_attention_heads": llm.heads, "num_key_value_heads": llm.kv_heads,
        "head_dim": llm.head_dim, "vocab_size": llm.vocab, "rope_theta": llm.rope_theta, "rms_norm_eps": llm.norm_eps,
        "tie_word_embeddings": llm.tied, "speech_tokens": vars(config.tokens),
    }  # fmt: skip


QUANTILES = statistics_json([(-1.0, 1.0)] * 7, [(-1.0, 1.0)] * 7)


def tokenizer(folder: Path) -> None:
    """A trained one."""
    source = weights_folder("starter:reach", ()) / "tokenizer.json"
    (folder / "tokenizer.json").write_bytes(source.read_bytes())


def written(folder: Path, name: str = "config") -> Callable[[dict[str, Any]], Path]:
    def write(document: dict[str, Any]) -> Path:
        folder.mkdir(exist_ok=True, parents=True)
        (folder / f"{name}.json").write_text(json.dumps(document))
        return folder

    return write


def orpheus(folder: Path) -> Path:
    written(folder)(llama_json(ORPHEUS["orpheus-tiny"]))
    tokenizer(folder)
    with unset():
        model = LanguageModel(ORPHEUS["orpheus-tiny"].llm)
    save_file(
        {name: torch.zeros(tensor.shape) for name, tensor in model.state_dict().items()}, folder / "model.safetensors"
    )
    return folder


def language_model(kind: str, root: Path) -> Path:
    folder = llm_tiny.write_folder(root, llm_tiny.CONFIGS[kind])
    tokenizer(folder)
    return folder


def snac(folder: Path) -> Path:
    config = SNAC["snac-tiny"]
    written(folder)({name: list(v) if isinstance(v, tuple) else v for name, v in vars(config).items()})
    model = drawn(lambda: Snac(config), 0, device=torch.device("cpu"), dtype=torch.float32)
    save_file(model.state_dict(), folder / "model.safetensors")
    return folder


def pi05(folder: Path, layout: str) -> Path:
    pi05_tiny.write_folder(folder, layout, shards=2 if layout == "lerobot" else 1)
    tokenizer(folder)
    (folder / "norm_stats.json").write_text(QUANTILES)
    return folder


def imported(folder: Path, hardware: Hardware = LAPTOP) -> tuple[Recognised, Made]:
    found = recognise(read(folder))
    assert found.problems() == []
    return found, make(found, None, hardware)


def refused(folder: Path) -> str:
    with pytest.raises((Refused, NotFound, InvalidInput)) as caught:
        recognise(read(folder))
    return str(caught.value)


def shapes(build: Callable[[], nn.Module]) -> dict[str, tuple[int, ...]]:
    with unset():
        return {name: tuple(tensor.shape) for name, tensor in build().state_dict().items()}
