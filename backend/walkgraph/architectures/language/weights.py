"""The weights of a language model, in the layout of Transformers: experts are one matrix each."""

from pathlib import Path
from typing import Unpack

import torch

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.experts import ExpertParallel, read_loads
from walkgraph.checkpoints.sharding.language import shard_cuts, shard_tensors
from walkgraph.collectives.base import WHOLE, Shard


def load_language_model(
    folder: Path,
    config: LanguageConfig,
    shard: Shard = WHOLE,
    how: ExpertParallel | None = None,
    **on: Unpack[Loading],
) -> LanguageModel:
    """Load the model, or a shard of it, and pack it; strict. With tied embeddings a file may hold a head too, which
    repeats the table. `how`: divides mixtures by whole experts, if given, by the loads that the folder has."""
    loads = read_loads(folder, config) if how else None
    holds = shard_tensors(config, shard.index, shard.count, how, loads)
    names = Names(
        rename=lambda name: name if holds(name) else None,
        spare=("lm_head.weight",) if config.tied else (),
        cuts=shard_cuts(config, shard.index, shard.count, how),
    )
    return load(lambda: LanguageModel(config, shard, how, loads), folder, "model", names=names, **on).pack()


def draw_language_model(
    config: LanguageConfig,
    seed: int,
    shard: Shard = WHOLE,
    how: ExpertParallel | None = None,
    *,
    device: torch.device,
    dtype: torch.dtype,
    precision: str = "bf16",
) -> LanguageModel:
    """A model, or a shard of it, with random weights, packed. `how`: as above; `precision`: as in `LoadContext`."""
    cuts = shard_cuts(config, shard.index, shard.count, how)
    build = lambda: LanguageModel(config, shard, how)  # noqa: E731
    return drawn(build, seed, device=device, dtype=dtype, precision=precision, cuts=cuts).pack()
