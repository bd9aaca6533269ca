"""Products with their fused epilogues, on a CPU."""

from __future__ import annotations

import math

import pytest
import torch

from walkgraph.layers.linear.product import Activation, product


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_a_product_is_its_sums(activation: Activation | None, bias: bool, residual: bool) -> None:
    torch.manual_seed(0)
    x, weight, offset, before = torch.randn(5, 6), torch.randn(4, 6), torch.randn(4), torch.randn(5, 4)
    wanted = (x.double()[:, None] * weight.double()).sum(-1) + (offset.double() if bias else 0)
    if activation == "gelu":
        wanted = wanted * (1 + torch.erf(wanted / math.sqrt(2))) / 2
    elif activation == "gelu_tanh":
        wanted = wanted * (1 + torch.tanh(math.sqrt(2 / math.pi) * (wanted + 0.044715 * wanted**3))) / 2
    wanted = wanted + before.double() if residual else wanted
    got = product(x, weight, offset if bias else None, activation=activation, residual=before if residual else None)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


def test_gradients_flow_through_a_product() -> None:
    x, weight, before = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    product(x, weight, activation="gelu", residual=before).sum().backward()
    assert all(t.grad is not None for t in (x, weight, before))
