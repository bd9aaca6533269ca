"""The twins of synthetic components without a rank, and itineraries of single Walks."""

from collections.abc import Callable
from typing import Any

from walkgraph.abi.calls import Call
from walkgraph.placement.tables import FromInput, Itinerary, Plan, StepPlan
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.reference.synthetic import twins
from walkgraph.simulation.simulator import Simulator


def functions(graph: Any) -> dict[str, Callable[[Call], dict[str, Any]]]:
    """Node -> function, for a graph of synthetic components; counters keep their states in a store of this call."""
    return twins(graph, StateStore(Simulator("alone", 0), (), 0))


def one_walk(plan: Plan, walk: str) -> Itinerary:
    """A run of one Walk, its inputs under their own names."""
    return lanes(plan, [(walk, False)])


def lanes(plan: Plan, walks: list[tuple[str, bool]]) -> Itinerary:
    """One step a lane; the flag says `per: chunk`. All streams are in use, and all outputs are wanted."""
    steps: list[StepPlan] = []
    for lane, (name, chunked) in enumerate(walks):
        walk = next(w for w in plan.walks if w.name == name and w.chunked == chunked)
        bindings = {n: FromInput(n) for n in walk.inputs}
        steps.append(StepPlan(index=lane, walk=walk.index, partition=lane, bindings=bindings))
    ranks = tuple(r.rank for r in plan.ranks)
    edges = [edge for step in steps for edge in plan.walks[step.walk].edges]
    read = {edge.source.index for edge in edges if edge.source.kind == "stream"}
    outputs = tuple(sorted({edge.target.port for edge in edges if edge.target.kind == "out"}))
    return Itinerary(steps=tuple(steps), outputs=outputs, ranks=ranks, streams=tuple(sorted(read)))
