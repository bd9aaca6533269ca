"""Modules without values: quick to build, without torch's imports for random numbers that nobody reads."""

from __future__ import annotations

import torch
from torch import nn

from walkgraph.layers.unset import unset


def test_what_is_built_has_names_and_shapes_alone() -> None:
    with unset():
        module = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 3), nn.Conv1d(3, 2, 5))
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert shapes == {"0.weight": (8, 4), "1.weight": (3, 4), "1.bias": (3,), "2.weight": (2, 3, 5), "2.bias": (2,)}
    assert {tensor.device.type for tensor in module.parameters()} == {"meta"}
    assert all(tensor.requires_grad for tensor in module.parameters())


def test_nothing_is_drawn_until_it_is_over() -> None:
    numbers = torch.zeros(8)
    with unset():
        assert nn.init.normal_(numbers) is numbers
        assert nn.init.normal_(tensor=numbers) is numbers
    assert torch.count_nonzero(numbers) == 0
    assert torch.count_nonzero(nn.init.normal_(numbers)) == 8
