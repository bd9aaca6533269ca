"""A rank's queue, device load, memory and pages at one moment."""

import os
from pathlib import Path
from typing import NamedTuple

import torch

from walkgraph.telemetry.events import NodeFigure

_STATM = Path("/proc/self/statm")


class Gauges(NamedTuple):
    queue: int
    """Calls that wait for a batch, and loops that wait for a slot."""
    busy: float
    """Share of the time since the last gauges in which the rank's device had work, 0 to 1. Measured only while steps
    are timed."""
    memory_used: int
    """Bytes in use on the rank's GPU; on a CPU, by the process."""
    memory_total: int
    pages_free: int
    pages_total: int
    prefix_tokens: int
    """Tokens looked up in the prefix cache since the start."""
    prefix_hits: int
    """Looked-up tokens that it had."""
    figures: tuple[NodeFigure, ...] = ()
    """The figures that operators have counted since the last gauges."""


def memory(device: torch.device) -> tuple[int, int]:
    """Bytes in use, and bytes in all. The figures of a GPU come from the driver, without waiting for a kernel."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total - free, total
    page = os.sysconf("SC_PAGE_SIZE")
    return int(_STATM.read_text().split()[1]) * page, os.sysconf("SC_PHYS_PAGES") * page
