"""The hardware to place on: devices with their memory and the ways between them, the host's name and cores. A probe
reads it once."""

import contextlib
import os
import platform
import socket
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pynvml  # pyright: ignore[reportMissingTypeStubs]

from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.host.topology import SYSFS, Topology, topology
from walkgraph.placement.tables import Plan
from walkgraph.settings import visible_gpus


@dataclass(frozen=True, kw_only=True)
class Device:
    name: str
    """`cpu` or `cuda:N`."""
    total: int
    """Bytes."""
    free: int
    label: str = ""
    """The maker's name for it."""
    assumed: bool = False
    """Not in this host: a hypothetical device, to see what would fit."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    host: str
    cores: int
    shm: int
    """Bytes free in shared memory."""
    devices: tuple[Device, ...]
    """The CPU (its memory is the host's) and every GPU."""
    topology: Topology = field(default_factory=Topology)
    others: tuple["Hardware", ...] = ()
    """Further hosts of its cluster."""
    address: str = ""
    """Its address in the network of its cluster; empty for a host that can only be planned for, unless it plans."""
    links: tuple[HostLink, ...] = ()
    """Between the hosts of its cluster, as far as they are measured."""
    faults: tuple[str, ...] = ()
    """Why nothing can be deployed to it, each a sentence that says what to do. Without devices: it doesn't answer."""
    lacks: tuple[str, ...] = ()
    """Transports whose packages aren't installed there."""
    missing: tuple[str, ...] = ()
    """Folders of checkpoints that the service has, and that aren't there."""

    def device(self, name: str) -> Device | None:
        return next((d for d in self.devices if d.name == name), None)

    @property
    def hosts(self) -> tuple["Hardware", ...]:
        return (self, *self.others)

    def at(self, host: str) -> "Hardware | None":
        """A host by its name; empty: this one."""
        return self if not host else next((one for one in self.hosts if one.host == host), None)

    def link(self, one: str, other: str) -> HostLink | None:
        """The link between two hosts by their names, where empty is this one; None if it isn't known, or they are
        one."""
        pair = {one or self.host, other or self.host}
        return next((link for link in self.links if {link.first, link.second} == pair), None)


def find_hardware() -> Hardware:
    """Probe this host as it is now. Without a driver there are no GPUs; without /proc the memory figures come from
    POSIX."""
    total, free = _host_memory()
    cpu = Device(name="cpu", total=total, free=free, label=platform.processor() or platform.machine())
    return Hardware(
        host=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        shm=_free_shared_memory(),
        devices=(cpu, *gpus(visible=visible_gpus())),
        topology=find_topology(),
    )


def find_topology(nvml: Any = pynvml, sysfs: Path = SYSFS) -> Topology:
    """The topology of this host, with the GPUs that workers see."""
    with _session(nvml) as there:
        return topology(nvml, [*_handles(nvml, visible_gpus())] if there else (), sysfs)


def with_gpus(hardware: Hardware, count: int, memory: int) -> Hardware:
    """The same host as if it had these GPUs, all empty, of `memory` bytes each; its own are left out."""
    others = (d for d in hardware.devices if not d.name.startswith("cuda:"))
    gpus = (Device(name=f"cuda:{i}", total=memory, free=memory, label="assumed", assumed=True) for i in range(count))
    return replace(hardware, devices=(*others, *gpus), topology=Topology(nodes=hardware.topology.nodes))


def alone(hardware: Hardware) -> Hardware:
    """The same host without a cluster."""
    return replace(hardware, others=(), address="", links=())


def emptied(hardware: Hardware) -> Hardware:
    """The same hosts as if nothing ran there."""
    devices = (replace(device, free=device.total) for device in hardware.devices)
    return replace(hardware, devices=tuple(devices), others=tuple(map(emptied, hardware.others)))


def with_hosts(hardware: Hardware, count: int) -> Hardware:
    """A cluster of so many hosts like this one, `host0`, `host1` ..., of which the first plans."""
    first, *others = (replace(alone(hardware), host=f"host{i}") for i in range(count))
    return replace(first, others=tuple(others))


def reserve(hardware: Hardware, plans: Iterable[Plan]) -> Hardware:
    """The memory that the given running plans leave free. They may hold less now than they have reserved, and other
    processes may hold more."""
    taken = Counter[tuple[str, str]]()
    for plan in plans:
        for rank in plan.ranks:
            taken[rank.host, rank.device] += sum(size for _, size in rank.budget)
    others = (_left_free(other, other.host, taken) for other in hardware.others)
    return replace(_left_free(hardware, "", taken), others=tuple(others))


def released(hardware: Hardware, plan: Plan) -> Hardware:
    """The hosts as if the processes of a running plan had ended. They may hold less now than the plan lets them."""
    held = Counter[tuple[str, str]]()
    for rank in plan.ranks:
        held[rank.host, rank.device] += sum(size for _, size in rank.budget)
    others = (_with_more(other, other.host, held) for other in hardware.others)
    return replace(_with_more(hardware, "", held), others=tuple(others))


def _with_more(one: Hardware, host: str, held: Mapping[tuple[str, str], int]) -> Hardware:
    """`host`: its name in plans."""
    devices = (replace(d, free=min(d.total, d.free + held.get((host, d.name), 0))) for d in one.devices)
    return replace(one, devices=tuple(devices))


def _left_free(one: Hardware, host: str, taken: Mapping[tuple[str, str], int]) -> Hardware:
    """A host less what is taken. `host`: its name in plans."""
    devices = (replace(d, free=max(0, min(d.free, d.total - taken.get((host, d.name), 0)))) for d in one.devices)
    return replace(one, devices=tuple(devices))


def _host_memory() -> tuple[int, int]:
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        entries = dict(line.split(":", 1) for line in lines if ":" in line)
        total, free = (int(entries[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
        return _within_cgroup(total, free)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, total // 2


def _within_cgroup(total: int, free: int) -> tuple[int, int]:
    """Total and free bytes within the container's limit, which may be below the host's."""
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return total, free
    return min(total, limit), max(0, min(free, limit - used))


def _free_shared_memory() -> int:
    try:
        entry = os.statvfs("/dev/shm")  # noqa: S108 - the mount itself is meant
    except OSError:
        return 0
    return entry.f_bavail * entry.f_frsize


def gpus(nvml: Any = pynvml, visible: Sequence[str] | None = None) -> Iterator[Device]:
    """Every GPU that workers see, in their order; none without a driver.

    `visible`: entries of CUDA_VISIBLE_DEVICES. As CUDA does, those after one that names no GPU are ignored.
    """
    with _session(nvml) as there:
        for index, handle in enumerate(_handles(nvml, visible) if there else ()):
            try:
                memory: Any = nvml.nvmlDeviceGetMemoryInfo(handle)
                label = str(nvml.nvmlDeviceGetName(handle))
            except nvml.NVMLError:
                return
            yield Device(name=f"cuda:{index}", total=int(memory.total), free=int(memory.free), label=label)


@contextmanager
def _session(nvml: Any) -> Generator[bool]:
    """The driver answers in here; False if there is none."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _handles(nvml: Any, visible: Sequence[str] | None) -> Iterator[Any]:
    """The GPUs that workers see, in their order, up to one for which the driver fails."""
    with contextlib.suppress(nvml.NVMLError):
        every: Iterator[Any] = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        yield from every if visible is None else _chosen(nvml, [*every], visible)


def _chosen(nvml: Any, handles: Sequence[Any], visible: Sequence[str]) -> list[Any]:
    uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    found: list[Any] = []
    for entry in visible:
        if entry.isdecimal():
            named = [int(entry)] if int(entry) < len(handles) else []
        else:
            named = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(named) != 1:
            break
        found.append(handles[named[0]])
    return found
