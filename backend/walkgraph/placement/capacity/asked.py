"""The tokens that a request of a graph's tasks keeps in paged states: with default parameters, or with the largest."""

from collections.abc import Iterator, Mapping

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Graph, Task
from walkgraph.graph.steps import steps_of
from walkgraph.ids import Rank
from walkgraph.placement.capacity.demand import kept_in, whole_pages
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.request import declared_params
from walkgraph.placement.tables import Plan, Scalar, StatePlan

PAGE = 16
"""Tokens that a paged state grows by."""


def tokens_asked(graph: Graph, plan: Plan, *, largest: bool) -> dict[Rank, dict[int, int]]:
    """Rank -> paged state -> the most tokens that a request of any task keeps there."""
    alternatives = [Facts(plan, one.index) for one in plan.alternatives]
    found: dict[Rank, dict[int, int]] = {}
    for task in graph.tasks.values():
        params = _params(task, largest=largest)
        for state, rank, maps in (place for facts in alternatives for place in _places(facts, task)):
            tokens = _tokens(plan.states[state], params, maps)
            states = found.setdefault(rank, {})
            states[state] = max(states.get(state, 0), tokens)
    return {rank: dict(sorted(states.items())) for rank, states in found.items()}


def _places(facts: Facts, task: Task) -> Iterator[tuple[int, Rank, tuple[tuple[str, ...], ...]]]:
    """Every paged state of the task's steps, with every rank that holds it and the limits of the maps around it."""
    walks = {(walk.name, walk.chunked): walk.index for walk in facts.walks}
    for step in steps_of(task):
        index = walks.get((step.step.walk, step.step.per == "chunk"))
        if index is not None:
            for state, rank in facts[index].places:
                if facts.plan.states[state].kind == "paged_kv":
                    yield state, rank, facts[index].copies.get(state, ())


def _tokens(state: StatePlan, params: Mapping[str, Scalar], maps: tuple[tuple[str, ...], ...]) -> int:
    """Tokens of a state, rounded up to whole pages."""
    try:
        kept = kept_in(state, params, maps)
        return PAGE * whole_pages(kept.tokens, kept.sequences, PAGE)
    except InvalidInput:
        return 0  # the graph's check reports a capacity that can't be computed


def _params(task: Task, *, largest: bool) -> dict[str, Scalar]:
    """Every parameter at its default, or at its largest value; parameters without that value are left out."""
    found: dict[str, Scalar] = {"seed": 0}
    for name, param in declared_params(task).items():
        numeric = param.type in {"integer", "number"}
        value = param.max if largest and numeric and param.max is not None else param.default
        value = param.min if value is None and numeric else value
        if value is not None:
            found[name] = int(value) if param.type == "integer" else value
    return found
