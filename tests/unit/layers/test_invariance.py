"""Rows alone and among others, on the CPU."""

from __future__ import annotations

import pytest
import torch

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.step_attention import step_attention
from walkgraph.layers.invariance import batch_invariant, is_batch_invariant
from walkgraph.layers.kernels.linear_config import TABLE, choose, choose_alike, fits, tile_rows
from walkgraph.layers.linear.step_linear import linear

torch.set_num_threads(1)


def test_it_holds_within_its_block_alone() -> None:
    def failing() -> None:
        with batch_invariant():
            assert is_batch_invariant()
            with batch_invariant(False):
                assert not is_batch_invariant()
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert not is_batch_invariant()


@pytest.mark.parametrize("case", [*TABLE, (96, 80, True), (4096, 1024, False)])
def test_every_number_of_rows_has_one_config(case: tuple[int, int, bool]) -> None:
    config = choose_alike(*case)
    assert config is not None
    assert {tile_rows(config, rows) for rows in range(1, 65)} == {64}
    assert all(fits(config, rows, *case) for rows in range(1, 65))
    assert choose(1, *case) != config


def test_a_width_without_tiles_has_no_config() -> None:
    assert choose_alike(64, 40, False) is None


@pytest.mark.parametrize("options", [{}, {"norm": True, "gated": True}, {"norm": True, "residual": True}])
def test_a_linear_gives_a_row_what_it_gives_it_alone(options: dict[str, bool]) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(33, 515, generator=generator)
    weight = torch.randn(2 * 77, 515, generator=generator)
    more = {"norm": torch.rand(515, generator=generator)} if options.get("norm") else {}
    residual = torch.randn(33, 2 * 77, generator=generator) if options.get("residual") else None

    def given(first: int, last: int) -> torch.Tensor:
        of = None if residual is None else residual[first:last]
        return linear(x[first:last], weight, gated=options.get("gated", False), residual=of, **more)

    with batch_invariant():
        together = given(0, 33)
        for row in range(33):
            assert torch.equal(given(row, row + 1)[0], together[row])
        assert torch.equal(given(5, 21), together[5:21])
    torch.testing.assert_close(given(0, 33), together, atol=1e-3, rtol=1e-3)


def test_attention_gives_a_row_what_it_gives_it_alone() -> None:
    heads, groups, width, page = 6, 2, 8, 16
    lengths = torch.tensor([3, 40, 0, 95, 16], dtype=torch.int32)
    generator = torch.Generator().manual_seed(2)
    pages = torch.randperm(35, generator=generator).view(5, 7).int()
    k, v = torch.randn(2, 35 * page, groups, width, generator=generator)
    qkv = torch.randn(5, (heads + 2 * groups) * width, generator=generator)
    frequencies = 1 / 100.0 ** (torch.arange(0, width, 2) / width)

    def given(rows: list[int]) -> torch.Tensor:
        at = torch.tensor(rows, dtype=torch.int32)
        table = PagedRows(at, pages, lengths, lengths)
        return step_attention(qkv[rows], k.clone(), v.clone(), table, frequencies, heads)

    with batch_invariant():
        together = given([0, 1, 2, 3, 4])
        for row in range(5):
            assert torch.equal(given([row])[0], together[row])
    torch.testing.assert_close(given([0, 1, 2, 3, 4]), together)
