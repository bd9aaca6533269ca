"""The loads of experts that texts give: those that the routers chose, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.language import forwarded
from walkgraph.architectures.language.expert_loads import expert_loads
from walkgraph.architectures.language.weights import draw_language_model
from walkgraph.layers.moe.routing import Routing
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.models.llm.presets import LLM


def test_loads_are_the_choices_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = draw_language_model(LLM["qwen3-moe-tiny"].llm, 3, device=torch.device("cpu"), dtype=torch.float32)
    texts = [torch.randint(0, 256, (n,), generator=torch.Generator().manual_seed(n)) for n in (1, 9, 40)]
    found = expert_loads(model, texts)
    mixtures = {index: layer.mlp for index, layer in enumerate(model.model.layers) if isinstance(layer.mlp, SparseMLP)}
    chosen: dict[SparseMLP, list[int]] = {mlp: [] for mlp in mixtures.values()}
    route = SparseMLP.routed

    def noted(mlp: SparseMLP, x: Tensor) -> Routing:
        routing = route(mlp, x)
        chosen[mlp] += routing.experts.flatten().tolist()
        return routing

    monkeypatch.setattr(SparseMLP, "routed", noted)
    for ids in texts:
        forwarded(model, ids[None])
    assert found == {i: [chosen[mlp].count(expert) for expert in range(8)] for i, mlp in mixtures.items()}
    assert [sum(load) for load in found.values()] == [50 * 2] * len(mixtures)
    assert found == expert_loads(model, texts), "nothing of the first time is left"
