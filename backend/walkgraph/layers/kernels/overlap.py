"""Devices that can start a launch while the previous one ends (programmatic dependent launch)."""

from functools import cache

import torch


@cache
def can_overlap(device: torch.device) -> bool:
    """True for compute capability 9 and above; the interpreter has no such launches."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
