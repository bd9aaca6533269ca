"""The topology of a host: its NUMA nodes, the ways between its GPUs, and which processors are near which GPU.

    host     sysfs: nodes with their processors and memory, the node of each PCI device
    driver   NVML: the PCI address of each GPU, the nearest common point of two, whether one reads the other's memory

What neither tells stays unknown: nothing is assumed of it, and nothing follows from it.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SYSFS = Path("/sys")
_READ, _NVLINK = 0, 2
"""NVML's numbers of these capabilities between two GPUs. In pynvml the first is a tuple, which its own call refuses."""

LinkKind = Literal["nvlink", "pcie", "bridge", "node", "system"]
"""From one GPU to another: over NVLink; below one PCIe switch or several; over a PCIe host bridge; within a NUMA node;
between NUMA nodes."""


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    number: int
    cpus: frozenset[int]
    """Its processors."""
    memory: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """The way between two GPUs, the lower number first."""

    first: str
    second: str
    """`cuda:N`."""
    kind: LinkKind
    peers: bool
    """Each reads and writes the other's memory."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    nodes: tuple[NumaNode, ...] = ()
    near: Mapping[str, int] = field(default_factory=dict[str, int])
    """GPU -> its NUMA node, where the host says so."""
    links: tuple[Link, ...] = ()

    def link(self, one: str, other: str) -> Link | None:
        """The way between two GPUs; None where it isn't known, or they are one."""
        pair = {one, other}
        return next((link for link in self.links if {link.first, link.second} == pair), None)

    def reads(self, one: str, other: str) -> bool:
        """False if two GPUs are known not to read each other's memory."""
        link = self.link(one, other)
        return link is None or link.peers

    def node(self, device: str) -> int | None:
        """The NUMA node of a GPU; None on a host with one node, or where it isn't known."""
        return self.near.get(device) if len(self.nodes) > 1 else None

    def near_cpus(self, device: str) -> frozenset[int]:
        """The processors of a GPU's NUMA node, where that is known."""
        wanted = self.node(device)
        found = [node.cpus for node in self.nodes if node.number == wanted]
        return found[0] if found else frozenset[int]()


# ── the host ────────────────────────────────────────────────────────────────────────────────────


def numa_nodes(sysfs: Path = SYSFS) -> tuple[NumaNode, ...]:
    """The NUMA nodes that have processors; none where they can't be read."""
    found: list[NumaNode | None] = []
    with contextlib.suppress(OSError):
        found = [_node(folder) for folder in (sysfs / "devices/system/node").glob("node[0-9]*")]
    return tuple(sorted((node for node in found if node and node.cpus), key=lambda node: node.number))


def node_of(address: str, sysfs: Path = SYSFS) -> int | None:
    """The NUMA node of a PCI device; None where the host doesn't say, as in many virtual machines."""
    domain, _, rest = address.lower().partition(":")
    text = _text(sysfs / f"bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    return int(text) if text and text.isdecimal() else None


def cpu_list(text: str) -> frozenset[int]:
    """The numbers in a list of the kernel: `0-3,8,10-11`. Empty for any other text."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        low, _, high = part.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal():
            return frozenset()
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _node(folder: Path) -> NumaNode | None:
    number, cpus = folder.name.removeprefix("node"), _text(folder / "cpulist")
    if not number.isdecimal() or cpus is None:
        return None
    total = (line.split() for line in (_text(folder / "meminfo") or "").splitlines() if "MemTotal:" in line)
    sizes = [int(words[3]) * 1024 for words in total if len(words) > 3 and words[3].isdecimal()]
    return NumaNode(number=int(number), cpus=cpu_list(cpus), memory=sum(sizes))


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()
    return None


# ── the driver ──────────────────────────────────────────────────────────────────────────────────


def topology(nvml: Any, handles: Sequence[Any], sysfs: Path = SYSFS) -> Topology:
    """The topology of a host with these GPUs, `cuda:0` first. `nvml`: initialized; it is asked nothing without GPUs."""
    nodes, near = numa_nodes(sysfs), dict[str, int]()
    for index, handle in enumerate(handles):
        address = _address(nvml, handle)
        node = None if address is None else node_of(address, sysfs)
        if node is not None:
            near[f"cuda:{index}"] = node
    return Topology(nodes=nodes, near=near, links=tuple(_links(nvml, handles)))


def _links(nvml: Any, handles: Sequence[Any]) -> Iterator[Link]:
    """Those that the driver knows: an older one may not answer."""
    for (a, one), (b, other) in itertools.combinations(enumerate(handles), 2):
        with contextlib.suppress(nvml.NVMLError):
            peers = _both(nvml, one, other, _READ)
            linked = peers and _both(nvml, one, other, _NVLINK)
            kind = "nvlink" if linked else _nearest(nvml, int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)))
            yield Link(first=f"cuda:{a}", second=f"cuda:{b}", kind=kind, peers=peers)


def _both(nvml: Any, one: Any, other: Any, what: int) -> bool:
    return all(
        nvml.nvmlDeviceGetP2PStatus(*pair, what) == nvml.NVML_P2P_STATUS_OK for pair in ((one, other), (other, one))
    )


def _nearest(nvml: Any, level: int) -> LinkKind:
    if level <= nvml.NVML_TOPOLOGY_MULTIPLE:
        return "pcie"
    if level <= nvml.NVML_TOPOLOGY_HOSTBRIDGE:
        return "bridge"
    return "node" if level <= nvml.NVML_TOPOLOGY_NODE else "system"


def _address(nvml: Any, handle: Any) -> str | None:
    with contextlib.suppress(nvml.NVMLError):
        found = nvml.nvmlDeviceGetPciInfo(handle).busId
        return found.decode("ascii") if isinstance(found, bytes) else str(found)
    return None
