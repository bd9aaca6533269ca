"""Declarations of transports, and the choice for an edge: the cheapest transport that joins its ranks, or the one that
the placement names.

A transport is one file of the folder `walkgraph.transports`, named after it, with a `DECLARATION` of this type. Plans
are compiled from the declarations, without importing torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from walkgraph import plugins
from walkgraph.ids import Rank
from walkgraph.placement.host.neighbours import apart, beside
from walkgraph.placement.tables import Plan

PACKAGE = "walkgraph.transports"


@dataclass(frozen=True, kw_only=True)
class TransportDeclaration:
    reach: Literal["process", "host", "cluster"]
    """Both ends must share this at least. Each rank is a process of its own; hosts of a cluster share a network."""
    cost: int
    """Approximate microseconds per MiB. The plan takes the cheapest transport that joins an edge's ranks."""
    on_device: bool = False
    """Both ends need a GPU, and tensors never pass through the host's memory."""
    arena_bytes: int = 0
    """The least GPU memory that a sending rank sets aside for it."""
    confirmed: bool = False
    """A driver or a container may refuse it, so a rank sends by it only after the receiver has confirmed that it can
    read."""
    extra: str = ""
    """The extra of `walkgraph` that it needs, if any."""
    installed: bool = True
    """True if its packages are installed here."""
    addressable: bool = False
    """A GPU can read and write the memory that another one sets aside; parts of device loops hand each other values
    there."""


Transports = Mapping[str, TransportDeclaration]
"""Declarations by name."""


@cache
def declared_transports() -> Transports:
    """All transports in the folder."""
    return {name: plugins.load(PACKAGE, name, "DECLARATION") for name in plugins.names(PACKAGE)}


def choice(transports: Transports, named: str | None) -> Transports:
    """The transports that a placement leaves to choose from: the one that it names, if that carries everything."""
    return {named: transports[named]} if named is not None and carries_all(transports, named) else transports


def carries_all(transports: Transports, name: str, *, apart: bool = False) -> bool:
    """True if a transport carries any tensor between any two ranks of a host; `apart`: of several hosts."""
    one = transports.get(name)
    return one is not None and one.reach in _reaches(apart=apart) and not one.on_device and not one.confirmed


def cheapest(transports: Transports, *, on_device: bool, apart: bool = False) -> str:
    """Name of the cheapest transport between ranks of one host, or `apart`, of several; of any where there is none.
    `on_device`: the value lies on a GPU at both ends."""
    reaches = _reaches(apart=apart)
    found = [name for name, one in transports.items() if one.reach in reaches and (on_device or not one.on_device)]
    return min(found or transports, key=lambda name: (transports[name].cost, name))


def _reaches(*, apart: bool) -> tuple[str, ...]:
    return ("cluster",) if apart else ("host", "cluster")


def always_open(transports: Transports, *, apart: bool = False) -> str:
    """The cheapest transport that any two ranks of a host can use, or `apart`, of several; it carries whatever others
    refuse."""
    confirmed = {name: one for name, one in transports.items() if not one.confirmed}
    return cheapest(confirmed, on_device=False, apart=apart)


def addressable(transports: Transports) -> str:
    """The cheapest transport by which GPUs read and write each other's memory."""
    return cheapest({name: one for name, one in transports.items() if one.addressable}, on_device=True)


def reaching(transports: Transports, *, apart: bool = False) -> Transports:
    """The transports between ranks of one host, or `apart`, of several."""
    return {name: one for name, one in transports.items() if one.reach in _reaches(apart=apart)}


def arenas(plan: Plan, rank: Rank, host_bytes: int, transports: Transports) -> dict[str, int]:
    """Transport -> bytes for what this rank sends by it: to ranks of its host, to those of other hosts, or to both.
    Transports on a device have an arena wherever any rank of the host has one, as a rank that sends nothing may still
    read from others."""
    near, far = beside(plan, rank), apart(plan, rank)
    reaches = [over for over, needed in ((False, len(near) > 1 or not far), (True, bool(far))) if needed]
    chosen = choice(transports, plan.transport or None)
    edges = {edge.transport for walk in plan.walks for edge in walk.edges}
    opened = {always_open(chosen, apart=over) for over in reaches}
    for over in reaches:
        reached = reaching(transports, apart=over)
        opened |= {name for name in edges & reached.keys() if not reached[name].on_device}
    here = next(one for one in near if one.rank == rank)
    on_device = {name: here.arenas.get(name, 0) for one in near for name in one.arenas}
    return dict.fromkeys(sorted(opened), host_bytes) | on_device
