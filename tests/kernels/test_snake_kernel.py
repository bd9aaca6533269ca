from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.layers import snake as twin
from walkgraph.layers.kernels.snake import place_noise, snake


@pytest.mark.parametrize("places", [1, 57, 1100])
@pytest.mark.parametrize("given", [(), ("add",), ("add", "bias"), ("add", "scale"), ("add", "bias", "scale")])
def test_sums_and_their_snakes_of_cut_places(places: int, given: tuple[str, ...], device: str) -> None:
    generator = torch.Generator().manual_seed(places)
    x, add = (torch.randn(2, 3, places + 7, generator=generator)[..., 4:-3] for _ in range(2))
    alpha, bias = (torch.rand(3, generator=generator) + 0.5 for _ in range(2))
    every: dict[str, Tensor] = {"add": add, "bias": bias, "scale": torch.randn(2, places, generator=generator)}
    more = [every[name] if name in given else None for name in every]
    kept, made = snake(x.to(device), alpha.to(device), *(m if m is None else m.to(device) for m in more), keep=True)
    assert kept is not None
    wanted = (x, twin.snake(x, alpha)) if more[0] is None else twin.add_snake(x, alpha, more[0], more[1], more[2])
    torch.testing.assert_close(kept.cpu(), wanted[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(made.cpu(), wanted[1], rtol=0, atol=5e-6)


def test_noise_is_the_twins_to_the_bit(device: str) -> None:
    seed, first = torch.tensor([5, -(2**62) - 9, 1]), torch.tensor([0, 2**40, 77])
    for stage in range(4):
        made = place_noise(seed.to(device), stage, first.to(device), 1100)
        assert torch.equal(made.cpu(), twin.place_noise(seed, stage, first, 1100))
