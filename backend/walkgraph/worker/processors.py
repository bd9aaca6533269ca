"""The processors that a rank's threads run on: those near its GPU, on a host with several NUMA nodes.

Memory that a thread is the first to touch, and memory that it pins, comes from the node of its processor.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pynvml  # pyright: ignore[reportMissingTypeStubs]

from walkgraph.placement.hardware import find_topology
from walkgraph.placement.host.topology import SYSFS, numa_nodes


class Scheduler(Protocol):
    """The module `os`, as far as it is used."""

    def sched_getaffinity(self, pid: int, /) -> set[int]: ...

    def sched_setaffinity(self, pid: int, cpus: Iterable[int], /) -> None: ...


def stand_near(device: str, nvml: Any = pynvml, sysfs: Path = SYSFS, scheduler: Scheduler = os) -> None:
    """Keep the calling thread, and those that it starts, on the processors of a GPU's NUMA node. No effect on a host
    with one node, for a CPU, where the node isn't known, and where none of these processors is allowed."""
    if device == "cpu" or len(numa_nodes(sysfs)) < 2:
        return
    near = find_topology(nvml, sysfs).near_cpus(device) & scheduler.sched_getaffinity(0)
    if near:
        scheduler.sched_setaffinity(0, near)
