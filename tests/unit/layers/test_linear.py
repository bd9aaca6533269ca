"""The linear of a step, on the CPU, against its parts."""

import pytest
import torch
from torch.nn import functional as F

from walkgraph.layers.linear.step_linear import linear


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


SHAPES = {"x": (5, 12), "weight": (8, 12), "wide": (16, 12), "norm": (12,), "residual": (5, 8), "bias": (8,)}


def test_a_plain_linear(tensors):
    x, weight = tensors["x"], tensors["weight"]
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert torch.equal(linear(x, weight, bias=tensors["bias"]), F.linear(x, weight, tensors["bias"]))


def test_the_norm_comes_before_and_takes_its_eps(tensors):
    x, weight, norm = tensors["x"] / 100, tensors["weight"], tensors["norm"]
    normed = x / (x.square().mean(1, keepdim=True) + 1e-2).sqrt() * norm
    torch.testing.assert_close(linear(x, weight, norm=norm, eps=1e-2), normed @ weight.T)


def test_gate_rows_come_first(tensors):
    x, wide = tensors["x"], tensors["wide"]
    gate, up = x @ wide[:8].T, x @ wide[8:].T
    torch.testing.assert_close(linear(x, wide, gated=True), gate * gate.sigmoid() * up)


def test_the_residual_comes_last(tensors):
    x, wide, residual = tensors["x"], tensors["wide"], tensors["residual"]
    torch.testing.assert_close(
        linear(x, wide, gated=True, residual=residual, norm=tensors["norm"]),
        linear(x, wide, gated=True, norm=tensors["norm"]) + residual,
    )


def test_a_half_precision_residual_is_added_in_float32(tensors):
    x, weight = tensors["x"].bfloat16(), tensors["weight"].bfloat16()
    residual = (tensors["residual"] * 64).bfloat16()
    result = linear(x, weight, residual=residual)
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, (F.linear(x, weight).float() + residual.float()).bfloat16())


def test_no_rows_give_no_rows(tensors):
    assert linear(tensors["x"][:0], tensors["weight"]).shape == (0, 8)
