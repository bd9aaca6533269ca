"""The weights of a language model, in the layout of Transformers: experts are one matrix each."""

from pathlib import Path
from typing import Unpack

import torch

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.language import shard_cuts
from walkgraph.collectives.base import WHOLE, Shard


def load_language_model(
    folder: Path, config: LanguageConfig, shard: Shard = WHOLE, **on: Unpack[Loading]
) -> LanguageModel:
    """Load the model, or a shard of it, and pack it; strict. With tied embeddings a file may hold a head too, which
    repeats the table."""
    spare = ("lm_head.weight",) if config.tied else ()
    names = Names(spare=spare, cuts=shard_cuts(config, shard.index, shard.count))
    return load(lambda: LanguageModel(config, shard), folder, "model", names=names, **on).pack()


def draw_language_model(
    config: LanguageConfig,
    seed: int,
    shard: Shard = WHOLE,
    *,
    device: torch.device,
    dtype: torch.dtype,
    precision: str = "bf16",
) -> LanguageModel:
    """A model, or a shard of it, with random weights, packed. `precision`: as in `LoadContext`."""
    cuts = shard_cuts(config, shard.index, shard.count)
    build = lambda: LanguageModel(config, shard)  # noqa: E731
    return drawn(build, seed, device=device, dtype=dtype, precision=precision, cuts=cuts).pack()
