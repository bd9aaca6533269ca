"""The attention kernels for few rows, against their plain form."""

from __future__ import annotations

import pytest
import torch

from tests.support.tiles import PAGE, case
from walkgraph.layers.attention.few_attention import plain
from walkgraph.layers.attention.tiles import Tiles
from walkgraph.layers.kernels.few_attention import launch, splits_of

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("counts", "before", "padding", "heads"),
    [
        # Many splits: spans of one block, and of none.
        ([2, 1], [70, 0], 2, (7, 1, 64)),
        # Tiles that the last rows of a sequence don't fill; a block that ends among the new rows.
        ([18, 3], [60, 129], 3, (6, 2, 64)),
        ([16], [300], 0, (1, 1, 128)),
    ],
)
def test_it_equals_the_plain_form(
    counts: list[int], before: list[int], padding: int, heads: tuple[int, int, int], device: str
) -> None:
    made = case(counts, before, padding=padding, heads=heads, dtype=torch.float16)
    q, k, v = (t.to(device) for t in made[:3])
    tiles = Tiles(*(t.to(device) for t in made.tiles))
    wanted = plain(q, k, v, tiles, PAGE)
    torch.testing.assert_close(launch(q, k, v, tiles, PAGE), wanted, atol=2e-3, rtol=2e-3)


def test_full_tiles_fill_the_device_once() -> None:
    assert [splits_of(rows, 4) for rows in (16, 32, 64, 128)] == [16, 16, 8, 4]
    assert splits_of(512, 8) == 1
