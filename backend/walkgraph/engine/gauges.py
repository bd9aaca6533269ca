"""What a rank has to do, and to do it with, at a moment."""

import os
from pathlib import Path
from typing import NamedTuple

import torch

_STATM = Path("/proc/self/statm")


class Gauges(NamedTuple):
    queue: int
    """Calls and loops that wait for a batch or a row."""
    busy: float
    """Share of the time since the last gauges in which the rank's device had work, 0 to 1; only told while steps are
    timed."""
    memory_used: int
    """Bytes in use on the rank's GPU; on a CPU, of the process."""
    memory_total: int
    pages_free: int
    pages_total: int
    prefix_tokens: int
    """Tokens that were looked up since the start, and of these found kept:"""
    prefix_hits: int


def memory(device: torch.device) -> tuple[int, int]:
    """Bytes in use and there are. On a GPU the driver is asked, which waits for no kernel."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total - free, total
    page = os.sysconf("SC_PAGE_SIZE")
    return int(_STATM.read_text().split()[1]) * page, os.sysconf("SC_PHYS_PAGES") * page
