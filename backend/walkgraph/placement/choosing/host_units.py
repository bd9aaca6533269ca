"""The ranks that must share a host. Read from tables that are compiled as if all ranks were on one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from walkgraph.ids import Rank
from walkgraph.placement.capacity.needs import sent_on_device
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import Transports, carries_all


@dataclass(frozen=True)
class HostUnit:
    """Ranks that go to a host together."""

    ranks: tuple[Rank, ...]
    """All of them unpinned."""
    host: str | None
    """The host of the other ranks that they must be with; None if there are none."""


def units_of(
    plan: Plan, unpinned: frozenset[Rank], host: Callable[[Rank], str], transports: Transports
) -> list[HostUnit]:
    """The units of all unpinned ranks, by their first. `plan`: compiled as if all ranks were on one host. `host`: that
    of a rank which is not unpinned."""
    joined = {rank.rank: {rank.rank} for rank in plan.ranks}
    for tie in (*_ties(plan, transports), *_between_gpus(plan, unpinned)):
        if len({host(rank) for rank in tie - unpinned}) > 1:
            continue  # they can't share a host: other problems, or a slower way, follow from that
        whole = set[Rank]().union(*(joined[rank] for rank in tie))
        for rank in whole:
            joined[rank] = whole
    found: dict[tuple[Rank, ...], HostUnit] = {}
    for rank in sorted(unpinned & joined.keys()):
        ranks = tuple(sorted(joined[rank] & unpinned))
        pinned = sorted(joined[rank] - unpinned)
        found[ranks] = HostUnit(ranks, host(pinned[0]) if pinned else None)
    return list(found.values())


def _ties(plan: Plan, transports: Transports) -> Iterator[set[Rank]]:
    """Shards of the same nodes; the parts of a loop on several GPUs; all ranks, where the transport that the placement
    names stays on a host."""
    for rank in plan.ranks:
        yield {*rank.shards}
    for walk in plan.walks:
        for loop in walk.loops:
            yield {walk.uses[use].rank for use in loop.core}
    if carries_all(transports, plan.transport) and not carries_all(transports, plan.transport, apart=True):
        yield {rank.rank for rank in plan.ranks}


def _between_gpus(plan: Plan, unpinned: frozenset[Rank]) -> Iterator[set[Rank]]:
    """Unpinned ranks whose values go from GPU to GPU. With a rank that is where it is, they may also go over the
    network."""
    for sent in sent_on_device(plan):
        if sent.edge.target.kind != "result":
            yield {sent.use.rank, *sent.targets} & unpinned
