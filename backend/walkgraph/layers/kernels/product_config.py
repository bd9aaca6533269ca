"""How a product of many rows is cut, where that is faster than the library: data that was measured."""

from dataclasses import dataclass

PARTIAL_BYTES = 32 << 20
"""Of the workspace for the partial sums of a split K, per device."""
COUNTERS = 4096
"""Tiles of a product with a split K at most."""
TAIL = 16
"""Rows past the last whole tile that ride with it, at most."""
PROCESSORS = 132
"""Multiprocessors of the device that the cuts are made for."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Tiles of `m` rows and `n` columns, in steps of `k`."""

    m: int
    n: int
    k: int = 64
    split: int = 1
    """Programs that share the K of one tile."""
    warps: int = 4
    stages: int = 4
    """Steps under way in shared memory."""
    swap: bool = False
    """The weights are the left operand of the tensor cores."""
    tail: bool = True
    """A few rows past the last whole tile are multiplied by the programs of that tile, while its weights lie there."""
    ahead: bool = True
    """Weights are asked into L2 before the previous kernel's end is awaited."""
    stays: bool = False
    """Programs stay on their multiprocessor and take tile after tile: for thousands of rows."""
    group: int = 16
    """With `stays`: tiles of rows that go through the columns together."""
    pdl: int = 1
    """0: launched when the previous kernel has ended; 1: lets the next kernel start once its own wait is over."""


def tail_of(cut: Cut, rows: int) -> int:
    """Rows of the tile that rides with the last whole one: 0 where there is none."""
    return TAIL if cut.tail and not cut.stays and rows > cut.m and 0 < rows % cut.m <= TAIL else 0


def tiles_of(cut: Cut, rows: int, n: int) -> tuple[int, int]:
    """Tiles down and across."""
    down = rows // cut.m if tail_of(cut, rows) else -(-rows // cut.m)
    return down, -(-n // cut.n)


def fits(cut: Cut, rows: int, n: int, k: int) -> bool:
    """Whether there is room for the partial sums, and work for every program."""
    if cut.stays or cut.split == 1:
        return True
    down, across = tiles_of(cut, rows, n)
    share = (cut.m + tail_of(cut, rows)) * cut.n * 4
    whole = -(-k // cut.k) >= cut.split
    return whole and down * across <= COUNTERS and down * across * cut.split * share <= PARTIAL_BYTES


Case = tuple[int, int]
"""(N, K)."""

_ANY = 1 << 30
_SIGLIP = ((3456, 1152), (1152, 1152), (4304, 1152), (1152, 4304))
_GEMMA = ((2560, 2048), (512, 2048), (2048, 2048), (2048, 16384))
TABLE: dict[Case, dict[int, Cut]] = {(3456, 1152): {256: Cut(64, 128)}}
"""Measured on an H200: case -> largest rows served -> cut. Elsewhere the library's product is faster."""

PLACED: dict[Case, dict[int, Cut]] = {}
"""Likewise, of products that are placed: there it is slower to write them and read them again."""

STAYS = Cut(128, 256, warps=8, stages=3, stays=True)
ALIKE = Cut(128, 128, warps=8, tail=False)
"""Of any number of rows, where a row must get the same sums among any others."""


def choose(rows: int, n: int, k: int, table: dict[Case, dict[int, Cut]] = TABLE, *, alike: bool = False) -> Cut | None:
    """The measured cut; None: the library's product."""
    if alike:
        return ALIKE
    return next((cut for most, cut in sorted(table.get((n, k), {}).items()) if rows <= most), None)
