"""The load of each expert of a language model: how many rows of some texts choose it.

Groups whose shards hold whole experts spread them by these loads (`checkpoints/sharding/experts.py`).
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from walkgraph.architectures.language.model import LanguageModel
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.layers.moe.sparse_mlp import SparseMLP


@torch.inference_mode()
def expert_loads(model: LanguageModel, texts: Iterable[Tensor]) -> dict[int, list[int]]:
    """Layer -> how many rows chose each of its experts. `texts`: int64 `[n]` each, read one by one by a model that
    isn't divided."""
    counts: dict[int, Tensor] = {}
    noted: list[Any] = []
    for index, layer in enumerate(model.model.layers):
        mlp = cast(nn.Module, layer.get_submodule("mlp"))
        if isinstance(mlp, SparseMLP):
            counts[index] = torch.zeros(mlp.sizes.experts, dtype=torch.int64, device=model.head.device)
            noted.append(mlp.register_forward_pre_hook(partial(_note, counts[index])))
    try:
        for ids in texts:
            rows = torch.arange(len(ids), device=ids.device)
            model(ids, rows, PackedAttend((len(ids),), mask=causal_mask(len(ids)).to(ids.device)), rows[-1:])
    finally:
        for one in noted:
            one.remove()
    return {index: found.tolist() for index, found in counts.items()}


def _note(counts: Tensor, mlp: SparseMLP, given: tuple[Tensor]) -> None:
    counts += mlp.routed(given[0]).experts.flatten().bincount(minlength=len(counts))
