from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from walkgraph.layers.kernels.pixels import softmax, sum_taps


@pytest.mark.parametrize("size", [(2, 3, 5), (1, 1, 1), (1, 20, 33)])
def test_neighbours_put_together_are_a_convolution(size: tuple[int, int, int], device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    b, h, w = size
    x = torch.randn(b, 6, h, w, generator=generator)
    weight, bias = torch.randn(3, 6, 3, 3, generator=generator), torch.randn(3, generator=generator)
    taps = torch.zeros(32, 6)
    taps[:27] = weight.permute(2, 3, 0, 1).reshape(27, 6)
    parts = x.permute(0, 2, 3, 1).reshape(-1, 6) @ taps.t()
    made = sum_taps(parts.to(device), bias.to(device), size)
    torch.testing.assert_close(made.cpu(), F.conv2d(x, weight, bias, padding=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keys", [1, 64, 4097, 9000])
def test_shares_of_rows(keys: int, device: str) -> None:
    scores = torch.randn(5, keys, generator=torch.Generator().manual_seed(keys)) * 40
    scores[1] = -1e30
    made = softmax(scores.to(device), 0.3, torch.float32)
    torch.testing.assert_close(made.cpu(), (scores * 0.3).softmax(1), rtol=1e-4, atol=1e-6)
