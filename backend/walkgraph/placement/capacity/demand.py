"""The demand of a run's steps on each rank: the pages that it may fill, and the inputs that are read there."""

from collections.abc import Mapping

from walkgraph.errors import InvalidInput
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.ids import Rank
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.tables import FromInput, Itinerary, Plan, Scalar


def page_demand(plan: Plan, itinerary: Itinerary, params: Mapping[str, Scalar]) -> dict[Rank, dict[int, int]]:
    """Rank -> paged state -> the most tokens that the run may keep there: capacity times width.

    Raises InvalidInput where a capacity has no value with these parameters.
    """
    facts = Facts(plan)
    found: dict[Rank, dict[int, int]] = {}
    tokens: dict[int, int] = {}
    for walk in dict.fromkeys(step.walk for step in itinerary.steps):
        for state, rank in sorted(facts[walk].places):
            table = plan.states[state]
            if table.kind == "paged_kv":
                if state not in tokens:
                    tokens[state] = state_tokens(table.name, table.capacity, table.width, params)
                found.setdefault(rank, {})[state] = tokens[state]
    return found


def state_tokens(name: str, capacity: str | None, width: str, params: Mapping[str, Scalar]) -> int:
    """The most tokens that a paged state may hold; raises InvalidInput where the expressions have no value."""
    sizes = [_number(text, params, name) for text in (capacity or "0", width)]
    return max(0, sizes[0]) * max(0, sizes[1])


def whole_pages(tokens: int, width: int, page: int) -> int:
    """Pages of `page` tokens for `tokens` tokens in `width` sequences of equal length, each with pages of its own."""
    return width * -(-tokens // (width * page)) if tokens else 0


def inputs_read(plan: Plan, itinerary: Itinerary) -> dict[Rank, frozenset[str]]:
    """Each rank that takes part -> names of the input values that its uses read."""
    facts = Facts(plan)
    found: dict[Rank, set[str]] = {rank: set() for rank in itinerary.ranks}
    for step in itinerary.steps:
        for name, binding in step.bindings.items():
            if isinstance(binding, FromInput):
                for rank in facts[step.walk].readers.get(name, ()):
                    found[rank].add(binding.name)
    return {rank: frozenset(names) for rank, names in found.items()}


def _number(text: str, params: Mapping[str, Scalar], state: str) -> int:
    try:
        value = evaluate(parse(text), params)
    except ExpressionError as error:
        raise InvalidInput(
            f"the size of state `{state}` has no value with these parameters: {error}", "/params"
        ) from None
    if isinstance(value, str):
        raise InvalidInput(f"the size of state `{state}` is a text; write a number", "/params")
    return int(-(-value // 1))
