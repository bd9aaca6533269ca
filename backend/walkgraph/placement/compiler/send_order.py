"""The order in which ranks send, where several ranks send one output."""

from collections.abc import Sequence

from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan, SendOrder, StepPlan


def send_orders(plan: Plan, steps: Sequence[StepPlan], wanted: Sequence[str]) -> tuple[SendOrder, ...]:
    """The order for each output that several ranks send. An output from one rank needs none: that rank sends in the
    order of its steps."""
    senders: dict[tuple[str, int], dict[tuple[int, Rank], None]] = {}
    for step in steps:
        walk = plan.walks[step.walk]
        for edge in walk.edges:
            if edge.target.kind == "out" and edge.target.port in wanted:
                sender = step.index, walk.uses[edge.source.use].rank
                senders.setdefault((edge.target.port, step.partition), {})[sender] = None
    return tuple(
        SendOrder(output=output, steps=tuple(step for step, _ in found), ranks=tuple(rank for _, rank in found))
        for (output, _), found in senders.items()
        if len({rank for _, rank in found}) > 1
    )


def steps_in_order(orders: Sequence[SendOrder], rank: Rank) -> frozenset[int]:
    """Steps whose outputs from this rank other ranks wait for."""
    return frozenset(
        step for one in orders for step, sender in zip(one.steps, one.ranks, strict=True) if sender == rank
    )
