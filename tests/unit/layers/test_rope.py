"""Rotary tables against the written-out rotation of each pair."""

import math

import torch

from walkgraph.layers.rope import NeoxRope, rotate


def test_each_pair_turns_by_its_own_angle() -> None:
    torch.manual_seed(0)
    x, positions, theta = torch.randn(3, 2, 8), torch.tensor([0, 1, 37]), 1e6
    out = rotate(x, NeoxRope(8, theta)(positions))
    for row, position in enumerate(positions.tolist()):
        for i in range(4):
            angle = position * theta ** (-2 * i / 8)
            a, b = x[row, :, i], x[row, :, i + 4]
            torch.testing.assert_close(out[row, :, i], a * math.cos(angle) - b * math.sin(angle))
            torch.testing.assert_close(out[row, :, i + 4], b * math.cos(angle) + a * math.sin(angle))


def test_products_depend_on_the_distance_alone() -> None:
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 64), torch.randn(1, 1, 64)
    rope = NeoxRope(64, 1e6)

    def product(a: int, b: int) -> torch.Tensor:
        return (rotate(q, rope(torch.tensor([a]))) * rotate(k, rope(torch.tensor([b])))).sum()

    torch.testing.assert_close(product(3, 10), product(103, 110), rtol=1e-4, atol=1e-4)
    assert abs(float(product(3, 10) - product(3, 11))) > 1e-3


def test_half_precision_comes_back_in_its_dtype() -> None:
    x = torch.randn(2, 1, 4).bfloat16()
    assert rotate(x, NeoxRope(4, 1e4)(torch.tensor([0, 5]))).dtype == torch.bfloat16


def test_tables_are_made_on_the_cpu_under_a_meta_default() -> None:
    with torch.device("meta"):
        rope = NeoxRope(4, 1e4)
    assert rope(torch.tensor([2])).cos.device.type == "cpu"
