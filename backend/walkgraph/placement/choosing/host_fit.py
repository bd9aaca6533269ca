"""The room that hosts have for ranks, before it is known which of them go where."""

from collections.abc import Collection
from dataclasses import replace

from walkgraph.ids import Rank
from walkgraph.placement.capacity.allotment import allotted, named_memory
from walkgraph.placement.capacity.budget import show_bytes
from walkgraph.placement.capacity.needs import Need, RankNeeds
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.placement.tables import Plan


class HostFit:
    """Compares what ranks need with what hosts have. `plan`: compiled as if all ranks were on one host."""

    def __init__(self, assignment: Assignment, plan: Plan, needs: RankNeeds) -> None:
        self._needs = needs
        self._alone = {rank.rank: needs.of(rank, 0, said=False) for rank in plan.ranks}
        self._named = {rank.rank: named_memory(assignment, rank.rank) for rank in plan.ranks}

    def least(self, ranks: Collection[Rank]) -> int:
        """Bytes that ranks need, all together on one host."""
        return sum(self._alone[rank].least for rank in ranks)

    def free(self, host: Hardware, ranks: Collection[Rank]) -> int:
        """Free bytes of the devices of a host that ranks name."""
        names = {self._alone[rank].rank.device for rank in ranks}
        return sum(device.free for device in host.devices if device.name in names)

    def missing(self, host: Hardware, ranks: Collection[Rank]) -> str:
        """The reason that ranks have no device on a host, as the end of a sentence about it; empty if they have."""
        names = sorted(
            {self._alone[rank].rank.device for rank in ranks if host.device(self._alone[rank].rank.device) is None}
        )
        return f"has no {', '.join(f'`{name}`' for name in names)}" if names else ""

    def lack(self, host: Hardware, ranks: Collection[Rank]) -> str:
        """The reason that a host has no room for these ranks and no others, as the end of a sentence about it; empty if
        it has."""
        for device in host.devices:
            there = sorted(rank for rank in ranks if self._alone[rank].rank.device == device.name)
            if there and (short := self._short(device, there, ranks)):
                return short
        return self.missing(host, ranks)

    def _short(self, device: Device, there: Collection[Rank], beside: Collection[Rank]) -> str:
        """`there`: the ranks of a device. `beside`: those of its host."""
        memory = allotted({rank: self._named[rank] for rank in there}, device.free)
        free = f"`{device.name}` has {show_bytes(device.free)} free"
        given = sum(size for size, _ in memory.values())
        if given > device.free:
            return f"{free}, and its ranks are given {show_bytes(given)}"
        for rank in there:
            need = self._need(rank, beside)
            if need.least > memory[rank][0]:
                share = f", of which rank {rank} may take {show_bytes(memory[rank][0])}" if len(there) > 1 else ""
                return f"{free}{share}, and rank {rank} needs {show_bytes(need.least)}"
        return ""

    def _need(self, rank: Rank, beside: Collection[Rank]) -> Need:
        alone = self._alone[rank]
        return replace(alone, arenas=self._needs.arenas(rank, alone.caches, beside))
