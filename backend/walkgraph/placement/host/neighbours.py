"""Finds the ranks of a plan that share a host."""

from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan, RankPlan


def beside(plan: Plan, rank: Rank) -> tuple[RankPlan, ...]:
    """The ranks on the host of one, itself among them."""
    host = next(one.host for one in plan.ranks if one.rank == rank)
    return tuple(one for one in plan.ranks if one.host == host)


def apart(plan: Plan, rank: Rank) -> frozenset[Rank]:
    """The ranks on other hosts than that of one."""
    return frozenset(one.rank for one in plan.ranks) - {one.rank for one in beside(plan, rank)}
