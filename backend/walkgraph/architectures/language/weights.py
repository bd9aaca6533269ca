"""The weights of a language model, in the layout of Transformers: experts are one matrix each."""

from hashlib import blake2b
from pathlib import Path
from typing import Unpack

import torch

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.experts import LOADS, ExpertParallel, Loads, loads_text, read_loads
from walkgraph.checkpoints.sharding.language import shard_cuts, shard_tensors
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.errors import Refused


def load_language_model(
    folder: Path,
    config: LanguageConfig,
    shard: Shard = WHOLE,
    how: ExpertParallel | None = None,
    **on: Unpack[Loading],
) -> LanguageModel:
    """Load the model, or a shard of it, and pack it; strict. With tied embeddings a file may hold a head too, which
    repeats the table. `how`: divides mixtures by whole experts, if given, by the loads that the folder has."""
    loads = _loads(folder, config, shard, on.get("device", "cpu")) if how else None
    holds = shard_tensors(config, shard.index, shard.count, how, loads)
    names = Names(
        rename=lambda name: name if holds(name) else None,
        spare=("lm_head.weight",) if config.tied else (),
        cuts=shard_cuts(config, shard.index, shard.count, how),
    )
    return load(lambda: LanguageModel(config, shard, how, loads), folder, "model", names=names, **on).pack()


def _loads(folder: Path, config: LanguageConfig, shard: Shard, device: torch.device | str) -> Loads:
    """The loads of a folder's experts. Raises Refused if other shards have read others, as the file may have changed
    meanwhile: some experts would then be on no shard."""
    loads = read_loads(folder, config)
    digest = int.from_bytes(blake2b(loads_text(loads).encode(), digest_size=7).digest(), "big")
    if len(set(shard.gather(torch.tensor([digest], device=device)).tolist())) > 1:
        raise Refused(f"`{LOADS}` in `{folder.name}` changed while the ranks of a group read it; deploy again")
    return loads


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
