"""How every edge and stream of a graph travels under a plan: what the editor draws on them."""

from collections.abc import Iterator
from dataclasses import dataclass

from walkgraph.graph.document import Graph
from walkgraph.graph.structure import structures
from walkgraph.ids import Rank
from walkgraph.placement.tables import EdgePlan, Plan, Transport, WalkPlan


@dataclass(frozen=True)
class TravelRoute:
    walk: str | None
    """Of an edge."""
    stream: str | None
    pointer: str
    """JSON pointer of the edge, or stream, in the graph as the author wrote it."""
    source: Rank
    target: Rank
    """An end that is no use (a Walk's input, a loop's index, the client) counts as on the other end's rank."""
    transport: Transport


def routes(graph: Graph, plan: Plan) -> list[TravelRoute]:
    """Those of every Walk in the document's order, then one of every stream for each pair of ranks that it joins.

    `plan` is of this graph, which `check` accepts: its Walks' tables then start with one row an edge.
    """
    found: list[TravelRoute] = []
    for walk, structure in zip(plan.walks, structures(graph).values(), strict=False):
        for route in structure.routes:
            edge = walk.edges[route.index]
            source, target = _ranks(walk, edge)
            pointer = f"/walks/{walk.name}{route.pointer}"
            found.append(TravelRoute(walk.name, None, pointer, source, target, edge.transport))
    found.extend(_streams(plan))
    return found


def _ranks(walk: WalkPlan, edge: EdgePlan) -> tuple[Rank, Rank]:
    source = walk.uses[edge.source.use].rank if edge.source.kind == "use" else None
    target = walk.uses[edge.target.use].rank if edge.target.kind == "use" else None
    here = source if source is not None else target if target is not None else walk.ranks[0]
    return here, target if target is not None else here


def _streams(plan: Plan) -> Iterator[TravelRoute]:
    for stream in plan.streams:
        ways: dict[tuple[Rank, Rank], Transport] = {}
        for walk in plan.walks:
            for edge in walk.edges:
                if edge.target.kind == "stream" and edge.target.index == stream.index:
                    here = walk.uses[edge.source.use].rank
                    ways |= {(here, there): "local" if here == there else edge.transport for there in stream.consumers}
        pointer = f"/streams/{stream.index}"
        yield from (TravelRoute(None, stream.name, pointer, *pair, way) for pair, way in ways.items())
