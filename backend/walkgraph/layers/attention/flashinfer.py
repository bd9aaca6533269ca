"""Whether FlashInfer's kernels can be used, and what they ask of memory; who calls them imports the package."""

import importlib.util
from functools import cache

import torch

GAP = 256
"""Slots of zeros behind keys that lie side by side. Kernels that read them in tiles read past a sequence's end and give
those values the weight 0, which must not meet the infinities or NaNs of another run."""
_HOPPER = 9


@cache
def installed() -> bool:
    return importlib.util.find_spec("flashinfer") is not None


def on_hopper(device: torch.device) -> bool:
    """Whether the kernel for Hopper runs there."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == _HOPPER
