"""Availability of FlashInfer's kernels, and their memory needs. Callers import the package themselves."""

import importlib.util
from functools import cache

import torch

GAP = 256
"""Slots of zeros after keys that lie side by side. Kernels that read keys in tiles read past a sequence's end and weigh
those values with 0, so they must not hold another run's infinities or NaNs."""
_HOPPER = 9


@cache
def installed() -> bool:
    return importlib.util.find_spec("flashinfer") is not None


def on_hopper(device: torch.device) -> bool:
    """True if the kernel for Hopper runs on this device."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == _HOPPER
