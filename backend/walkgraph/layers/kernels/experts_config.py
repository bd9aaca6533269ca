"""The tiles that a step of a mixture of experts is cut into, measured for known shapes and guessed for others."""

from typing import NamedTuple

MOST_ROWS = 64


class Blocks(NamedTuple):
    """Tiles of weights. The depths of all entries of one shape are equal, as they decide the order of sums."""

    inner: int
    """Gate rows of a tile, and as many up rows."""
    outer: int
    """Down rows of a tile."""
    depth: int
    """Columns of gate and up that are multiplied at once."""
    outer_depth: int
    inner_stages: int = 4
    outer_stages: int = 4
    inner_warps: int = 4
    outer_warps: int = 4
    inner_sharing: int = 2
    """Programs of a processor, which share the tiles; 0: a program for each tile."""
    outer_sharing: int = 2


TABLE: dict[tuple[int, int, bool], dict[int, Blocks]] = {
    (1024, 384, False): {
        1: Blocks(64, 64, 128, 128, inner_sharing=0, outer_sharing=0),
        16: Blocks(64, 64, 128, 128, inner_sharing=0),
        32: Blocks(64, 64, 128, 128, 4, 3, outer_warps=8, inner_sharing=0),
    },
    (2048, 768, False): {
        1: Blocks(64, 128, 128, 128, 6, 3, inner_sharing=0, outer_sharing=1),
        8: Blocks(64, 64, 128, 128, inner_warps=8),
        16: Blocks(64, 64, 128, 128, 3, 5),
        32: Blocks(64, 64, 128, 128, 6, 4, outer_warps=8, inner_sharing=0),
        64: Blocks(64, 128, 128, 128, 5, 3, inner_sharing=0, outer_sharing=0),
    },
    (2048, 768, True): {
        8: Blocks(64, 128, 128, 128, 5, 3),
        16: Blocks(64, 64, 128, 128, outer_sharing=3),
        32: Blocks(64, 64, 128, 128, 3, 4, inner_sharing=0, outer_sharing=3),
        64: Blocks(64, 128, 128, 128, 6, 6, inner_sharing=0, outer_sharing=0),
    },
}
"""(model width, hidden width, whether weights have eight bits) -> the most rows served -> measured tiles. Other shapes
get a guess."""


class Sizes(NamedTuple):
    """The sizes of a step."""

    rows: int
    width: int
    hidden: int
    experts: int
    chosen: int
    eight: bool = False
    """Weights have eight bits."""
    alike: bool = False
    """The same tiles for any number of rows: with others, the tensor cores may sum in another order."""

    @property
    def pairs(self) -> int:
        return self.rows * self.chosen

    @property
    def groups(self) -> int:
        """The most experts that the rows can choose together."""
        return min(self.experts, self.pairs)

    @property
    def blocks(self) -> Blocks:
        return blocks_of(MOST_ROWS if self.alike else self.rows, self.width, self.hidden, eight=self.eight)


def blocks_of(rows: int, width: int, hidden: int, *, eight: bool = False) -> Blocks:
    """The measured tiles, or a guess: few rows get small tiles, so that enough programs read at the same time."""
    for most, blocks in sorted(TABLE.get((width, hidden, eight), {}).items()):
        if rows <= most:
            return blocks
    few = rows <= 2
    return Blocks(
        inner=_divisor(hidden, 16 if few else 32),
        outer=_divisor(width, 32 if few else 64),
        depth=_divisor(width, 128),
        outer_depth=_divisor(hidden, 128),
    )


def _divisor(of: int, most: int) -> int:
    """The largest power of two up to `most` that divides a multiple of 16."""
    return min(most, of & -of)
