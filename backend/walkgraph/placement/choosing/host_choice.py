"""Chooses the hosts of ranks whose placement says `any`: pure, and the same for the same hosts.

The ranks of a unit go together: to the service's host if it has room, else to the one with the most free memory on
their devices that has. Units are placed one after the other, those that need the most memory first; where the last ones
find no room, the ones before are tried elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem
from walkgraph.ids import Rank
from walkgraph.placement.capacity.budget import known_sizes
from walkgraph.placement.capacity.needs import RankNeeds
from walkgraph.placement.choosing.host_fit import HostFit
from walkgraph.placement.choosing.host_units import HostUnit, units_of
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import ANY, Placement
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.named import lacking, place_of
from walkgraph.placement.sizes import Sizes
from walkgraph.placement.transports import Transports, always_open, choice

MOST_TRIALS = 4096
"""Questions whether a host has room, after which a choice is given up."""
_SHOWN = 4
"""Hosts that a problem names."""


@dataclass(frozen=True)
class HostChoice:
    placement: Placement
    """Says `any` nowhere. Where there is no room, it is on hosts that lack some."""
    problems: tuple[Problem, ...] = ()


def choose_hosts(
    graph: Graph,
    placement: Placement,
    hardware: Hardware,
    catalogue: Catalogue,
    sizes: Sizes,
    transports: Transports,
    *,
    resident: bool = True,
) -> HostChoice:
    """The placement with a host for each rank that is left to the plan. Total."""
    if not placement.unpinned:
        return HostChoice(placement)
    choosing = _Choosing(graph, placement, hardware, catalogue, sizes, transports, resident=resident)
    orders = [choosing.order(unit) for unit in choosing.units]
    found = first_fit(orders, choosing.fits)
    if found is not None:
        return HostChoice(choosing.placed(found))
    problem = choosing.problem(orders)
    return HostChoice(choosing.placed([choosing.shown(unit) for unit in choosing.units]), (problem,))


def first_fit(orders: Sequence[Sequence[str]], fits: Callable[[Sequence[str]], bool]) -> list[str] | None:
    """One of each order, so that earlier ones of earlier orders come first; None if nothing fits, or that isn't found
    soon. `fits`: says whether the last of some choices fits beside those before it; more of them leave no more room."""
    chosen: list[str] = []
    left: list[Iterator[str]] = [iter(orders[0])] if orders else []
    trials = 0
    while left and trials < MOST_TRIALS:
        name = next(left[-1], None)
        if name is None:
            left.pop()
            del chosen[-1:]
            continue
        trials += 1
        if fits([*chosen, name]):
            chosen.append(name)
            if len(chosen) == len(orders):
                return chosen
            left.append(iter(orders[len(chosen)]))
    return None if orders else []


class _Choosing:
    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        hardware: Hardware,
        catalogue: Catalogue,
        sizes: Sizes,
        transports: Transports,
        *,
        resident: bool,
    ) -> None:
        self._placement, self._hardware = placement, hardware
        self._transports, self._chosen = transports, choice(transports, placement.transport)
        together = Assignment(graph, placement.together())
        plan = assemble(together, catalogue, resident=resident, transports=transports)
        self._ranks = frozenset(rank.rank for rank in plan.ranks)
        self._unpinned = frozenset(rank for rank in self._ranks if rank in placement.unpinned)
        known = known_sizes(graph, sizes, [])
        self._fit = HostFit(together, plan, RankNeeds(graph, plan, catalogue, known, transports))
        units = units_of(plan, self._unpinned, self._home, transports)
        self.units = sorted(units, key=lambda unit: (-self._fit.least(unit.ranks), unit.ranks))
        """Those that need the most memory first."""
        self._pinned = {
            host.host: frozenset(rank for rank in self._ranks - self._unpinned if self._home(rank) == host.host)
            for host in hardware.hosts
        }

    def order(self, unit: HostUnit) -> list[str]:
        """The hosts that a unit may go to, the best first."""
        own, *others = self._hardware.hosts
        others.sort(key=lambda host: (-self._fit.free(host, unit.ranks), host.host))
        if unit.host is not None:
            return [unit.host] if self._hardware.at(unit.host) is not None else []
        return [host.host for host in (own, *others) if not self._unfit(host)]

    def fits(self, chosen: Sequence[str]) -> bool:
        """True if the host of the last unit has room for it, beside those before it and those that name it."""
        return not self._lack(
            chosen[-1], [unit for unit, name in zip(self.units, chosen, strict=False) if name == chosen[-1]]
        )

    def placed(self, chosen: Sequence[str]) -> Placement:
        return self._placement.on(
            {rank: name for unit, name in zip(self.units, chosen, strict=True) for rank in unit.ranks}
        )

    def shown(self, unit: HostUnit) -> str:
        """The host where a unit is drawn that has no room: the first that has its devices."""
        order = self.order(unit) or [unit.host or self._hardware.host]
        found = (
            name for name in order if (host := self._hardware.at(name)) and not self._fit.missing(host, unit.ranks)
        )
        return next(found, order[0])

    def problem(self, orders: Sequence[Sequence[str]]) -> Problem:
        """Says why there is no room: for a unit that finds none even as the only one, or else for all of them."""
        alone = (
            unit
            for unit, order in zip(self.units, orders, strict=True)
            if all(self._lack(name, [unit]) for name in order)
        )
        found = next(alone, None)
        units = self.units if found is None else [found]
        ranks = sorted(rank for unit in units for rank in unit.ranks)
        bound = found.host if found is not None else None
        names = [host.host for host in self._hardware.hosts] if bound is None else [bound]
        why = "; ".join(f"`{name}` {self._reason(name, units)}" for name in names[:_SHOWN])
        more = " …" if len(names) > _SHOWN else ""
        what = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
        together = ", which must share one" if found is not None and len(ranks) > 1 else ""
        message = (
            f"no host has room for {what}{together}: {why}{more}; lower `memory`, stop another deployment, name "
            f"devices that a host has, or have another host join the cluster"
        )
        return Problem("no_host", _said_at(self._placement, ranks[0]), message)

    def _home(self, rank: Rank) -> str:
        return place_of(self._placement, self._hardware, rank)

    def _lack(self, name: str, units: Sequence[HostUnit]) -> str:
        host = self._hardware.at(name)
        there = self._pinned.get(name, frozenset[Rank]()).union(*(unit.ranks for unit in units))
        return "is not there" if host is None else self._fit.lack(host, there)

    def _reason(self, name: str, units: Sequence[HostUnit]) -> str:
        host = self._hardware.at(name)
        unfit = "" if host is None or (len(units) == 1 and units[0].host == name) else self._unfit(host)
        return unfit or self._lack(name, units)

    def _unfit(self, host: Hardware) -> str:
        """The reason that no rank is brought to a host, as the end of a sentence about it; empty if there is none."""
        if host is self._hardware:
            return ""
        if host.faults or not host.devices:
            return f"can't be used ({'; '.join(host.faults)})"
        if self._hardware.address and not host.address:
            return "is assumed"
        between = always_open(self._chosen, apart=True)
        if len(self._ranks) > 1 and any(
            name == between for one in (host, self._hardware) for name, _ in lacking(one, self._transports)
        ):
            return f"can't be reached by `{between}`, which is not installed on both hosts"
        return ""


def _said_at(placement: Placement, rank: int) -> str:
    """The place where a placement says `any` for a rank."""
    for index, entry in enumerate(placement.ranks):
        if entry.rank == rank and entry.host == ANY:
            return f"/ranks/{index}/host"
    for index, group in enumerate(placement.groups):
        if group.host == ANY and rank in group.ranks:
            return f"/groups/{index}/host"
    return "/ranks"
