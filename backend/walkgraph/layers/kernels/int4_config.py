"""The division of products with weights in four bits, by a rule that no GPU has measured yet."""

from dataclasses import dataclass

from walkgraph.layers.kernels.gpu import Gpu
from walkgraph.layers.kernels.linear_config import COUNTERS, PARTIAL_BYTES

GROUP = 128
"""Columns of a weight that share a scale; a program takes one group after the other."""
ROWS_MAX = 64
"""The most rows whose product is bound by reading the weights, and whose K may be split."""
_SPLITS = (8, 4, 2)
_SPARE = 4 << 10
"""Bytes of shared memory that are left for what the compiler exchanges among warps."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The tiles of one product."""

    m: int
    """Rows of a tile."""
    n: int
    """Rows of weights of a block; gate and up rows counted."""
    split: int = 1
    """Programs that share the K of a tile."""
    warps: int = 4
    stages: int = 4
    """Groups in flight in shared memory."""

    @property
    def stage_bytes(self) -> int:
        """Bytes of one group of a tile: the rows in two bytes, the weights in half a byte."""
        return self.m * GROUP * 2 + self.n * GROUP // 2


def choose(rows: int, height: int, k: int, gpu: Gpu) -> Cut:
    """`height`: all rows of the weight, gate and up counted. K is a multiple of `GROUP`."""
    if rows > ROWS_MAX:
        wide = Cut(m=128 if rows > 256 else 64, n=128, warps=8, stages=3)
        return _within(wide, gpu)
    m = next(size for size in (16, 32, 64) if rows <= size)
    cut = _within(Cut(m=m, n=64, warps=4, stages=5), gpu)
    blocks, groups = -(-height // cut.n), k // GROUP
    # Two programs for each processor hide the time of a load.
    wanted = 2 * gpu.processors // blocks
    for split in _SPLITS:
        partial = blocks * split * m * (cut.n + 1) * 4
        if split <= wanted and groups % split == 0 and blocks <= COUNTERS and partial <= PARTIAL_BYTES:
            return Cut(m=cut.m, n=cut.n, split=split, warps=cut.warps, stages=cut.stages)
    return cut


def _within(cut: Cut, gpu: Gpu) -> Cut:
    """The cut with as many stages as the GPU's shared memory holds, at least two."""
    stages = max(2, min(cut.stages, (gpu.shared - _SPARE) // cut.stage_bytes))
    return Cut(m=cut.m, n=cut.n, split=cut.split, warps=cut.warps, stages=stages)
