"""Joins chains of small nodes to one call: each of them gives its values to the next one alone, and all run on the
host's processor.

The last use of a chain stands for it: it waits for all that enters the chain from outside, under the names `use.port`.
The others have no rank any more, and the edges between them carry nothing. A walker then moves once for the whole
chain, and the engine makes its calls one after the other.

Nothing can be seen or held inside a chain, so runs that are watched have tables without.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from walkgraph.ids import Rank
from walkgraph.placement.tables import EdgePlan, EdgeSource, Plan, Target, UsePlan, WalkPlan
from walkgraph.worker.tables.use_ends import UseEnds

MOST = 16
"""The most calls in one, so that other work of the rank doesn't wait for long."""
_NO_RANK = Rank(-1)
Chain = tuple[int, ...]
"""Its uses, in order."""


def chains(plan: Plan, walk: WalkPlan, ends: UseEnds, rank: Rank) -> Iterator[Chain]:
    """The chains of two and more uses on a rank."""
    if walk.chunked:
        return
    judging = {use for loop in walk.loops for use, _ in loop.endings}
    device = next(one.device for one in plan.ranks if one.rank == rank)
    small = {use.index: None for use in walk.uses if _is_small(plan, use, ends, rank, device)}
    while small:
        chain = [next(iter(small))]
        del small[chain[0]]
        while len(chain) < MOST and chain[-1] not in judging:
            after = _next(walk, chain[-1], ends)
            if after not in small:
                break
            del small[after]
            chain.append(after)
        if len(chain) > 1:
            yield tuple(chain)


def joined(walk: WalkPlan, found: Mapping[int, Chain]) -> WalkPlan:
    """The Walk as walkers see it. `found`: chains by their last use."""
    last = {use: end for end, chain in found.items() for use in chain}

    def changed(edge: EdgePlan) -> EdgePlan:
        end = last.get(edge.target.use) if edge.target.kind == "use" else None
        if end is None:
            return edge
        if is_inside(edge, found[end]):
            return replace(edge, target=replace(edge.target, use=found[end][0]))
        target = Target(kind="use", use=end, port=entrance(walk, edge), modality=edge.target.modality)
        return replace(edge, target=target)

    uses = (use if last.get(use.index, use.index) == use.index else replace(use, rank=_NO_RANK) for use in walk.uses)
    return replace(walk, uses=tuple(uses), edges=tuple(map(changed, walk.edges))) if found else walk


def is_inside(edge: EdgePlan, chain: Chain) -> bool:
    """True if an edge joins two calls of a chain in one iteration."""
    ends = (edge.source.use if edge.source.kind == "use" else -1, edge.target.use)
    return not edge.carried and ends[0] in chain and ends[1] in chain


def entrance(walk: WalkPlan, edge: EdgePlan) -> str:
    """The port of a standing use for what enters its chain over an edge: `use.port`."""
    return f"{walk.uses[edge.target.use].name}.{edge.target.port}"


def _is_small(plan: Plan, use: UsePlan, ends: UseEnds, rank: Rank, device: str) -> bool:
    if use.rank != rank or use.op != "call" or use.when:
        return False
    node = plan.nodes[use.node]
    if node.cost != "launch" or not node.network or not (node.host or device == "cpu"):
        return False
    edges = (*ends.entering.get(use.index, ()), *ends.leaving.get(use.index, ()))
    streamed = any("stream" in (edge.source.kind, edge.target.kind) for edge in edges)
    return not (node.task or node.states or node.kept or streamed)


def _next(walk: WalkPlan, use: int, ends: UseEnds) -> int:
    """The use that alone takes what a use gives, if all else that it reads is there from the beginning; otherwise
    -1."""
    targets = {edge.target.use if edge.target.kind == "use" else -1 for edge in ends.leaving.get(use, ())}
    after = targets.pop() if len(targets) == 1 else -1
    if after <= use:
        return -1
    one, other = walk.uses[use], walk.uses[after]
    alike = (one.loops, one.cases) == (other.loops, other.cases)
    plain = alike and all(_is_plain(edge, use, len(one.loops)) for edge in ends.entering.get(after, ()))
    return after if plain else -1


def _is_plain(edge: EdgePlan, use: int, depth: int) -> bool:
    if edge.carried or edge.merged or edge.enter_each:
        return False
    match edge.source:
        case EdgeSource(kind="use", use=source):
            return source == use and edge.leave == "none" and edge.common == depth
        case EdgeSource(kind="input" | "loop"):
            return True
        case _:
            return False
