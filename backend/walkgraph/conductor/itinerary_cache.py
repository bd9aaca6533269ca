"""Caches itineraries: most requests differ only in values that no itinerary depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from walkgraph.graph.document import Graph, Task
from walkgraph.graph.language.expressions import parse
from walkgraph.graph.steps import bindings_of, choices_of, expressions_of
from walkgraph.graph.turns import walks_turns
from walkgraph.ids import Rank
from walkgraph.placement.capacity.demand import PageDemand, inputs_read, page_demand, work_of
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.itinerary import Expanded, Resumed, expanded_request, legs_of
from walkgraph.placement.request import Given, reads_calls
from walkgraph.placement.tables import Itinerary, Plan, Scalar
from walkgraph.wire import messages as m
from walkgraph.wire.legs import text_of

REMEMBERED = 256
"""Cached itineraries, for each alternative of the plan."""
STEPS = 256
"""Most steps of a cached itinerary."""

_TASK = "@task."
_Key = tuple[object, ...]


class CachedItinerary(NamedTuple):
    expanded: Expanded
    reads: Mapping[Rank, frozenset[str]]
    """Rank -> names of the input values that its steps read."""
    tokens: PageDemand
    work: Mapping[Rank, int]


class _Walked(NamedTuple):
    """The parts of a conversation that a task's steps read."""

    turns: bool
    calls: bool

    def kinds(self, given: Sequence[Given]) -> _Key:
        """The facts about a request's values on which an itinerary can depend."""
        kinds: list[object] = []
        for one in given:
            if one.turn is None or self.turns:
                turns = one.turns if self.turns else ()
                if not self.calls:
                    # Whether there are calls still counts: the task refuses them.
                    turns = tuple(replace(turn, calls="c" if turn.calls else "") for turn in turns)
                kinds.append((one.name, one.input, one.modality, turns))
        return tuple(kinds)


class ItineraryCache:
    """The cache of one graph and plan."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph, self.plan = graph, plan
        self._facts = tuple(Facts(plan, one.index) for one in plan.alternatives)
        self._known: dict[_Key, CachedItinerary] = {}
        self._deciding = {name: _deciding(task, plan) for name, task in graph.tasks.items()}
        self._walked = {name: _Walked(walks_turns(task), reads_calls(task)) for name, task in graph.tasks.items()}

    def of(
        self, submit: m.Submit, params: Mapping[str, Scalar], given: tuple[Given, ...], alternative: int = 0
    ) -> CachedItinerary:
        """The itinerary of a request in an alternative of the plan. `params`: with defaults; `given`: the named values
        of `submit`. Raises as `expand` and `page_demand` do."""
        # The types are part of the key: 1, 1.0 and True are equal, but steps distinguish them.
        if submit.resumed is not None:
            return self._found(submit, params, given, alternative)
        values = tuple((type(params[name]), params[name]) for name in self._deciding[submit.task])
        kinds = self._walked[submit.task].kinds(given)
        key = (alternative, submit.task, submit.outputs, values, kinds)
        found = self._known.get(key)
        if found is None:
            found = self._found(submit, params, given, alternative)
            if len(found.expanded.itinerary.steps) <= STEPS:
                if len(self._known) >= REMEMBERED * len(self._facts):
                    del self._known[next(iter(self._known))]
                self._known[key] = found
        return found

    def legs(
        self,
        submit: m.Submit,
        params: Mapping[str, Scalar],
        given: tuple[Given, ...],
        found: Expanded,
        alternative: int = 0,
    ) -> tuple[Itinerary, Legs | None]:
        """The first itinerary of a request's ranks, and the legs that follow."""
        return legs_of(self._facts[alternative], self.graph.tasks[submit.task], params, given, found, _resumed(submit))

    def _found(
        self, submit: m.Submit, params: Mapping[str, Scalar], given: tuple[Given, ...], alternative: int
    ) -> CachedItinerary:
        plan, task = self.plan, self.graph.tasks[submit.task]
        expanded = expanded_request(self._facts[alternative], task, params, given, submit.outputs, _resumed(submit))
        itinerary = expanded.itinerary
        tokens = page_demand(plan, itinerary, params)
        return CachedItinerary(expanded, inputs_read(plan, itinerary), tokens, work_of(tokens, itinerary.ranks))


def _resumed(submit: m.Submit) -> Resumed | None:
    if submit.resumed is None:
        return None
    texts = {name: text for name, value in submit.resumed.kept.items() if (text := text_of(value)) is not None}
    return Resumed(submit.resumed.answers, submit.resumed.texts | texts)


def _deciding(task: Task, plan: Plan) -> tuple[str, ...]:
    """Parameters that an itinerary may depend on: those in the steps' conditions and bindings, and in states' sizes."""
    names: set[str] = set()
    for text in expressions_of(task):
        names |= parse(text).names
    names |= {str(binding).removeprefix(_TASK) for binding in bindings_of(task) if str(binding).startswith(_TASK)}
    names |= {choice.step.choose.removeprefix(_TASK) for choice in choices_of(task)}
    for state in plan.states:
        names |= parse(state.width).names
        names |= parse(state.capacity).names if state.capacity is not None else frozenset()
    return tuple(sorted(names & {*task.params, "seed"}))
