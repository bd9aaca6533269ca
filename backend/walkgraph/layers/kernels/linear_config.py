"""Block sizes of streaming linears: measured data, and a rule for shapes that were not measured."""

from dataclasses import dataclass, replace

PARTIAL_BYTES = 16 << 20
"""Bytes of the workspace for the partial sums of a split K, per stream."""
COUNTERS = 16384
"""The most blocks of a split linear."""
ROWS_MAX = 64
VECTOR_MAX = 4
"""The most rows that the vector kernel serves."""


@dataclass(frozen=True, slots=True)
class Config:
    """How one linear is split up. `n` and `k` are a tile's weight rows (gate and up rows counted) and columns."""

    n: int
    k: int
    split: int = 1
    """Programs that share the K of one block of weight rows."""
    warps: int = 4
    stages: int = 4
    """Tiles in flight in shared memory; 1 loads straight into registers."""
    vector: bool = False
    """Multiply and sum instead of the tensor cores; up to `VECTOR_MAX` rows."""
    swap: bool = False
    """The weights are the left operand of the tensor cores."""
    before: bool = False
    """The norm is a separate launch before the product."""
    prefetch: int = 256
    """Columns of every weight row that are prefetched into L2 before waiting for the previous kernel's end."""
    tiles: bool = False
    """Weights come through tensor maps (compute capability 9)."""
    programs: int = 0
    """With `tiles`: programs that share all tiles evenly; 0 gives every block a program of its own."""
    height: int = 0
    """Rows of a tile; 0: the fewest that hold the rows given."""
    pdl: int = 1
    """0: launched after the previous kernel's end; 1: lets the next kernel start once its own wait is over; 2: lets it
    start at once."""


Case = tuple[int, int, bool]
"""(N of the output, K, gated)."""

TABLE: dict[Case, dict[int, Config]] = {
    (5120, 3072, False): {
        1: Config(8, 512, stages=3, vector=True, prefetch=512),
        8: Config(64, 128, stages=5, before=True, tiles=True),
        16: Config(64, 128, stages=5, before=True, prefetch=0, tiles=True, pdl=0),
        32: Config(64, 128, stages=8, before=True, prefetch=0, tiles=True, pdl=0),
        64: Config(64, 128, stages=6, before=True, tiles=True),
    },
    (3072, 3072, False): {
        1: Config(4, 1024, stages=1, vector=True, prefetch=512, pdl=2),
        2: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
        4: Config(64, 128, stages=10, prefetch=512, tiles=True, pdl=2),
        8: Config(64, 128, stages=10, prefetch=1024, tiles=True, pdl=2),
        16: Config(64, 128, split=2, stages=5, swap=True, pdl=2),
        32: Config(64, 128, stages=8, tiles=True),
        64: Config(64, 128, stages=6, prefetch=512, tiles=True, pdl=2),
    },
    (8192, 3072, True): {
        1: Config(8, 512, warps=2, stages=1, vector=True, prefetch=512, pdl=2),
        2: Config(64, 64, stages=8, swap=True, prefetch=0, pdl=0),
        4: Config(64, 64, stages=9, swap=True, prefetch=0, pdl=0),
        16: Config(64, 128, stages=5, tiles=True, pdl=2),
        32: Config(64, 128, swap=True, before=True, prefetch=0),
        64: Config(64, 128, stages=3, swap=True, before=True, prefetch=0, pdl=2),
    },
    (3072, 8192, False): {
        1: Config(2, 1024, warps=2, stages=3, vector=True, prefetch=512, pdl=2),
        4: Config(64, 64, split=4, stages=5, swap=True, prefetch=0),
        16: Config(64, 64, split=4, stages=5, swap=True, prefetch=0, pdl=0),
        32: Config(64, 64, split=2, stages=8, swap=True, prefetch=0, pdl=0),
        64: Config(64, 128, stages=6, prefetch=0, tiles=True, pdl=2),
    },
    (156940, 3072, False): {
        1: Config(8, 512, warps=2, stages=3, vector=True, prefetch=0, pdl=2),
        2: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True, pdl=2),
        4: Config(128, 128, warps=8, stages=3, prefetch=0, tiles=True, pdl=0),
        8: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True, pdl=2),
        16: Config(128, 128, warps=8, stages=3, prefetch=0, tiles=True, pdl=0),
        32: Config(128, 64, warps=8, stages=5, before=True, prefetch=0, tiles=True, pdl=0),
        64: Config(128, 128, before=True, prefetch=0, tiles=True, pdl=2),
    },
    (4608, 3584, False): {
        1: Config(8, 512, stages=3, vector=True, prefetch=0),
        2: Config(64, 128, stages=5, before=True, prefetch=0, tiles=True),
        16: Config(64, 128, stages=5, before=True, tiles=True),
    },
    (3584, 3584, False): {
        1: Config(2, 512, warps=2, stages=1, vector=True, prefetch=0, pdl=0),
        2: Config(64, 128, stages=10, prefetch=0, tiles=True),
        4: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
        8: Config(64, 128, stages=10, prefetch=1024, tiles=True, pdl=2),
        16: Config(64, 128, stages=10, tiles=True),
    },
    (18944, 3584, True): {
        1: Config(8, 512, warps=2, stages=3, vector=True, prefetch=0, pdl=0),
        4: Config(256, 64, stages=3, before=True, prefetch=0, tiles=True),
        6: Config(256, 64, stages=3, before=True, prefetch=0, tiles=True, pdl=0),
        16: Config(256, 64, stages=3, before=True, prefetch=0, tiles=True),
    },
    (3584, 18944, False): {
        1: Config(16, 512, stages=3, vector=True, prefetch=0),
        2: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
        6: Config(64, 128, stages=10, prefetch=0, tiles=True),
        16: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
    },
    (152064, 3584, False): {
        1: Config(8, 512, warps=2, stages=3, vector=True, prefetch=0),
        4: Config(128, 128, warps=8, stages=3, before=True, tiles=True),
        6: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True),
        8: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True, pdl=0),
        16: Config(128, 128, warps=8, stages=3, before=True, tiles=True),
    },
    (6144, 4096, False): {
        1: Config(8, 1024, stages=1, vector=True, prefetch=0, pdl=2),
        8: Config(64, 128, stages=5, before=True, tiles=True),
        16: Config(64, 128, stages=5, before=True, prefetch=0, tiles=True, pdl=0),
        32: Config(64, 128, stages=8, before=True, prefetch=0, tiles=True, pdl=0),
        64: Config(64, 128, stages=6, before=True, tiles=True),
    },
    (4096, 4096, False): {
        1: Config(2, 1024, warps=2, stages=1, vector=True, prefetch=0, pdl=2),
        4: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
        8: Config(64, 128, split=4, stages=5, swap=True),
        16: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
        32: Config(64, 128, stages=8, tiles=True),
        64: Config(32, 128, stages=8, tiles=True),
    },
    (12288, 4096, True): {
        1: Config(8, 1024, stages=1, vector=True, prefetch=0, pdl=2),
        2: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True, pdl=2),
        8: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True),
        16: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True, pdl=0),
        32: Config(128, 128, stages=5, before=True, prefetch=0, tiles=True),
        64: Config(128, 64, before=True, prefetch=0, tiles=True),
    },
    (4096, 12288, False): {
        1: Config(2, 1024, warps=2, stages=1, vector=True, prefetch=0),
        16: Config(64, 128, stages=10, prefetch=0, tiles=True, pdl=0),
        32: Config(64, 128, stages=8, prefetch=0, tiles=True, pdl=0),
        64: Config(32, 128, stages=8, prefetch=1024, tiles=True, pdl=2),
    },
    (151936, 4096, False): {
        1: Config(8, 1024, stages=3, vector=True, prefetch=0),
        2: Config(128, 128, stages=3, prefetch=0, tiles=True),
        4: Config(128, 128, warps=8, stages=3, before=True, prefetch=0, tiles=True, pdl=2),
        8: Config(128, 128, stages=3, prefetch=0, tiles=True),
        16: Config(128, 128, warps=8, stages=3, before=True, tiles=True),
        32: Config(128, 128, stages=5, before=True, prefetch=0, tiles=True, pdl=2),
        64: Config(128, 128, before=True, prefetch=0, tiles=True),
    },
    (5120, 2048, False): {
        1: Config(8, 1024, stages=3, vector=True, prefetch=0, pdl=2),
        2: Config(64, 128, stages=5, before=True, prefetch=0, tiles=True, pdl=2),
        8: Config(64, 128, stages=5, before=True, tiles=True),
        16: Config(64, 128, stages=5, before=True, prefetch=512, tiles=True, pdl=2),
        32: Config(64, 128, stages=8, before=True, prefetch=512, tiles=True, pdl=2),
        64: Config(64, 128, stages=6, before=True, prefetch=0, tiles=True, pdl=0),
    },
    (2048, 4096, False): {
        1: Config(2, 1024, stages=1, vector=True, prefetch=0, pdl=2),
        2: Config(64, 128, split=4, stages=5, swap=True, prefetch=0),
        8: Config(64, 128, split=4, stages=5, swap=True, prefetch=0, pdl=0),
        16: Config(64, 64, split=4, stages=8, swap=True, prefetch=512, pdl=2),
        32: Config(64, 128, split=4, swap=True, prefetch=0),
        64: Config(32, 128, stages=8, prefetch=1024, tiles=True, pdl=2),
    },
    (128, 2048, False): {
        1: Config(2, 1024, stages=1, vector=True, prefetch=1024),
        4: Config(2, 512, stages=1, vector=True, prefetch=1024),
        32: Config(16, 128, split=8, stages=2),
        64: Config(16, 128, split=16, stages=1, prefetch=128),
    },
    (151936, 2048, False): {
        1: Config(128, 128, stages=3, prefetch=0, tiles=True, pdl=2),
        2: Config(128, 128, warps=8, stages=3, before=True, prefetch=0, tiles=True, pdl=0),
        8: Config(128, 128, warps=8, stages=3, before=True, prefetch=0, tiles=True, pdl=2),
        16: Config(128, 128, stages=3, before=True, prefetch=0, tiles=True),
        32: Config(128, 128, stages=5, before=True, prefetch=0, tiles=True),
        64: Config(128, 128, before=True, prefetch=0, tiles=True, pdl=2),
    },
    (4096, 1024, False): {
        1: Config(4, 1024, warps=2, stages=1, vector=True, prefetch=16384, pdl=2),
        16: Config(64, 128, stages=5, before=True, prefetch=512, tiles=True, pdl=2),
        32: Config(64, 128, before=True, tiles=True),
    },
    (1024, 2048, False): {
        1: Config(2, 1024, stages=1, vector=True, prefetch=0),
        16: Config(64, 64, split=4, stages=8, swap=True, prefetch=512),
        32: Config(64, 128, split=4, swap=True, prefetch=1024, pdl=2),
    },
    (3072, 1024, True): {
        1: Config(4, 1024, stages=1, vector=True, prefetch=0, pdl=2),
        16: Config(64, 64, stages=8, swap=True),
        32: Config(128, 128, stages=5, before=True, prefetch=512, tiles=True, pdl=2),
    },
    (1024, 3072, False): {
        1: Config(2, 1024, stages=1, vector=True, prefetch=16384),
        16: Config(64, 128, split=4, stages=5, swap=True, prefetch=512, pdl=2),
        32: Config(64, 64, split=4, stages=8, swap=True, prefetch=512, pdl=2),
    },
    (2048, 1024, False): {
        1: Config(4, 1024, stages=3, vector=True, prefetch=512, pdl=2),
        16: Config(64, 128, split=4, stages=5, swap=True, prefetch=0, pdl=0),
        32: Config(64, 128, split=4, swap=True, prefetch=0, pdl=2),
    },
    (2560, 1024, False): {
        1: Config(4, 1024, stages=1, vector=True),
        16: Config(64, 128, stages=5, before=True, prefetch=1024, tiles=True, pdl=2),
        32: Config(64, 128, stages=8, before=True, prefetch=1024, tiles=True, pdl=2),
    },
    (768, 1024, True): {
        1: Config(4, 1024, stages=1, vector=True),
        16: Config(64, 64, stages=8, swap=True, prefetch=1024),
        32: Config(128, 128, stages=5, before=True, prefetch=512, tiles=True, pdl=2),
    },
    (1024, 768, False): {
        1: Config(4, 256, stages=1, vector=True),
        16: Config(64, 128, stages=5, swap=True, prefetch=1024, pdl=2),
        32: Config(64, 64, stages=8, swap=True, prefetch=512, pdl=2),
    },
    (128, 1024, False): {
        1: Config(2, 1024, stages=1, vector=True, prefetch=1024),
        4: Config(2, 512, stages=1, vector=True, prefetch=1024),
        64: Config(16, 128, split=8, stages=1, prefetch=128),
    },
    (3072, 1024, False): {
        1: Config(4, 1024, stages=1, vector=True),
        16: Config(64, 64, split=4, stages=8, swap=True, prefetch=1024, pdl=2),
        32: Config(128, 128, stages=5, before=True, prefetch=0, tiles=True, pdl=2),
    },
}
"""Measured on an H200: case -> largest row count served -> config. In a decode step of such linears, overlapping
launches are faster for one row and slower for more."""


def padded(rows: int, vector: bool) -> int:
    """Rows of the tile that holds `rows` rows."""
    sizes = (1, 2, 4) if vector else (16, 32, 64)
    return next(size for size in sizes if rows <= size)


def tile_rows(config: Config, rows: int) -> int:
    """Rows of the tile that holds `rows` rows under this config."""
    return config.height or padded(rows, config.vector)


def fits(config: Config, rows: int, n: int, k: int, gated: bool) -> bool:
    """True if the kernels can run a linear with this config: whole tiles of K, and enough memory for the partial
    sums."""
    if k % (config.k * config.split) or (config.vector and rows > VECTOR_MAX):
        return False
    blocks = -(-n * (2 if gated else 1) // config.n)
    if config.tiles:
        return _fits_tiles(config, rows, blocks, k // config.k, gated)
    if config.split == 1:
        return True
    tile = tile_rows(config, rows) * (config.n + 1) * 4
    return blocks <= COUNTERS and blocks * config.split * tile <= PARTIAL_BYTES


def _fits_tiles(config: Config, rows: int, blocks: int, steps: int, gated: bool) -> bool:
    if not config.programs:
        return config.split == 1
    share = tile_rows(config, rows) * (config.n + 1) * 4
    return (
        not gated
        and config.split == 1
        and blocks <= config.programs <= blocks * steps
        and blocks <= COUNTERS
        and 2 * config.programs * share <= PARTIAL_BYTES
    )


def choose(rows: int, n: int, k: int, gated: bool) -> Config | None:
    """The measured config, or a guess for other shapes; None if K has no whole tiles."""
    for most, config in sorted(TABLE.get((n, k, gated), {}).items()):
        if rows <= most:
            return config
    return _guess(rows, n, k, gated)


def choose_alike(n: int, k: int, gated: bool) -> Config | None:
    """One config for any number of rows, in tiles of one height: equal rows give equal bits whatever rows are beside
    them."""
    config = choose(ROWS_MAX, n, k, gated)
    return None if config is None else replace(config, height=ROWS_MAX)


def _guess(rows: int, n: int, k: int, gated: bool) -> Config | None:
    width = n * (2 if gated else 1)
    if rows == 1:
        wanted = Config(n=4 if width < 8192 else 8, k=1024, warps=4, stages=1, vector=True)
    elif rows <= 16:
        wanted = Config(n=32, k=128, warps=4, stages=5)
    elif rows <= 32:
        wanted = Config(n=64, k=128, warps=4, stages=4, before=True)
    else:
        wanted = Config(n=64 if width < 8192 else 128, k=64, warps=4, stages=5, before=True)
    while k % wanted.k:
        wanted = replace(wanted, k=wanted.k // 2)
        if wanted.k < 16:
            return None
    blocks = -(-width // wanted.n)
    while not wanted.vector and blocks * wanted.split < 264:
        more = replace(wanted, split=wanted.split * 2)
        if more.split > 8 or not fits(more, rows, n, k, gated):
            break
        wanted = more
    return wanted
