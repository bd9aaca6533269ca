"""A tally: numbers that work on a device counts as it goes, such as the experts of a step, for telemetry.

It is int64 `[3]`: how many numbers were counted, their sum, and the largest. Kernels count in the launch that has the
number anyway. Nothing here is read on the host.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Tallied(NamedTuple):
    """The numbers of a tally."""

    count: int
    total: int
    most: int


def tally(device: torch.device) -> Tensor:
    return torch.zeros(len(Tallied._fields), dtype=torch.int64, device=device)


def tally_up(into: Tensor, number: int) -> None:
    """Count a number that the host has: the plain form of what kernels do."""
    into[:2] += torch.tensor([1, number], device=into.device)
    into[2].clamp_(min=number)
