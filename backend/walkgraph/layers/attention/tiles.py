"""Rows of several sequences as tiles, each of one sequence.

Shape letters: N tiles, P pages of all sequences.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

TILE_ROWS = 16
"""Rows of a tile, at most: so many read a key together."""


class Tile(NamedTuple):
    """Rows of one sequence, one after the other in the launch: a line of `Tiles.lines`."""

    first: int
    """Row of the launch."""
    rows: int
    """0: there is none."""
    before: int
    """Tokens of the sequence before the first row."""
    pages: int
    """Where the sequence's pages begin in `Tiles.pages`."""


class Tiles(NamedTuple):
    """Which rows attend what; int64, on the device."""

    rows: Tensor
    """`[1]`: rows of all tiles; the launch's rows from there on are padding, and get zeros."""
    lines: Tensor
    """`[N, 4]`: numbers of `Tile`."""
    pages: Tensor
    """`[P]`"""


def tiles_of(counts: Sequence[int], before: Sequence[int], pages: Sequence[int]) -> list[Tile]:
    """counts: new rows of each sequence, which follow each other in the launch; before: its tokens before them; pages:
    how many it has in `Tiles.pages`."""
    found: list[Tile] = []
    row = page = 0
    for count, length, held in zip(counts, before, pages, strict=True):
        found += [Tile(row + i, min(TILE_ROWS, count - i), length + i, page) for i in range(0, count, TILE_ROWS)]
        row += count
        page += held
    return found
