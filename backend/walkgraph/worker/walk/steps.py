"""The steps of one run that one rank takes part in: those running now, and the values that arrive for each.

The steps of a partition run one after the other; partitions run side by side. Values that arrive for a step before it
begins wait.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from walkgraph.placement.tables import FromInput, FromLiteral, FromStep, Plan, StepPlan
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT, Arrived, Started
from walkgraph.worker.observe.control import Control
from walkgraph.worker.walk.effects import Effects
from walkgraph.worker.walk.host import Host
from walkgraph.worker.walk.walk_tables import WalkTable
from walkgraph.worker.walk.walker import Walker


class Steps:
    def __init__(
        self, plan: Plan, tables: Sequence[WalkTable], event: Started, control: Control, effects: Effects
    ) -> None:
        self.all: tuple[StepPlan, ...] = event.itinerary.steps
        """All steps, including those of other ranks."""
        self.walkers: dict[int, Walker] = {}
        """Walkers of the running steps, by step index."""
        self.finished: set[int] = set()
        self.results: dict[tuple[int, str], Any] = {}
        """Results by step and name."""
        self._plan, self._tables, self._inputs = plan, tables, event.inputs
        self._control, self._effects = control, effects
        self._waiting: dict[int, list[StepPlan]] = defaultdict(list)
        """Steps to come, by partition."""
        for step in self.all:
            if tables[step.walk].uses:
                self._waiting[step.partition].append(step)
        self._early: dict[int, list[Arrived]] = defaultdict(list)
        """Messages for steps that have not begun."""

    @property
    def over(self) -> bool:
        return not (self.walkers or any(self._waiting.values()))

    def begin(self, host: Host[Walker]) -> None:
        """Begin the first step of each partition."""
        for partition in list(self._waiting):
            self.begin_next(partition, host)

    def begin_next(self, partition: int, host: Host[Walker]) -> None:
        if not self._waiting[partition]:
            return
        step = self._waiting[partition].pop(0)
        walker = Walker(self._tables[step.walk], step.index, host)
        walker.looked = self._control.edges(step.index)
        self.walkers[step.index] = walker
        for name in walker.table.readers:
            match step.bindings.get(name):
                case FromInput(name=source):
                    self._feed(walker, name, self._inputs.get(source, ABSENT))
                case FromLiteral(value=value):
                    self._feed(walker, name, value)
                case FromStep(step=source, result=result):
                    if (source, result) in self.results:
                        self._feed(walker, name, self.results[source, result])
                case None:
                    self._feed(walker, name, ABSENT)
        for event in self._early.pop(step.index, []):
            if isinstance(event.message, m.Deliver):
                self.deliver(event, event.message)
            elif isinstance(event.message, m.Until | m.Chosen):
                self.judge(event, event.message)

    def end(self, index: int) -> Walker:
        """End a step and return its walker."""
        self.finished.add(index)
        return self.walkers.pop(index)

    def watch(self) -> None:
        """Update the edges that are probed."""
        for walker in self.walkers.values():
            walker.looked = self._control.edges(walker.step)

    def deliver(self, event: Arrived, message: m.Deliver) -> None:
        edge = self._plan.walks[self.all[message.step].walk].edges[message.edge]
        if edge.target.kind == "result":
            self.store(message.step, edge.target.port, event.value)
        elif message.step in self.walkers:
            self.walkers[message.step].feed(message.edge, message.key, event.value)
        elif message.step not in self.finished:
            self._early[message.step].append(event)

    def judge(self, event: Arrived, message: m.Until | m.Chosen) -> None:
        walker = self.walkers.get(message.step)
        if walker is not None and isinstance(message, m.Chosen):
            walker.chosen(message.choice, message.key, message.branch)
        elif walker is not None and isinstance(message, m.Until):
            walker.judge(message.loop, message.key, message.stop, closing=message.closing)
        elif message.step not in self.finished:
            self._early[message.step].append(event)

    def store(self, step: int, result: str, value: Any) -> None:
        """Store a step's result and feed it to the steps that read it."""
        self.results[step, result] = value
        for walker in self.walkers.values():
            for name, binding in self.all[walker.step].bindings.items():
                if binding == FromStep(step=step, result=result):
                    self._feed(walker, name, value)

    def _feed(self, walker: Walker, name: str, value: Any) -> None:
        self._effects.commands += self._control.input(walker.step, name, value)
        walker.feed_input(name, value)
