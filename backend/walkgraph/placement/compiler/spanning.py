"""Whether the core of a loop may lie on several ranks: its devices then hand each other the values by themselves.

Whoever reads a value has room for one at a time, so that nobody may be ahead of it. Therefore all values go through one
rank, which *leads*: it hands the next value to a use elsewhere only after it has read that use's answer.
"""

from collections.abc import Collection, Sequence

from walkgraph.ids import Rank
from walkgraph.placement.tables import EdgePlan, LoopPlan, Plan, UsePlan, WalkPlan


def leader(uses: Sequence[UsePlan]) -> Rank:
    """Of a core."""
    return min(use.rank for use in uses)


def crossing(walk: WalkPlan, uses: Sequence[UsePlan]) -> list[EdgePlan]:
    """Edges of a core whose ends are on two ranks."""
    ranks = {use.index: use.rank for use in uses}
    return [
        edge
        for edge in walk.edges
        if edge.source.kind == "use"
        and edge.source.use in ranks
        and edge.target.use in ranks
        and ranks[edge.source.use] != ranks[edge.target.use]
    ]


def against_spanning(
    walk: WalkPlan, loop: LoopPlan, uses: Sequence[UsePlan], always: Collection[int], leading: Rank
) -> str:
    """Why a core on GPUs of several ranks can't be iterated by them, as the end of a sentence about it; empty where it
    can. `always`: uses without conditions of their own. `leading`: the only rank that leads such loops in the plan."""
    leads = leader(uses)
    if leads != leading:
        return f"what spans GPUs is led from rank {leading}"
    if loop.until is not None:
        return "a value ends it"
    edges = crossing(walk, uses)
    for edge in edges:
        if leads not in (walk.uses[edge.source.use].rank, walk.uses[edge.target.use].rank):
            return f"{_ends(walk, edge)} meet without rank {leads}, which leads"
        if why := _fed_otherwise(walk, loop, edge):
            return why
    for use in uses:
        if use.rank != leads and (why := _unanswered(walk, use, edges, always)):
            return why
    return ""


def _fed_otherwise(walk: WalkPlan, loop: LoopPlan, edge: EdgePlan) -> str:
    """A port is fed from another rank alone, but for a whole value that it begins with."""
    for other in walk.edges:
        if other.index == edge.index or other.target != edge.target:
            continue
        outer = other.common < len(walk.uses[edge.target.use].loops) and other.source.index != loop.index
        if not edge.carried or not outer or other.carried or other.enter_each:
            name = walk.uses[edge.target.use].name
            return f"`{name}.{edge.target.port}` is fed from another rank and in another way"
    return ""


def _unanswered(walk: WalkPlan, use: UsePlan, edges: Sequence[EdgePlan], always: Collection[int]) -> str:
    """Every value for a use elsewhere comes behind an answer of it that is read in all its iterations."""
    told = [edge for edge in edges if edge.target.use == use.index]
    answers = [
        edge.target.use
        for edge in edges
        if edge.source.use == use.index and not edge.carried and edge.target.use in always
    ]
    if not any(edge.source.use in always for edge in told):
        return f"`{use.name}` is not told by the rank that leads, in all iterations, to go on"
    if not answers:
        return f"nothing waits for `{use.name}` in all iterations"
    for edge in told:
        if edge.carried and min(answers) > edge.source.use:
            return f"`{walk.uses[edge.source.use].name}` may be ahead of `{use.name}`"
    return ""


def _ends(walk: WalkPlan, edge: EdgePlan) -> str:
    return f"`{walk.uses[edge.source.use].name}` and `{walk.uses[edge.target.use].name}`"


def spanning_ranks(plan: Plan) -> set[Rank]:
    """That have parts of such loops."""
    found: set[Rank] = set()
    for walk in plan.walks:
        for loop in walk.loops:
            ranks = {walk.uses[use].rank for use in loop.core}
            found |= ranks if len(ranks) > 1 else set()
    return found
