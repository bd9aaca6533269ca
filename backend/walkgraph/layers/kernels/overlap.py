"""Which devices can start a launch while the one before it ends (programmatic dependent launch)."""

from functools import cache

import torch


@cache
def can_overlap(device: torch.device) -> bool:
    """Compute capability 9 and up; the interpreter has no such thing."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
