"""Sinusoids at values worked out by hand."""

import math

import pytest
import torch

from walkgraph.layers.positions import GridPositions, TimeEmbedding, sincos_grid, time_sinusoid


def test_first_half_of_a_grid_position_is_its_column() -> None:
    table = sincos_grid(4, 16).view(4, 4, 16)
    assert torch.equal(table[0, 2, :8], table[3, 2, :8])
    assert torch.equal(table[2, 0, 8:], table[2, 3, 8:])
    assert not torch.equal(table[0, 1, :8], table[0, 2, :8])


def test_grid_positions_are_sines_then_cosines_per_axis() -> None:
    row, column = 3, 1
    got = sincos_grid(4, 16)[row * 4 + column].tolist()
    rates = [10_000 ** (-i / 4) for i in range(4)]
    want = [f(at * rate) for at in (column, row) for f in (math.sin, math.cos) for rate in rates]
    assert got == pytest.approx(want, abs=1e-6)


def test_time_has_cosines_first_and_is_not_scaled() -> None:
    got = time_sinusoid(torch.tensor([0.0, 0.75]), 256)
    assert got[0].tolist() == [1.0] * 128 + [0.0] * 128
    rate = 10_000 ** (-5 / 128)
    assert float(got[1, 5]) == pytest.approx(math.cos(0.75 * rate), abs=1e-6)
    assert float(got[1, 133]) == pytest.approx(math.sin(0.75 * rate), abs=1e-6)


def test_time_embedding_is_linear_silu_linear() -> None:
    torch.manual_seed(0)
    embed, t = TimeEmbedding(6), torch.tensor([0.3])
    first, second = embed.mlp[0], embed.mlp[2]
    hidden = time_sinusoid(t, 256) @ first.weight.T + first.bias
    torch.testing.assert_close(embed(t), (hidden * hidden.sigmoid()) @ second.weight.T + second.bias)
    names = [name for name, _ in embed.named_parameters()]
    assert names == [f"mlp.{i}.{p}" for i in (0, 2) for p in ("weight", "bias")]


def test_a_table_is_frozen_and_can_be_built_on_meta() -> None:
    with torch.device("meta"):
        table = GridPositions(3, 8)
    assert table.pos_embed.device.type == "meta"
    assert not table.pos_embed.requires_grad
    assert GridPositions(3, 8)(torch.tensor([4, 4])).shape == (2, 8)
