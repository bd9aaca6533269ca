"""The GPU that kernels are compiled for: its compute capability, processors and shared memory, by which a kernel's cut
is chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from triton import knobs
from triton.runtime import driver


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that decide how its kernels are cut."""

    capability: tuple[int, int]
    processors: int
    shared: int
    """Bytes of shared memory that one block can have."""


KINDS: Mapping[str, Gpu] = {
    "A100": Gpu((8, 0), 108, 163 << 10),
    "RTX 3090": Gpu((8, 6), 82, 99 << 10),
    "L40S": Gpu((8, 9), 142, 99 << 10),
    "RTX 4090": Gpu((8, 9), 128, 99 << 10),
    "H100": Gpu((9, 0), 132, 227 << 10),
    "B200": Gpu((10, 0), 148, 227 << 10),
    "RTX 5090": Gpu((12, 0), 170, 99 << 10),
}
"""Common GPUs, by NVIDIA's figures. An H200 has the processors of an H100."""


INTERPRETED = Gpu((0, 0), 132, 227 << 10)
"""Stands for a GPU in Triton's interpreter, which has no special instructions and any memory."""


def present() -> Gpu:
    """The current GPU, as Triton's driver describes it."""
    if knobs.runtime.interpret:
        return INTERPRETED
    active: Any = driver.active
    return _described(active, active.get_current_device())


@cache
def _described(active: Any, device: int) -> Gpu:
    properties = active.utils.get_device_properties(device)
    return Gpu(
        divmod(active.get_current_target().arch, 10), properties["multiprocessor_count"], properties["max_shared_mem"]
    )


def is_compiled() -> bool:
    """True if kernels are compiled; the interpreter lacks some of a GPU's instructions."""
    return not knobs.runtime.interpret


def can_overlap() -> bool:
    """True if a launch can start while the previous one ends (programmatic dependent launch)."""
    return present().capability >= (9, 0)
