"""The hosts of a plan's ranks, and which ranks share one."""

from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan, RankPlan


def hosts_of(plan: Plan) -> dict[Rank, str]:
    """Ranks with their hosts, where empty is the one that plans."""
    return {rank.rank: rank.host for rank in plan.ranks}


def beside(plan: Plan, rank: Rank) -> tuple[RankPlan, ...]:
    """The ranks on the host of one, itself among them."""
    host = next(one.host for one in plan.ranks if one.rank == rank)
    return tuple(one for one in plan.ranks if one.host == host)


def apart(plan: Plan, rank: Rank) -> frozenset[Rank]:
    """The ranks on other hosts than that of one."""
    return frozenset(one.rank for one in plan.ranks) - {one.rank for one in beside(plan, rank)}
