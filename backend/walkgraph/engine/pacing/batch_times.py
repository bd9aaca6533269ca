"""Measured seconds of batches, by kind of work and rows: a batch of several prompts takes longer than one of a single
one. Pure: it sees counts and seconds."""

from collections.abc import Hashable
from math import log2

from walkgraph.engine.pacing.turns import StepTimes

STEPS = 4
"""Sizes to which a doubling of the rows is divided: rows that differ by less than a fifth count as one size."""


class BatchTimes:
    def __init__(self) -> None:
        self._times: dict[Hashable, StepTimes] = {}
        self._sizes: dict[Hashable, list[int]] = {}
        """Kind -> the sizes that were measured, ascending."""

    def note(self, kind: Hashable, rows: int, seconds: float) -> None:
        size, sizes = _size(rows), self._sizes.setdefault(kind, [])
        if size not in sizes:
            sizes[:] = sorted([*sizes, size])
        self._times.setdefault(kind, StepTimes()).note(size, seconds)

    def of(self, kind: Hashable, rows: int) -> float:
        """Seconds of so many rows; 0 if the kind was never measured. Those of a size that was not measured are in
        proportion to the next smaller one's, but no more than the next larger one's."""
        size, sizes = _size(rows), self._sizes.get(kind, [])
        below = max([one for one in sizes if one <= size], default=None)
        above = min([one for one in sizes if one >= size], default=None)
        if below is None and above is None:
            return 0.0
        times = self._times[kind]
        most = float("inf") if above is None else times.of(above)
        return most if below is None else min(most, times.of(below) * 2 ** ((size - below) / STEPS))


def _size(rows: int) -> int:
    return round(STEPS * log2(max(rows, 1)))
