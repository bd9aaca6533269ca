"""How every edge, stream and result of a graph travels under a plan, as the editor draws and lists it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from walkgraph.graph.document import Graph
from walkgraph.graph.steps import handings
from walkgraph.graph.structure import structures
from walkgraph.ids import Rank
from walkgraph.placement.tables import LOCAL, EdgePlan, Plan, WalkPlan


@dataclass(frozen=True)
class TravelRoute:
    walk: str | None
    """The edge's Walk; None for a stream."""
    stream: str | None
    pointer: str
    """JSON pointer to the edge or stream in the author's graph."""
    source: Rank
    target: Rank
    """An end that isn't a use (a Walk's input, a loop's index, the client) counts as on the other end's rank."""
    transport: str


@dataclass(frozen=True)
class HandedRoute:
    """The route of a step's result to a later step."""

    task: str
    pointer: str
    """JSON pointer to the binding in the graph."""
    result: str
    """`read.pixels`: Walk and result."""
    input: str
    """`see.image`: Walk and input."""
    source: Rank
    target: Rank
    transport: str


def handed(graph: Graph, plan: Plan) -> list[HandedRoute]:
    """Results that the tasks' steps take from earlier ones: one route for each rank that reads the result, with any
    replicas."""
    found: dict[HandedRoute, None] = {}
    for alternative in plan.alternatives:
        walks = {walk.name: walk for walk in reversed(plan.walks_of(alternative.index))}
        found.update(dict.fromkeys(_handed(graph, walks)))
    return list(found)


def _handed(graph: Graph, walks: Mapping[str, WalkPlan]) -> Iterator[HandedRoute]:
    for task, declared in graph.tasks.items():
        for at, name, producer, result in handings(declared):
            pointer = f"/tasks/{task}{at.pointer}/with/{name}"
            given, read = f"{producer}.{result}", f"{at.step.walk}.{name}"
            for source, target, transport in _handovers(walks.get(producer), result, walks.get(at.step.walk), name):
                yield HandedRoute(task, pointer, given, read, source, target, transport)


def _handovers(
    producer: WalkPlan | None, result: str, reader: WalkPlan | None, name: str
) -> Iterator[tuple[Rank, Rank, str]]:
    """(source, target, transport) from a result's rank to each rank whose uses read it as an input."""
    if producer is None or reader is None:
        return
    readers = {
        reader.uses[edge.target.use].rank
        for edge in reader.edges
        if (edge.source.kind, edge.source.port, edge.target.kind) == ("input", name, "use")
    }
    for edge in producer.edges:
        if (edge.target.kind, edge.target.port) == ("result", result):
            source = producer.uses[edge.source.use].rank if edge.source.kind == "use" else producer.ranks[0]
            for target in sorted(readers):
                yield source, target, LOCAL if source == target else edge.transport


def routes(graph: Graph, plan: Plan) -> list[TravelRoute]:
    """Routes of every Walk in the document's order, then of every stream, one for each pair of ranks that it joins,
    with any replicas.

    `plan` must belong to this graph, which `check` accepts: its Walks' tables then begin with one row per route.
    """
    found: dict[TravelRoute, None] = {}
    walked = structures(graph).values()
    for alternative in plan.alternatives:
        for walk, structure in zip(plan.walks_of(alternative.index), walked, strict=False):
            for route, edge in zip(structure.routes, walk.edges, strict=False):
                source, target = _ranks(walk, edge)
                pointer = f"/walks/{walk.name}{route.pointer}"
                found[TravelRoute(walk.name, None, pointer, source, target, edge.transport)] = None
    for alternative in plan.alternatives:
        found.update(dict.fromkeys(_streams(plan, alternative.index)))
    return list(found)


def _ranks(walk: WalkPlan, edge: EdgePlan) -> tuple[Rank, Rank]:
    source = walk.uses[edge.source.use].rank if edge.source.kind == "use" else None
    target = walk.uses[edge.target.use].rank if edge.target.kind == "use" else None
    here = source if source is not None else target if target is not None else walk.ranks[0]
    return here, target if target is not None else here


def _streams(plan: Plan, alternative: int) -> Iterator[TravelRoute]:
    for place, stream in enumerate(plan.streams_of(alternative)):
        transports: dict[tuple[Rank, Rank], str] = {}
        for walk in plan.walks_of(alternative):
            for edge in walk.edges:
                if edge.target.kind == "stream" and edge.target.index == stream.index:
                    here = walk.uses[edge.source.use].rank
                    transports |= {
                        (here, there): LOCAL if here == there else edge.transport for there in stream.consumers
                    }
        pointer = f"/streams/{place}"
        yield from (TravelRoute(None, stream.name, pointer, *pair, transport) for pair, transport in transports.items())
