"""From drafts to steps: numbers them, and adds the moves of the states that they find on another rank.

Within a branch of a choice states may move too. At its end they return to where they were before the choice, so that
what follows doesn't depend on the branch; a state that has its first place in a branch keeps that place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from walkgraph.ids import Rank
from walkgraph.placement.capacity.facts import Facts, WalkFacts
from walkgraph.placement.tables import (
    Binding,
    Branch,
    FromInput,
    FromLatest,
    FromStep,
    Scalar,
    StepChoice,
    StepPlan,
)

Key = tuple[int, str, int]
"""A step of the task, the part and the turn that it stands in: equal in all passes of a loop."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A step before it has its number. `FromStep` counts drafts here, not steps."""

    walk: int
    partition: int
    facts: WalkFacts
    bindings: dict[str, Binding]
    cases: tuple[Branch, ...]
    key: Key = (0, "", -1)
    ends: tuple[int, ...] = ()
    """The choices by which the loops around it might have ended before."""
    passes: tuple[int, ...] = ()
    asked: int = 0
    """The number of approvals that are certain to come before it."""


@dataclass(frozen=True, slots=True)
class ChoiceDraft:
    source: FromStep | FromLatest
    values: tuple[str, ...]
    otherwise: int = -1
    """The branch where none of the sources is taken, as in `StepChoice`."""
    reasons: tuple[str, ...] = ()
    """As in `StepChoice`."""


def sources_of(binding: Binding | None) -> tuple[FromStep, ...]:
    """The results that a binding may take."""
    match binding:
        case FromStep():
            return (binding,)
        case FromLatest():
            return binding.steps
        case _:
            return ()


def kept_name(sources: Sequence[FromStep]) -> str:
    """The input by which a run that goes on after an approval gets the result of these drafts."""
    return "@" + "+".join(f"{source.step}.{source.result}" for source in sources)


def as_text(value: Scalar) -> str:
    """A value as a case of a choice names it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Moves:
    def __init__(self, facts: Facts, since: int = 0) -> None:
        """`since`: the first draft. The results of those before it were kept while a person was asked."""
        plan = facts.plan
        self._since = since
        self._facts, self._plan = facts, plan
        self._moves = {walk.name: walk.index for walk in facts.walks if walk.name.startswith("move:")}
        self._rests = _rests(facts) if self._moves else {}
        self._places = dict(self._rests)
        """State -> its rank after the steps so far."""
        self._before: dict[int, dict[int, Rank]] = {}
        """Choice -> the places when it is made."""
        self._first: dict[int, dict[int, Rank]] = {}
        """Choice -> places of states that have their first in one of its branches."""
        self._inside: tuple[Branch, ...] = ()
        """The branches around the latest step."""
        self._partition = 0
        self._steps: list[StepPlan] = []
        self._numbers: dict[int, int] = {}
        """Draft -> its step."""

    def added(self, drafts: Mapping[int, Draft], *, more: bool = False) -> tuple[StepPlan, ...]:
        """The steps of these drafts, in order, each preceded by its moves. Unless `more` drafts follow, a session's
        states return at the end to where they rest."""
        before = len(self._steps)
        for number, draft in drafts.items():
            self._inside = self._enter(self._inside, draft.cases, self._partition)
            self._partition = draft.partition
            self._add(number, draft)
        if not more:
            self._enter(self._inside, (), self._partition)
            for state, rank in self._rests.items():
                if self._places[state] != rank:
                    self._carry(state, rank, _last_partition(self._facts, self._steps, state), ())
        return tuple(self._steps[before:])

    def numbers(self, drafts: Iterable[int]) -> tuple[int, ...]:
        """The steps of those drafts that are needed."""
        return tuple(sorted({self._numbers[draft] for draft in drafts if draft in self._numbers}))

    def renumbered(self, choice: ChoiceDraft, index: int) -> StepChoice:
        """The choice among steps; drafts that aren't needed have no step."""
        return StepChoice(
            index=index,
            sources=self.sources(choice.source),
            cases=choice.values,
            otherwise=choice.otherwise,
            reasons=choice.reasons,
        )

    def sources(self, binding: Binding) -> tuple[FromStep, ...]:
        """The results among steps that a binding may take."""
        known = [source for source in sources_of(binding) if source.step in self._numbers]
        return tuple(FromStep(self._numbers[one.step], one.result) for one in known)

    def _add(self, number: int, draft: Draft) -> None:
        for state, rank in draft.facts.homes.items() if self._moves else ():
            if state in self._places and state not in draft.facts.replaced:
                self._carry(state, rank, draft.partition, draft.cases)
            self._places[state] = rank
        self._numbers[number] = len(self._steps)
        bindings = {name: self._renumbered(binding) for name, binding in draft.bindings.items()}
        self._steps.append(
            StepPlan(
                index=len(self._steps),
                walk=draft.walk,
                partition=draft.partition,
                bindings=bindings,
                cases=draft.cases,
                passes=draft.passes,
            )
        )

    def _enter(self, inside: tuple[Branch, ...], cases: tuple[Branch, ...], partition: int) -> tuple[Branch, ...]:
        """Leave branches and enter others."""
        while inside != cases[: len(inside)]:
            choice, places = inside[-1][0], dict(self._before[inside[-1][0]])
            first = self._first[choice]
            for state, rank in list(self._places.items()):
                wanted = places.get(state, first.setdefault(state, rank))
                if rank != wanted:
                    self._carry(state, wanted, partition, inside)
            self._places = {**first, **places}
            inside = inside[:-1]
        for choice, _ in cases[len(inside) :]:
            self._places = dict(self._before.setdefault(choice, dict(self._places)))
            self._first.setdefault(choice, {})
        return cases

    def _carry(self, state: int, target: Rank, partition: int, cases: tuple[Branch, ...]) -> None:
        source = self._places[state]
        walk = self._moves.get(f"move:{self._plan.states[state].name}:{source}>{target}")
        if walk is not None and source != target:
            index = len(self._steps)
            self._steps.append(StepPlan(index=index, walk=walk, partition=partition, bindings={}, cases=cases))

    def _renumbered(self, binding: Binding) -> Binding:
        sources = sources_of(binding)
        kept = [source for source in sources if source.step < self._since]
        if kept and len(kept) == len(sources):
            return FromInput(kept_name(kept))
        known = self.sources(binding)
        if isinstance(binding, FromStep) and known:
            return known[0]
        return FromLatest(known, kept_name(kept) if kept else "") if sources else binding


def _rests(facts: Facts) -> dict[int, Rank]:
    """Session state -> the rank where it waits between requests: that of its first access in the document's Walks."""
    found: dict[int, Rank] = {}
    for walk in facts.walks:
        for state, rank in facts[walk.index].homes.items():
            if facts.plan.states[state].scope == "session":
                found.setdefault(state, rank)
    return found


def _last_partition(facts: Facts, steps: list[StepPlan], state: int) -> int:
    return next(s.partition for s in reversed(steps) if state in facts[s.walk].homes)
