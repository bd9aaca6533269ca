"""The demand of a run's steps on each rank: the pages that it may fill, and the inputs that are read there."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.ids import Rank
from walkgraph.placement.capacity.facts import Facts, shared_branches
from walkgraph.placement.tables import (
    Branch,
    FromInput,
    FromLatest,
    Itinerary,
    Plan,
    Scalar,
    StatePlan,
    StepPlan,
)


class Kept(NamedTuple):
    """The most that a run may keep in a paged state at once."""

    tokens: int
    sequences: int
    """Sequences among which the tokens are divided evenly, each with pages of its own."""


class PageDemand(NamedTuple):
    """The most that a run may keep in paged states, on each rank."""

    always: dict[Rank, dict[int, Kept]]
    """Rank -> state -> what is kept whatever is chosen."""
    choices: tuple[tuple["PageDemand", ...], ...] = ()
    """For each choice, what each of its branches adds. One of them is taken."""


def work_of(demand: PageDemand, ranks: Iterable[Rank]) -> dict[Rank, int]:
    """The most tokens that a run keeps on each of its ranks; 1 where it keeps none. Of each choice the larger branch
    counts."""
    kept = _tokens_kept(demand)
    return {rank: max(1, kept[rank]) for rank in ranks}


def _tokens_kept(demand: PageDemand) -> Counter[Rank]:
    found = Counter({rank: sum(kept.tokens for kept in states.values()) for rank, states in demand.always.items()})
    for branches in demand.choices:
        larger = Counter[Rank]()
        for branch in branches:
            larger |= _tokens_kept(branch)
        found.update(larger)
    return found


def page_demand(plan: Plan, itinerary: Itinerary, params: Mapping[str, Scalar]) -> PageDemand:
    """The demand of a run's steps. A state that only one branch keeps, of a choice among steps or in a Walk, counts
    there, any other always.

    Raises InvalidInput where a capacity has no value with these parameters.
    """
    facts = Facts(plan)
    around: dict[tuple[Rank, int], tuple[_Case, ...]] = {}
    kept: dict[tuple[Rank, int], Kept] = {}
    for index, step in _distinct(plan, itinerary):
        for (state, rank), cases in facts[step.walk].places.items():
            if plan.states[state].kind == "paged_kv":
                of_walk = ((index, choice, branch) for choice, branch in cases)
                whole = (*((_STEPS, choice, branch) for choice, branch in step.cases), *of_walk)
                # A session may take another branch in its next run.
                inside = () if plan.states[state].scope == "session" else whole
                around[rank, state] = shared_branches(around.get((rank, state), inside), inside)
                here = kept_in(plan.states[state], params, facts[step.walk].copies.get(state, ()))
                kept[rank, state] = max(kept.get((rank, state), here), here)
    return _grouped({place: (cases, kept[place]) for place, cases in sorted(around.items())}, 0)


_Case = tuple[int, int, int]
"""The step whose Walk has the choice, or `_STEPS`; the choice; the branch."""
_STEPS = -1


def _distinct(plan: Plan, itinerary: Itinerary) -> Iterator[tuple[int, StepPlan]]:
    """Steps with their indices; of steps that demand the same, the first. Each run of a Walk chooses anew, so those of
    Walks with choices are all distinct."""
    seen: set[tuple[int, tuple[Branch, ...]]] = set()
    for index, step in enumerate(itinerary.steps):
        if plan.walks[step.walk].choices or (step.walk, step.cases) not in seen:
            seen.add((step.walk, step.cases))
            yield index, step


_Place = tuple[tuple[_Case, ...], Kept]
"""The branches around all uses of a state on a rank, and what it keeps there."""


def _grouped(found: Mapping[tuple[Rank, int], _Place], depth: int) -> PageDemand:
    """The demand of places with these branches around them. `depth`: the number of branches that they share."""
    always: dict[Rank, dict[int, Kept]] = {}
    inner: dict[tuple[int, int], dict[int, dict[tuple[Rank, int], _Place]]] = {}
    for (rank, state), (cases, kept) in found.items():
        if len(cases) == depth:
            always.setdefault(rank, {})[state] = kept
        else:
            step, choice, branch = cases[depth]
            inner.setdefault((step, choice), {}).setdefault(branch, {})[rank, state] = cases, kept
    choices = (tuple(_grouped(one, depth + 1) for _, one in sorted(found.items())) for found in inner.values())
    return PageDemand(always, tuple(choices))


def kept_in(state: StatePlan, params: Mapping[str, Scalar], maps: Sequence[Sequence[str]] = ()) -> Kept:
    """The most that a paged state keeps. `maps`: for each map whose items have a copy each, the limits to its items at
    once.

    Raises InvalidInput where an expression has no value.
    """
    copies = prod(max(1, min(_number(text, params, state.name) for text in limits)) for limits in maps)
    sequences = max(0, _number(state.width, params, state.name))
    return Kept(copies * state_tokens(state.name, state.capacity, state.width, params), copies * sequences)


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
            read = binding.name if isinstance(binding, FromInput) else ""
            read = binding.otherwise if isinstance(binding, FromLatest) else read
            for rank in facts[step.walk].readers.get(name, ()) if read else ():
                found[rank].add(read)
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
