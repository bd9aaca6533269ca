"""The states of a run that leave this rank in parts while they grow, and those that arrive so.

    a step begins ──BeginMove──> engine ──PartLeaves──> StatePart ──TakePart──> engine ──PartStored──> PartTaken
                                    ^                                                                      │
                                    └───────────────────────────LetPart────────────────────────────────────┘

A state is on one rank at a time. Once a step that uses it here begins, and a later step is sure to move it to another
rank before anything else uses it there, its parts may leave. The step that moves it sends the last part.
"""

from collections.abc import Sequence

from walkgraph.placement.tables import StepPlan
from walkgraph.wire import messages as m
from walkgraph.worker.events import (
    ABSENT,
    Arrived,
    BeginMove,
    Command,
    LetPart,
    PartLeaves,
    PartStored,
    Ref,
    TakePart,
)
from walkgraph.worker.tables.walk_tables import WalkTable
from walkgraph.worker.walk.call_arguments import Calls, arriving_key
from walkgraph.worker.walk.effects import Effects
from walkgraph.worker.walk.run_streams import Sender
from walkgraph.worker.walk.steps import Steps

_EXPORT = 0
"""The use of a move that gives the state."""


class StateParts:
    def __init__(self, tables: Sequence[WalkTable], calls: Calls, steps: Steps, effects: Effects, send: Sender) -> None:
        self._tables, self._calls, self._steps, self._effects, self._send = tables, calls, steps, effects, send
        self._rank, self._run = calls.rank, calls.run
        self._looked: set[int] = set()
        """Steps that have begun, and whose states may leave since then."""
        self._moves: dict[int, int] = {}
        """Step that moves a state -> the number of its parts so far."""
        self._unanswered: dict[int, int] = {}
        """Step that moves a state -> parts that the receiver has not stored yet."""

    def begun(self) -> None:
        """Let the states leave that the steps use which have begun."""
        for index, walker in self._steps.walkers.items():
            if index in self._looked:
                continue
            self._looked.add(index)
            for state, home in walker.table.homes.items():
                step = self._move_of(state, index) if home == self._rank else None
                if step is not None and step.index not in self._moves:
                    self._moves[step.index] = self._unanswered[step.index] = 0
                    self._effects.commands.append(BeginMove(self._ref(step.index), self._calls.lasting(state)))

    def _move_of(self, state: int, begun: int) -> StepPlan | None:
        """The step that moves a state away, if nothing may use it on another rank before, and it is sure to come."""
        for step in self._steps.all[begun:]:
            table, taken = self._tables[step.walk], self._steps.results.taken(step.cases)
            if state not in table.homes or taken is False:
                continue
            if table.homes[state] != self._rank:
                return None
            if table.parts == state:
                return step if taken else None
        return None

    def waits(self, ref: Ref) -> bool:
        """True if an export waits for its receiver."""
        return bool(self._unanswered.get(ref.step))

    def handle(self, event: PartLeaves | PartStored) -> list[Command]:
        if isinstance(event, PartLeaves):
            step = event.ref.step
            table = self._tables[self._steps.all[step].walk].plan
            part = m.StatePart(
                run=self._run,
                step=step,
                state=table.uses[_EXPORT].states[0],
                rank=self._rank,
                number=self._moves[step],
                value=m.Absent(),
            )
            self._moves[step] += 1
            self._unanswered[step] += 1
            edge = table.edges[0]
            self._send(table.uses[edge.target.use].rank, part, event.value, edge.transport)
        else:
            taken = m.PartTaken(run=self._run, step=event.step, held=event.held)
            self._send(event.rank, taken, ABSENT, "inline")
        return self._effects.take()

    def take(self, event: Arrived, message: m.StatePart | m.PartTaken) -> None:
        """Take what a peer has sent."""
        if isinstance(message, m.PartTaken):
            self._unanswered[message.step] -= 1
            self._effects.commands.append(LetPart(self._ref(message.step), message.held))
            return
        target = self._calls.lasting(message.state)
        arriving = arriving_key(self._run, target.state, message.step)
        self._effects.commands.append(TakePart(self._run, message.step, message.rank, arriving, target, event.value))

    def _ref(self, step: int) -> Ref:
        return Ref(self._run, step, _EXPORT, ())
