"""Decides which outputs get digests: those that a cache may be searched by, which are the inputs of calls with a cache,
and whatever these are computed from. A digest takes longer than a small node, so all others have none."""

from walkgraph.placement.tables import EdgePlan, Plan, RankPlan, WalkPlan


def digested(plan: Plan, here: RankPlan) -> frozenset[str]:
    """Nodes on this rank whose outputs may reach a call with a cache here: as they are, through other calls, or through
    results and streams, which are all taken to lead there."""
    paged = {state.index for state in plan.states if state.kind == "paged_kv"}
    cached = {node.index for node in plan.nodes if not paged.isdisjoint(node.states.values())}
    reading = {
        (walk.index, use.index)
        for walk in plan.walks
        for use in walk.uses
        if use.rank == here.rank and use.node in cached
    }
    if not reading:
        return frozenset()
    found = {(walk.index, use) for walk in plan.walks for use in _leading(walk, reading)}
    return frozenset(
        plan.nodes[use.node].name
        for walk in plan.walks
        for use in walk.uses
        if (walk.index, use.index) in found and use.op == "call" and use.rank == here.rank
    )


def _leading(walk: WalkPlan, reading: set[tuple[int, int]]) -> set[int]:
    """The uses of a Walk whose values lead to one that reads a cache."""
    sources: dict[int, list[int]] = {}
    ends: list[int] = []
    for edge in walk.edges:
        if edge.source.kind != "use":
            continue
        if edge.target.kind == "use":
            sources.setdefault(edge.target.use, []).append(edge.source.use)
        if _may_lead(walk, edge, reading):
            ends.append(edge.source.use)
    found: set[int] = set()
    while ends:
        use = ends.pop()
        if use not in found:
            found.add(use)
            ends += sources.get(use, ())
    return found


def _may_lead(walk: WalkPlan, edge: EdgePlan, reading: set[tuple[int, int]]) -> bool:
    if edge.target.kind == "use":
        return (walk.index, edge.target.use) in reading
    return edge.target.kind in ("result", "stream")
