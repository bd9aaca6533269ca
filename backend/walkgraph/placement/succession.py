"""Decides whether the processes of one plan can serve another."""

from walkgraph.placement.compiler.loop_decisions import spanning_ranks
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import Transports, arenas, declared_transports


def same_processes(one: Plan, other: Plan, transports: Transports | None = None) -> bool:
    """True if both have the same ranks on the same devices of the same hosts, and share the same memory between them.
    Loops that span ranks, and the shards of a rank, tie processes together for as long as these live."""
    known = declared_transports() if transports is None else transports
    devices = [{rank.rank: (rank.host, rank.device) for rank in plan.ranks} for plan in (one, other)]
    if devices[0] != devices[1] or any(spanning_ranks(plan) or has_shards(plan) for plan in (one, other)):
        return False
    return all(arenas(one, rank, 1, known) == arenas(other, rank, 1, known) for rank in devices[0])


def has_shards(plan: Plan) -> bool:
    return any(rank.shards for rank in plan.ranks)
