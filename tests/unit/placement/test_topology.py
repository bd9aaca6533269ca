"""Topologies of hosts, read from trees and answers as Linux and NVML document them, and what plans make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.support.placing import GIB, at, hardware, planned
from walkgraph.placement.hardware import find_topology, with_gpus
from walkgraph.placement.host.topology import Link, Topology, cpu_list, node_of, numa_nodes
from walkgraph.placement.host.topology import topology as read
from walkgraph.placement.show import render

MIB = 2**20


def host(folder: Path, nodes: dict[int, str], gpus: dict[str, str]) -> Path:
    """A tree like /sys: nodes with their processors, PCI devices with their nodes."""
    for number, cpus in nodes.items():
        node = folder / f"devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpus + "\n")
        (node / "meminfo").write_text(
            f"Node {number} MemTotal:       {(number + 1) * 1024} kB\nNode {number} MemFree:        17 kB\n"
        )
    for address, node_ in gpus.items():
        device = folder / f"bus/pci/devices/{address}"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(node_ + "\n")
    return folder


class Nvml:
    """The answers of a driver: GPUs by their PCI addresses, and between each pair a level and the capabilities."""

    class NVMLError(Exception):
        pass

    NVML_P2P_STATUS_OK = pynvml.NVML_P2P_STATUS_OK
    NVML_TOPOLOGY_MULTIPLE = pynvml.NVML_TOPOLOGY_MULTIPLE
    NVML_TOPOLOGY_HOSTBRIDGE = pynvml.NVML_TOPOLOGY_HOSTBRIDGE
    NVML_TOPOLOGY_NODE = pynvml.NVML_TOPOLOGY_NODE

    def __init__(self, addresses: list[Any], pairs: dict[tuple[int, int], tuple[int, bool, bool]]) -> None:
        """`pairs`: level, whether they read each other, whether over NVLink."""
        self.addresses, self.pairs = addresses, pairs
        self.open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.addresses)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        if self.addresses[handle] is None:
            raise self.NVMLError
        return SimpleNamespace(busId=self.addresses[handle])

    def _pair(self, one: int, other: int) -> tuple[int, bool, bool]:
        if (found := self.pairs.get((min(one, other), max(one, other)))) is None:
            raise self.NVMLError
        return found

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return self._pair(one, other)[0]

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, what: int) -> int:
        level, reads, linked = self._pair(one, other)
        del level
        return self.NVML_P2P_STATUS_OK if {0: reads, 2: linked}[what] else 5


ADDRESSES: list[Any] = [b"00000000:17:00.0", "00000000:3D:00.0", "00000001:A0:00.0"]
TWO_NODES = {0: "0-3,8-11", 1: "4-7,12-15"}
GPUS = {"0000:17:00.0": "0", "0000:3d:00.0": "0", "0001:a0:00.0": "1"}
PAIRS = {(0, 1): (20, True, True), (0, 2): (50, True, False), (1, 2): (50, False, False)}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}), ("5", {5}), ("", set()), ("\n", set()), ("0-x", set()), ("-1", set())],
)
def test_lists_of_processors(text: str, numbers: set[int]) -> None:
    assert cpu_list(text) == numbers


def test_nodes_are_those_with_processors(tmp_path: Path) -> None:
    sysfs = host(tmp_path, {1: "4-7", 0: "0-3", 2: ""}, {})
    found = numa_nodes(sysfs)
    assert [(node.number, sorted(node.cpus), node.memory) for node in found] == [
        (0, [0, 1, 2, 3], MIB),
        (1, [4, 5, 6, 7], 2 * MIB),
    ]
    assert numa_nodes(tmp_path / "nowhere") == ()


def test_a_device_without_a_node_has_none(tmp_path: Path) -> None:
    sysfs = host(tmp_path, TWO_NODES, {"0000:17:00.0": "-1", "0000:3d:00.0": "1"})
    assert node_of("00000000:17:00.0", sysfs) is None
    assert node_of("00000000:3D:00.0", sysfs) == 1
    assert node_of("00000000:55:00.0", sysfs) is None


def test_a_host_with_two_nodes_and_three_gpus(tmp_path: Path) -> None:
    nvml = Nvml(ADDRESSES, PAIRS)
    found = find_topology(nvml, host(tmp_path, TWO_NODES, GPUS))
    assert nvml.open == 0
    assert found.near == {"cuda:0": 0, "cuda:1": 0, "cuda:2": 1}
    assert sorted(found.near_cpus("cuda:2")) == [4, 5, 6, 7, 12, 13, 14, 15]
    assert [(link.first, link.second, link.kind, link.peers) for link in found.links] == [
        ("cuda:0", "cuda:1", "nvlink", True),
        ("cuda:0", "cuda:2", "system", True),
        ("cuda:1", "cuda:2", "system", False),
    ]
    assert found.link("cuda:1", "cuda:0") == found.links[0]
    assert found.reads("cuda:0", "cuda:2")
    assert not found.reads("cuda:2", "cuda:1")
    assert found.reads("cuda:0", "cuda:0")


@pytest.mark.parametrize(
    ("level", "kind"), [(0, "pcie"), (10, "pcie"), (20, "pcie"), (30, "bridge"), (40, "node"), (50, "system")]
)
def test_ways_without_nvlink_are_the_nearest_common_point(tmp_path: Path, level: int, kind: str) -> None:
    nvml = Nvml(ADDRESSES[:2], {(0, 1): (level, True, False)})
    [link] = read(nvml, (0, 1), tmp_path).links
    assert link.kind == kind


def test_what_a_driver_does_not_tell_stays_unknown(tmp_path: Path) -> None:
    found = read(Nvml([None, *ADDRESSES[1:]], {(0, 1): PAIRS[0, 1]}), (0, 1, 2), host(tmp_path, TWO_NODES, GPUS))
    assert found.near == {"cuda:1": 0, "cuda:2": 1}
    assert [(link.first, link.second) for link in found.links] == [("cuda:0", "cuda:1")]
    assert found.reads("cuda:0", "cuda:2")
    assert found.near_cpus("cuda:0") == frozenset()


def test_one_node_is_near_to_everything(tmp_path: Path) -> None:
    found = read(Nvml(ADDRESSES, PAIRS), (0, 1, 2), host(tmp_path, {0: "0-15"}, dict.fromkeys(GPUS, "0")))
    assert found.node("cuda:0") is None
    assert found.near_cpus("cuda:0") == frozenset()


# ── plans ──


def _hosted(peers: bool, kind: Any = "nvlink") -> Any:
    link = Link(first="cuda:0", second="cuda:1", kind=kind, peers=peers)
    return replace(hardware(100 * GIB, 100 * GIB), topology=Topology(links=(link,)))


def test_gpus_that_cannot_read_each_other_send_through_shared_memory() -> None:
    where = at(1, "guide", "llm"), {"devices": ("cuda:0", "cuda:1")}
    unknown, apart, together = (
        planned(where[0], **where[1], host=one).plan
        for one in (hardware(100 * GIB, 100 * GIB), _hosted(peers=False), _hosted(peers=True))
    )
    assert unknown is not None
    assert unknown == together, "what isn't known changes nothing"
    assert apart is not None
    used = {edge.transport for walk in unknown.walks for edge in walk.edges}
    assert "cuda_ipc" in used
    assert {edge.transport for walk in apart.walks for edge in walk.edges} == used - {"cuda_ipc"} | {"shm"}
    assert not any(rank.arenas for rank in apart.ranks)


def test_plans_say_how_gpus_reach_each_other_and_the_nodes_of_ranks() -> None:
    made = planned(at(1, "guide", "llm"), devices=("cuda:0", "cuda:1"), host=_hosted(peers=False, kind="system")).plan
    assert made is not None
    nodes = numa_like()
    link = Link(first="cuda:0", second="cuda:1", kind="system", peers=False)
    away = Link(first="cuda:0", second="cuda:2", kind="nvlink", peers=True)
    topology = Topology(nodes=nodes, near={"cuda:1": 1}, links=(link, away))
    drawn = render(made, hardware=replace(hardware(), topology=topology))
    assert "rank 1  cuda:1  NUMA node 1  " in drawn
    assert "rank 0  cuda:0  NUMA" not in drawn
    ways = drawn.partition("ways between GPUs\n")[2].partition("\n\n")[0]
    assert ways == "  cuda:0 and cuda:1  over the way between NUMA nodes, without reading each other's memory"
    assert "ways between" not in render(made)


def numa_like() -> Any:
    return tuple(SimpleNamespace(number=number, cpus=frozenset({number}), memory=0) for number in (0, 1))


def test_assumed_gpus_have_no_known_ways() -> None:
    assumed = with_gpus(_hosted(peers=False), 2, GIB)
    assert assumed.topology.reads("cuda:0", "cuda:1")
