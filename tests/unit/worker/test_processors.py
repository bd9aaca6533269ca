"""Ranks with a GPU run on the processors near it, where a host has several NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.placement.test_topology import ADDRESSES, GPUS, PAIRS, TWO_NODES, Nvml, host
from walkgraph.worker import processors


class Scheduler:
    """The kernel's, as far as it is asked: the processors that this thread may run on."""

    def __init__(self, *allowed: int) -> None:
        self.allowed = set(allowed)

    def sched_getaffinity(self, pid: int) -> set[int]:
        assert pid == 0
        return self.allowed

    def sched_setaffinity(self, pid: int, cpus: Iterable[int]) -> None:
        assert pid == 0
        self.allowed = set(cpus)


@pytest.mark.parametrize(
    ("device", "nodes", "allowed", "left"),
    [
        ("cuda:0", TWO_NODES, range(16), {0, 1, 2, 3, 8, 9, 10, 11}),
        ("cuda:2", TWO_NODES, range(16), {4, 5, 6, 7, 12, 13, 14, 15}),
        ("cuda:2", TWO_NODES, range(6), {4, 5}),
        ("cuda:2", TWO_NODES, range(3), {0, 1, 2}),
        ("cuda:7", TWO_NODES, range(16), set(range(16))),
        ("cpu", TWO_NODES, range(16), set(range(16))),
        ("cuda:2", {0: "0-15"}, range(16), set(range(16))),
    ],
)
def test_the_processors_of_the_gpus_node_are_left(
    tmp_path: Path, device: str, nodes: dict[int, str], allowed: range, left: set[int]
) -> None:
    scheduler, nvml = Scheduler(*allowed), Nvml(ADDRESSES, PAIRS)
    processors.stand_near(device, nvml, host(tmp_path, nodes, GPUS), scheduler)
    assert scheduler.allowed == left


def test_one_node_asks_no_driver(tmp_path: Path) -> None:
    processors.stand_near("cuda:0", None, host(tmp_path, {0: "0-1"}, {}), Scheduler(0, 1))
