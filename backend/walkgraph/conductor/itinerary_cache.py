"""Caches itineraries: most requests differ only in values that no itinerary depends on.

What a request asks for is read once; its itinerary differs by the alternative of the plan in which it goes.
"""

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
from walkgraph.placement.request import Given, fill_params, name_inputs, reads_calls, task_of
from walkgraph.placement.tables import Itinerary, Plan, Scalar
from walkgraph.wire import messages as m
from walkgraph.wire.legs import text_of

REMEMBERED = 256
"""Requests whose itineraries are cached, in every alternative of the plan."""
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


class Asked(NamedTuple):
    """What a client asks for, checked and named."""

    submit: m.Submit
    params: dict[str, Scalar]
    """All of them, with defaults."""
    given: tuple[Given, ...]
    """The named values."""
    key: _Key | None
    """Requests with equal keys have the same itineraries; None: no other request has this one's."""
    found: dict[int, CachedItinerary]
    """Alternative of the plan -> its itinerary there, if it was looked for. Requests with equal keys share it."""


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
        self._known: dict[_Key, dict[int, CachedItinerary]] = {}
        self._deciding = {name: _deciding(task, plan) for name, task in graph.tasks.items()}
        self._walked = {name: _Walked(walks_turns(task), reads_calls(task)) for name, task in graph.tasks.items()}

    def asked(self, submit: m.Submit, seed: int) -> Asked:
        """Read a request. `seed` is used if the client gives none. Raises InvalidInput or NotFound with a pointer."""
        task = task_of(self.graph, submit.task)
        params = fill_params(task, {"seed": seed, **submit.params})
        given = name_inputs(task, submit.inputs, submit.parts)
        if submit.resumed is not None:
            return Asked(submit, params, given, None, {})
        # The types are part of the key: 1, 1.0 and True are equal, but steps distinguish them.
        values = tuple((type(params[name]), params[name]) for name in self._deciding[submit.task])
        key = (submit.task, submit.outputs, values, self._walked[submit.task].kinds(given))
        return Asked(submit, params, given, key, self._known.get(key, {}))

    def of(self, asked: Asked, alternative: int = 0) -> CachedItinerary:
        """The itinerary of a request in an alternative of the plan. Raises as `expand` and `page_demand` do."""
        found = asked.found.get(alternative)
        if found is None:
            found = asked.found[alternative] = self._found(asked, alternative)
            if asked.key is not None and len(found.expanded.itinerary.steps) <= STEPS:
                self._keep(asked.key, asked.found)
        return found

    def legs(self, asked: Asked, found: Expanded, alternative: int = 0) -> tuple[Itinerary, Legs | None]:
        """The first itinerary of a request's ranks, and the legs that follow."""
        facts, task = self._facts[alternative], self.graph.tasks[asked.submit.task]
        return legs_of(facts, task, asked.params, asked.given, found, _resumed(asked.submit))

    def _keep(self, key: _Key, found: dict[int, CachedItinerary]) -> None:
        if key not in self._known and len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known.setdefault(key, found)

    def _found(self, asked: Asked, alternative: int) -> CachedItinerary:
        plan, submit, task = self.plan, asked.submit, self.graph.tasks[asked.submit.task]
        expanded = expanded_request(
            self._facts[alternative], task, asked.params, asked.given, submit.outputs, _resumed(submit)
        )
        itinerary = expanded.itinerary
        tokens = page_demand(plan, itinerary, asked.params)
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
