"""Tile sizes of the products of modulated rows: measured data, and a rule for shapes that were not measured."""

from dataclasses import dataclass, replace

from walkgraph.layers.kernels.linear_config import COUNTERS, PARTIAL_BYTES


@dataclass(frozen=True, slots=True)
class Cut:
    """How one product is cut into programs."""

    rows: int = 64
    """Rows of a tile: the least that Hopper's products support."""
    columns: int = 64
    """Weight rows of a tile, counting both halves if it has two."""
    depth: int = 64
    split: int = 1
    """Programs that share the depth of one tile."""
    stages: int = 4
    ahead: int = 0
    """Columns of every weight row that are prefetched into L2 before waiting for the previous launch's end."""
    overlap: int = 1
    """0: launched after the previous launch's end; 1: lets the next one start once its own wait is over; 2: lets it
    start at once."""
    early: bool = False
    """A program's weights are loaded whole before waiting for the previous launch's end; `depth` covers all of its
    part."""
    library: bool = False
    """The product is torch's, followed by a launch of its own; `rows` and `columns` describe that launch."""


Case = tuple[int, int, int]
"""(weight rows, depth, height of a half: 0 if a tile has none)."""

TABLE: dict[Case, dict[int, Cut]] = {
    (2560, 1024, 128): {
        64: Cut(columns=32, depth=1024, stages=2, early=True),
        128: Cut(depth=128, stages=3),
        256: Cut(depth=128, stages=3),
        512: Cut(rows=8, columns=256, overlap=0, library=True),
    },
    (1024, 2048, 0): {
        64: Cut(columns=32, depth=1024, split=2, stages=2, overlap=2, early=True),
        128: Cut(columns=32, depth=128, split=2),
        256: Cut(depth=128, split=2, stages=3, overlap=0),
        512: Cut(rows=16, library=True),
    },
    (8192, 1024, 4096): {
        64: Cut(depth=128, stages=6, ahead=1024),
        128: Cut(columns=128, ahead=256),
        256: Cut(rows=16, columns=128, overlap=2, library=True),
        512: Cut(rows=8, columns=256, library=True),
    },
    (1024, 4096, 0): {
        64: Cut(columns=32, depth=1024, split=4, stages=2, overlap=2, early=True),
        128: Cut(split=4, stages=6),
        256: Cut(split=2, stages=6),
        512: Cut(rows=16, library=True),
    },
}
"""Case -> largest row count served -> the fastest cut in whole steps on an H200, of 1, 2, 4 and 8 blocks of 50 rows."""

_PROGRAMS = 132


def fits(cut: Cut, rows: int, case: Case) -> bool:
    """True if a product can be cut like this: whole tiles of weight rows and of depth, and enough memory for a split's
    sums."""
    width, depth, height = case
    own = cut.columns // 2 if height else cut.columns
    if (height or width) % own or depth % (cut.depth * cut.split):
        return False
    if cut.library:
        return cut.split == 1
    if cut.early and cut.depth * cut.split != depth:
        return False
    tiles = width // cut.columns * -(-rows // cut.rows)
    if cut.split == 1:
        return True
    return tiles <= COUNTERS and tiles * cut.split * cut.rows * cut.columns * 4 <= PARTIAL_BYTES


def choose(rows: int, case: Case, *, alike: bool = False) -> Cut | None:
    """The measured cut, or a guess; None without whole tiles. `alike`: a row gets the same numbers as alone, which
    neither the library's products nor sums split by the number of rows give."""
    if alike:
        return _whole(Cut(columns=128), rows, case)
    for most, cut in sorted(TABLE.get(case, {}).items()):
        if rows <= most:
            return cut if fits(cut, rows, case) else None
    return _guess(rows, case)


def _whole(cut: Cut, rows: int, case: Case) -> Cut | None:
    """Try narrower and shallower tiles until they are whole."""
    while not fits(cut, rows, case):
        if cut.columns > 32:
            cut = replace(cut, columns=cut.columns // 2)
        elif cut.depth > 16:
            cut = replace(cut, depth=cut.depth // 2)
        else:
            return None
    return cut


def _guess(rows: int, case: Case) -> Cut | None:
    """As many programs as there are processors, first by narrow tiles and then by splits."""
    width, depth, _ = case
    down = -(-rows // Cut().rows)
    cut = _whole(Cut(columns=128 if down > 2 else 64), rows, case)
    if cut is None:
        return None
    if width // cut.columns * down < _PROGRAMS // 2 and cut.columns == 64:
        narrow = replace(cut, columns=32)
        cut = narrow if fits(narrow, rows, case) else cut
    while width // cut.columns * down * cut.split < _PROGRAMS * 3 // 4 and cut.split < 8:
        more = replace(cut, split=cut.split * 2)
        if not fits(more, rows, case) or depth // more.split < 2 * cut.depth:
            break
        cut = more
    if down == 1:
        cut = replace(cut, ahead=depth // cut.split)
    return cut
