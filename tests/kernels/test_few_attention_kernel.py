"""The attention kernels for few rows, against their plain form."""

from __future__ import annotations

import pytest
import torch

from tests.support.tiles import PAGE, case
from walkgraph.layers.attention.few_attention import plain
from walkgraph.layers.attention.tiles import Tiles, height_of
from walkgraph.layers.kernels.few_attention import launch, splits_of

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("counts", "before", "padding", "heads", "height"),
    [
        # Many splits: spans of one block, and of none.
        ([2, 1], [70, 0], 2, (7, 1, 64), 16),
        # Tiles that the last rows of a sequence don't fill; a block that ends among the new rows.
        ([18, 3], [60, 129], 3, (6, 2, 64), 16),
        ([16], [300], 0, (1, 1, 128), 16),
        # High tiles.
        ([70, 33], [5, 64], 40, (4, 2, 64), 64),
        # One program for all keys of a tile: rows of padding count as tiles, although they have no program.
        ([34, 1], [90, 40], 200, (6, 6, 64), 16),
        ([70, 33], [5, 64], 2000, (4, 2, 64), 64),
    ],
)
def test_it_equals_the_plain_form(
    counts: list[int], before: list[int], padding: int, heads: tuple[int, int, int], height: int, device: str
) -> None:
    made = case(counts, before, padding=padding, heads=heads, dtype=torch.float16, height=height)
    q, k, v = (t.to(device) for t in made[:3])
    rows, lines, pages, _ = made.tiles
    tiles = Tiles(rows.to(device), lines.to(device), pages.to(device), height)
    wanted = plain(q, k, v, tiles, PAGE)
    torch.testing.assert_close(launch(q, k, v, tiles, PAGE), wanted, atol=2e-3, rtol=2e-3)


def test_full_tiles_fill_the_device_once() -> None:
    assert [splits_of(rows, 4, 16) for rows in (16, 32, 64, 128)] == [16, 16, 8, 4]
    assert splits_of(512, 8, 16) == 1
    assert splits_of(512, 4, 64) == 4


def test_high_tiles_share_reads_among_128_query_rows_at_most() -> None:
    assert [height_of(group) for group in (1, 2, 3, 4, 7, 8)] == [128, 64, 32, 32, 16, 16]
