"""The demand of a run's steps on each rank: the pages that it may fill, and the inputs that are read there."""

from collections.abc import Mapping
from typing import NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.ids import Rank
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.tables import Branch, FromInput, Itinerary, Plan, Scalar


class PageDemand(NamedTuple):
    """The most tokens that a run may keep in paged states, on each rank: capacity times width."""

    always: dict[Rank, dict[int, int]]
    """Rank -> state -> tokens, whatever is chosen."""
    choices: tuple[tuple["PageDemand", ...], ...] = ()
    """For each choice, what each of its branches adds. One of them is taken."""


def page_demand(plan: Plan, itinerary: Itinerary, params: Mapping[str, Scalar]) -> PageDemand:
    """The demand of a run's steps. A state that only steps of one branch keep counts there, any other always.

    Raises InvalidInput where a capacity has no value with these parameters.
    """
    facts = Facts(plan)
    around: dict[tuple[Rank, int], tuple[Branch, ...]] = {}
    for walk, cases in dict.fromkeys((step.walk, step.cases) for step in itinerary.steps):
        for state, rank in facts[walk].places:
            if plan.states[state].kind == "paged_kv":
                # A session may take another branch in its next run.
                inside = () if plan.states[state].scope == "session" else cases
                around[rank, state] = _shared(around.get((rank, state), inside), inside)
    tokens: dict[int, int] = {}
    for state in sorted({state for _, state in around}):
        table = plan.states[state]
        tokens[state] = state_tokens(table.name, table.capacity, table.width, params)
    return _grouped({place: (cases, tokens[place[1]]) for place, cases in sorted(around.items())}, 0)


def _grouped(found: Mapping[tuple[Rank, int], tuple[tuple[Branch, ...], int]], depth: int) -> PageDemand:
    """The demand of places with these branches around them. `depth`: the number of branches that they share."""
    always: dict[Rank, dict[int, int]] = {}
    inner: dict[int, dict[int, dict[tuple[Rank, int], tuple[tuple[Branch, ...], int]]]] = {}
    for (rank, state), (cases, tokens) in found.items():
        if len(cases) == depth:
            always.setdefault(rank, {})[state] = tokens
        else:
            choice, branch = cases[depth]
            inner.setdefault(choice, {}).setdefault(branch, {})[rank, state] = cases, tokens
    choices = (tuple(_grouped(one, depth + 1) for _, one in sorted(found.items())) for found in inner.values())
    return PageDemand(always, tuple(choices))


def _shared(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> tuple[Branch, ...]:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return one[:count]


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
