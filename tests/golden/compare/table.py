"""Cases of a comparison, and the table of them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SAME = 0.0
"""Tolerance for ids, sizes and counts."""
FORWARD = 2e-5
"""Tolerance after one forward in float32: sums run in another order."""
DRAWN = 2e-4
"""Tolerance after several steps, each from the one before."""


class Case(NamedTuple):
    name: str
    got: Any
    """Ours: a tensor, an array, or a list of equal shape."""
    wanted: Any
    """The published code's."""
    bar: float = FORWARD

    @property
    def off(self) -> float:
        """For integers the share that differs; otherwise the largest difference divided by the largest wanted number.
        Infinite if shapes differ or a number is NaN."""
        got, wanted = _array(self.got), _array(self.wanted)
        if got.shape != wanted.shape or not wanted.size:
            return float("inf")
        if wanted.dtype.kind in "iub":
            return float((got != wanted).mean())
        off = np.abs(got.astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30)
        return float(off) if np.isfinite(off) else float("inf")


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Sequence) and value and isinstance(value[0], Tensor | np.ndarray):
        return np.stack([_array(one) for one in value])
    return np.asarray(value)


def told(family: str, cases: Iterable[Case]) -> int:
    """Prints a line for each case as it comes; gives how many are above their bars."""
    above = count = 0
    print(f"\n| {family} | off by | bar | |\n|---|---|---|---|", flush=True)
    with torch.inference_mode():
        for case in cases:
            off, count = case.off, count + 1
            above += off > case.bar
            print(f"| {case.name} | {off:.1e} | {case.bar:.0e} | {'' if off <= case.bar else 'ABOVE'} |", flush=True)
    print(f"\n{family}: {count - above} of {count} cases are the published code's", flush=True)
    return above
