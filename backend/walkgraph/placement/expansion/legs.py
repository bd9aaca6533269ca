"""Hands out the steps of a run leg by leg: the next leg depends on what the ranks found in the one before, or on what a
person decided.

A leg ends after each pass of a loop of steps, at each approval, and before a choice that holds one of them. All ranks
end a leg before the next one begins. At an approval they free the run: it goes on as another run of theirs, which gets
what was kept as inputs.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from walkgraph.graph.document import Task
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.send_order import send_orders
from walkgraph.placement.expansion.approving import Approval, replay
from walkgraph.placement.expansion.loop_ends import LoopEnded
from walkgraph.placement.expansion.state_machine import Expansion
from walkgraph.placement.moves import Key, Moves, kept_name, sources_of
from walkgraph.placement.request import Given
from walkgraph.placement.tables import (
    Binding,
    FromInput,
    FromLatest,
    Itinerary,
    KeptResult,
    Leg,
    LegAnswer,
    Scalar,
)


class Legs:
    def __init__(
        self,
        facts: Facts,
        task: Task,
        params: Mapping[str, Scalar],
        given: tuple[Given, ...],
        outputs: Sequence[str],
        needed: frozenset[Key],
        answers: Sequence[LegAnswer] = (),
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """`params`: with defaults and seed. `needed`: the steps that the request needs. `answers`: those to the legs
        before, the last one a person's decision. `texts`: kept results as cases name them."""
        self.answers: list[LegAnswer] = [*answers[:-1]]
        """The answers to the legs so far."""
        self.approval: Approval | None = None
        """The approval at which the latest leg ends."""
        self.keep: tuple[KeptResult, ...] = ()
        """The results kept there."""
        self._expansion = Expansion(facts, task, params, given, needed, texts=texts or {})
        self._needed, self._plan, self._outputs = needed, facts.plan, outputs
        self._going = self._expansion.all()
        self._begun, self._last = bool(answers), answers[-1] if answers else -1
        replay(self._going, answers)
        self._drafts, self._choices = len(self._expansion.drafts), len(self._expansion.choices)
        """The number of them that were handed out."""
        self._moves = Moves(facts, self._drafts)

    def first(self, whole: Itinerary) -> Itinerary:
        """The itinerary with the first leg alone. `whole`: with all passes up to the next approval."""
        leg = self.next(self._last)
        while leg.more and not whole.ranks and self.approval is None:
            # Nothing is to be done up to the next approval, so that no rank ends these legs.
            leg = self.next()
        later = tuple(sorted({step.walk for step in whole.steps}))
        given = {"steps": leg.steps, "choices": leg.choices, "send_orders": leg.send_orders, "keep": leg.keep}
        return replace(whole, **given, more=leg.more, by=leg.by, later=later)

    def next(self, answer: LegAnswer = -1) -> Leg:
        """The next leg. `answer`: the verdict of the choice `by` which the last leg ended, or the decision on its
        approval.

        Raises InvalidInput where a step has no value for an input that it needs.
        """
        kept = self._moves.numbers(self._expansion.nameable())
        stop: int | Approval = -1
        more = True
        try:
            if self._begun:
                self.answers.append(answer)
                stop = self._going.send(answer)
            else:
                stop = next(self._going)
        except StopIteration:
            more = False
        self._begun = True
        self.approval = stop if isinstance(stop, Approval) else None
        expansion = self._expansion
        fresh = range(self._drafts, len(expansion.drafts))
        drafts = {i: expansion.drafts[i] for i in fresh if expansion.drafts[i].key in self._needed}
        steps = self._moves.added(drafts, more=more)
        choices = range(self._choices, len(expansion.choices))
        self._drafts, self._choices = len(expansion.drafts), len(expansion.choices)
        self.keep = tuple(self._kept(self.approval)) if self.approval is not None else ()
        return Leg(
            steps=steps,
            choices=tuple(self._moves.renumbered(expansion.choices[i], i) for i in choices),
            send_orders=send_orders(self._plan, steps, self._outputs),
            more=more,
            by=stop if isinstance(stop, int) else -1,
            kept=kept,
            keep=self.keep,
        )

    @property
    def ended(self) -> Mapping[str, LoopEnded]:
        """The loops of steps that have ended since a person last decided, by their names."""
        return self._expansion.loops.ended

    @property
    def texts(self) -> Mapping[str, str]:
        """Kept results by which the steps so far were decided, as cases name them."""
        return self._expansion.approvals.consulted

    def shown(self, approval: Approval) -> list[tuple[str, Binding | None]]:
        """The values that a person is shown: `walk.result` -> the kept result, input or literal that it is."""
        return [
            (
                name,
                FromInput(kept_name(sources)) if binding is not None and (sources := sources_of(binding)) else binding,
            )
            for name, binding in approval.shown
        ]

    def _kept(self, approval: Approval) -> list[KeptResult]:
        found: list[KeptResult] = []
        shown = (sources_of(binding) for _, binding in approval.shown if binding is not None)
        for sources in dict.fromkeys((*shown, *approval.kept)):
            before = [source for source in sources if source.step < self._expansion.approvals.since]
            known = self._moves.sources(FromLatest(sources))
            if known or before:
                otherwise = kept_name(before) if before else ""
                found.append(KeptResult(name=kept_name(sources), sources=known, otherwise=otherwise))
        return found
