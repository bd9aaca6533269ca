"""Hands out the steps of a run leg by leg: the next leg depends on what the ranks found in the one before.

A leg ends after each pass of a loop of steps, and before a choice that holds such a loop. All ranks end a leg before
the next one begins.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from walkgraph.graph.document import Task
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.send_order import send_orders
from walkgraph.placement.expansion.state_machine import Expansion
from walkgraph.placement.moves import Key, Moves
from walkgraph.placement.request import Given
from walkgraph.placement.tables import Itinerary, Leg, Scalar


class Legs:
    def __init__(
        self,
        facts: Facts,
        task: Task,
        params: Mapping[str, Scalar],
        given: tuple[Given, ...],
        outputs: Sequence[str],
        needed: frozenset[Key],
    ) -> None:
        """`params`: with defaults and seed. `needed`: the steps that the request needs."""
        self._expansion = Expansion(facts, task, params, given, needed)
        self._needed, self._plan, self._outputs = needed, facts.plan, outputs
        self._moves = Moves(facts)
        self._going = self._expansion.all()
        self._drafts = self._choices = 0
        """The number of them that were handed out."""
        self._begun = False

    def first(self, whole: Itinerary) -> Itinerary:
        """The itinerary with the first leg alone. `whole`: with all passes."""
        leg = self.next()
        later = tuple(sorted({step.walk for step in whole.steps}))
        given = {"steps": leg.steps, "choices": leg.choices, "send_orders": leg.send_orders}
        return replace(whole, **given, more=leg.more, by=leg.by, later=later)

    def next(self, verdict: int = -1) -> Leg:
        """The next leg. `verdict`: that of the choice `by` which the last leg ended.

        Raises InvalidInput where a step has no value for an input that it needs.
        """
        kept = self._moves.numbers(self._expansion.nameable())
        try:
            by = self._going.send(verdict) if self._begun else next(self._going)
            more = True
        except StopIteration:
            by, more = -1, False
        self._begun = True
        expansion = self._expansion
        fresh = range(self._drafts, len(expansion.drafts))
        drafts = {i: expansion.drafts[i] for i in fresh if expansion.drafts[i].key in self._needed}
        steps = self._moves.added(drafts, more=more)
        choices = range(self._choices, len(expansion.choices))
        self._drafts, self._choices = len(expansion.drafts), len(expansion.choices)
        return Leg(
            steps=steps,
            choices=tuple(self._moves.renumbered(expansion.choices[i], i) for i in choices),
            send_orders=send_orders(self._plan, steps, self._outputs),
            more=more,
            by=by,
            kept=kept,
        )
