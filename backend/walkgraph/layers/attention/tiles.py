"""Rows of several sequences as tiles, each of one sequence.

Shape letters: N tiles, P pages of all sequences.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

TILE_ROWS = 16
"""The most rows of a tile where there are few; they share each read of a key."""
_PRODUCT = 128
"""Rows of a tile times query heads of a key head, from which on a read of a key is shared by enough."""


class Tile(NamedTuple):
    """Consecutive rows of one sequence in a launch: a line of `Tiles.lines`."""

    first: int
    """Index of its first row in the launch."""
    rows: int
    """0 for an unused tile."""
    before: int
    """Tokens of the sequence before the first row."""
    pages: int
    """Index of the sequence's first page in `Tiles.pages`."""


class Tiles(NamedTuple):
    """The attention of rows by tiles; int64, on the device."""

    rows: Tensor
    """`[1]`: rows of all tiles; the launch's rows from there on are padding, and get zeros."""
    lines: Tensor
    """`[N, 4]`: numbers of `Tile`."""
    pages: Tensor
    """`[P]`"""
    height: int = TILE_ROWS
    """The most rows of a tile: 16 times a power of two."""


def height_of(group: int) -> int:
    """The most rows of a tile where there are many. `group`: query heads of a key head."""
    return max(TILE_ROWS, _PRODUCT // (1 << (group - 1).bit_length()))


def tiles_of(counts: Sequence[int], before: Sequence[int], pages: Sequence[int], height: int = TILE_ROWS) -> list[Tile]:
    """counts: new rows of each sequence, consecutive in the launch; before: its tokens before them; pages: its number
    of pages in `Tiles.pages`; height: the most rows of a tile."""
    found: list[Tile] = []
    row = page = 0
    for count, length, held in zip(counts, before, pages, strict=True):
        found += [Tile(row + i, min(height, count - i), length + i, page) for i in range(0, count, height)]
        row += count
        page += held
    return found
