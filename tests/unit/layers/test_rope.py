"""Rotary tables against the written-out rotation of each pair."""

import math

import pytest
import torch

from walkgraph.layers.rope import AxialRope, NeoxRope, interleaved_axes, rotate


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


def test_axes_take_turns_until_each_has_its_pairs() -> None:
    axes = interleaved_axes([24, 20, 20])
    assert axes[:60].tolist() == [0, 1, 2] * 20
    assert axes[60:].tolist() == [0] * 4
    assert interleaved_axes([4, 2, 2]).tolist() == [0, 1, 2, 0, 1, 2, 0, 0]


@pytest.mark.parametrize("sections", [(4, 2, 2), (3, 3, 2), (5, 3)])
def test_each_pair_turns_by_the_position_on_its_axis(sections: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    x, theta = torch.randn(5, 2, 16), 1e4
    positions = torch.randint(0, 90, (5, len(sections))) + torch.rand(5, len(sections))
    out = rotate(x, NeoxRope(16, theta, sections=sections)(positions))
    for i, axis in enumerate(interleaved_axes(sections).tolist()):
        one = rotate(x, NeoxRope(16, theta)(positions[:, axis]))
        torch.testing.assert_close(out[..., [i, i + 8]], one[..., [i, i + 8]])


def test_equal_positions_on_all_axes_are_one_position() -> None:
    x, positions = torch.randn(4, 1, 16), torch.tensor([0, 3, 50, 700])
    rope = NeoxRope(16, 1e4, sections=(4, 2, 2))
    assert torch.equal(rotate(x, rope(positions)), rotate(x, rope(positions[:, None].expand(-1, 3))))
    assert torch.equal(rope.angles(positions), NeoxRope(16, 1e4).angles(positions))


def test_a_row_turns_one_half_of_the_pairs_and_a_column_the_other() -> None:
    torch.manual_seed(3)
    x, positions = torch.randn(3, 2, 16), torch.tensor([[0, 5], [7, 0], [30, 11]])
    out = rotate(x, AxialRope(16, 1e4)(positions))
    for half, places in enumerate(positions.unbind(1)):
        pairs = [4 * half + i for i in range(4)]
        both = [*pairs, *(pair + 8 for pair in pairs)]
        torch.testing.assert_close(out[..., both], rotate(x[..., both], NeoxRope(8, 1e4)(places)))
