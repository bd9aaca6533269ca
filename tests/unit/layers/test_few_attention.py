"""Attention of few new rows over a paged cache, against dense attention over each sequence's own tokens."""

from __future__ import annotations

import pytest
import torch

from tests.support.tiles import Case, case
from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.attention.few_attention import few_attention, supported
from walkgraph.layers.attention.tiles import TILE_ROWS, tiles_of


def dense(case: Case) -> torch.Tensor:
    """Attention of every row, sequence by sequence."""
    out, first = torch.zeros_like(case.q), 0
    for count, before, slots in zip(case.counts, case.before, case.slots, strict=True):
        for i in range(count):
            seen = slots[: before + i + 1]
            out[first + i] = dense_attention(case.q[None, first + i, None], case.k[None, seen], case.v[None, seen])[
                0, 0
            ]
        first += count
    return out


@pytest.mark.parametrize("heads", [(6, 2, 8), (4, 4, 16), (5, 1, 8)], ids=str)
def test_rows_see_their_sequence_up_to_themselves(heads: tuple[int, int, int]) -> None:
    made = case([1, 20, TILE_ROWS, 2 * TILE_ROWS + 1], [0, 37, 16, 5], padding=7, heads=heads, dtype=torch.float32)
    out = few_attention(made.q, made.k, made.v, made.tiles)
    torch.testing.assert_close(out, dense(made), rtol=1e-5, atol=1e-5)
    assert not out[sum(made.counts) :].any()


def test_tiles_are_of_one_sequence() -> None:
    assert tiles_of([TILE_ROWS + 2, 1], [30, 0], [4, 1]) == [
        (0, TILE_ROWS, 30, 0),
        (TILE_ROWS, 2, 30 + TILE_ROWS, 0),
        (TILE_ROWS + 2, 1, 0, 4),
    ]


def test_heads_that_the_kernel_has_no_form_for_are_told() -> None:
    gpu = torch.device("cuda")
    assert supported(gpu, torch.bfloat16, 28, 4, 128)
    assert not supported(gpu, torch.float32, 28, 4, 128)
    assert not supported(gpu, torch.bfloat16, 28, 4, 96)
    assert not supported(gpu, torch.bfloat16, 36, 4, 128)
    assert supported(torch.device("cpu"), torch.float32, 36, 4, 8)
