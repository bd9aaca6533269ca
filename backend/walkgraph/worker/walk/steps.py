"""The steps of one run that one rank takes part in: those running now, and the values that arrive for each.

The steps of a partition run one after the other; partitions run side by side. Values that arrive for a step before it
begins wait. A step in a branch waits for the verdict of its choice, and is passed by where another branch is taken. A
run may get its steps leg by leg: the next ones come once all ranks have ended those before.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from walkgraph.ids import Rank
from walkgraph.placement.moves import sources_of
from walkgraph.placement.tables import (
    Binding,
    Branch,
    FromInput,
    FromLatest,
    FromLiteral,
    FromStep,
    Itinerary,
    KeptResult,
    Leg,
    Plan,
    StepChoice,
    StepPlan,
    flag_beside,
)
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT, Arrived, Ref, Started
from walkgraph.worker.observe.control import Control
from walkgraph.worker.tables.walk_tables import WalkTable, deciding_rank, result_edges, result_readers
from walkgraph.worker.walk.effects import Effects
from walkgraph.worker.walk.host import Host
from walkgraph.worker.walk.walker import Walker

Verdict = m.Until | m.Chosen | m.Counted | m.ItemDone
"""A message from another rank to a Walk that brings no value."""
_LATER: Final = object()
"""Stands for a value that isn't known yet."""


class Steps:
    def __init__(
        self,
        plan: Plan,
        tables: Sequence[WalkTable],
        rank: Rank,
        event: Started,
        control: Control,
        effects: Effects,
        text: Callable[[Any], str | None],
    ) -> None:
        """`text`: a value as a case names it, as in `Host`."""
        self.ranks: tuple[Rank, ...] = event.itinerary.ranks
        self.outputs = frozenset(event.itinerary.outputs)
        """Names of those that the client waits for."""
        self.more: bool = event.itinerary.more
        """True if a leg follows."""
        self.all = control.steps
        """All steps so far, including those of other ranks."""
        self._by: int = event.itinerary.by
        self._leg: Itinerary | Leg = event.itinerary
        """The latest leg."""
        self._readers: Mapping[FromStep, Collection[Rank]] | None = None
        """Result -> the ranks that read it in the latest leg; None before one is asked for."""
        self.walkers: dict[int, Walker] = {}
        """Walkers of the running steps, by step index."""
        self.finished: set[int] = set()
        self.passed: list[int] = []
        """Steps that were passed by, until the run has closed them."""
        self.results = StepResults(plan, rank, self.all, event.itinerary.choices, text)
        self._plan, self._tables, self._inputs = plan, tables, event.inputs
        self._control, self._effects = control, effects
        self._waiting: dict[int, list[StepPlan]] = defaultdict(list)
        """Steps to come, by partition."""
        self._free: set[int] = set()
        """Partitions with steps to come and none that runs."""
        self._await(self.all)
        self._unfed: dict[tuple[int, str], Binding] = {}
        """(running step, Walk input) -> the source of its value, which isn't known yet."""
        self._early: dict[int, list[Arrived]] = defaultdict(list)
        """Messages for steps that have not begun."""
        self._ahead: list[tuple[Arrived, m.Deliver]] = []
        """Values of steps of a leg that has not come yet."""

    def _await(self, steps: Iterable[StepPlan]) -> None:
        for step in steps:
            if self._tables[step.walk].uses:
                self._waiting[step.partition].append(step)
                self._free.add(step.partition)

    @property
    def over(self) -> bool:
        return not (self.walkers or any(self._waiting.values()))

    @property
    def verdict(self) -> int | None:
        """The verdict that decides on the next leg; -1 if none does, None while it isn't known."""
        return -1 if self._by < 0 else self.results.verdicts.get(self._by)

    def extend(self, leg: Leg) -> list[tuple[int, int]]:
        """Take the next leg. Returns verdicts that follow, as `store` does."""
        self.more, self._by, self._leg = leg.more, leg.by, leg
        self._readers = None
        self.all.extend(leg.steps)
        self.results.extend(leg)
        self._await(leg.steps)
        ahead, self._ahead = self._ahead, []
        verdicts = self.results.decided()
        for event, message in ahead:
            verdicts += self.deliver(event, message)
        return verdicts

    def readers(self, source: FromStep) -> Collection[Rank]:
        """Ranks that read a result in the latest leg."""
        if self._readers is None:
            self._readers = result_readers(self._plan, self.all, self._leg)
        return self._readers.get(source, ())

    def keep(self) -> list[tuple[str, Any]] | None:
        """(name, value) of each result that this rank sends to the conductor at the end of the leg; None while one
        isn't known."""
        return self.results.keep(self._leg.keep)

    def begin(self, host: Host[Walker]) -> bool:
        """Begin the next step of each partition in which none runs, if it is known to be taken. True if anything
        moved."""
        moved = False
        for partition in list(self._free) if self._free else ():
            waiting = self._waiting[partition]
            while waiting and (taken := self.results.taken(waiting[0].cases)) is not None:
                step, moved = waiting.pop(0), True
                if taken:
                    self._free.discard(partition)
                    self._begin(step, host)
                    break
                self.finished.add(step.index)
                self.passed.append(step.index)
                self._early.pop(step.index, None)
            if not waiting:
                self._free.discard(partition)
        return moved

    def _begin(self, step: StepPlan, host: Host[Walker]) -> None:
        walker = Walker(self._tables[step.walk], step.index, host)
        walker.looked = self._control.edges(step.index)
        self.walkers[step.index] = walker
        for name in walker.table.readers:
            match step.bindings.get(name):
                case FromInput(name=source):
                    self._feed(walker, name, self._inputs.get(source, ABSENT))
                case FromLiteral(value=value):
                    self._feed(walker, name, value)
                case None:
                    self._feed(walker, name, ABSENT)
                case binding:
                    self._unfed[step.index, name] = binding
        self._feed_known()
        for event in self._early.pop(step.index, []):
            if isinstance(event.message, m.Deliver):
                self.deliver(event, event.message)
            elif isinstance(event.message, Verdict):
                self.judge(event, event.message)

    def end(self, index: int) -> Walker:
        """End a step and return its walker."""
        self.finished.add(index)
        self._free.add(self.all[index].partition)
        for place in [place for place in self._unfed if place[0] == index]:
            del self._unfed[place]
        return self.walkers.pop(index)

    def holding(self, ref: Ref) -> Walker | None:
        """The walker that made a call; None if it is over."""
        walker = self.walkers.get(ref.step)
        return walker.holding(ref.use, ref.iteration) if walker is not None else None

    def watch(self) -> None:
        """Update the edges that are probed."""
        for walker in self.walkers.values():
            for one in walker.everywhere():
                one.looked = self._control.edges(walker.step)

    def deliver(self, event: Arrived, message: m.Deliver) -> list[tuple[int, int]]:
        """Take a value from another rank. Returns verdicts that follow, as `store` does."""
        if message.step >= len(self.all):
            self._ahead.append((event, message))
            return []
        edge = self._plan.walks[self.all[message.step].walk].edges[message.edge]
        if edge.target.kind == "result":
            return self.store(message.step, edge.target.port, event.value)
        if message.step in self.walkers:
            self.walkers[message.step].mailbox.feed(message.edge, message.key, event.value)
        elif message.step not in self.finished:
            self._early[message.step].append(event)
        return []

    def judge(self, event: Arrived, message: Verdict) -> None:
        walker = self.walkers.get(message.step)
        if walker is None:
            if message.step not in self.finished:
                self._early[message.step].append(event)
            return
        match message:
            case m.Until():
                walker.mailbox.judge(message.loop, message.key, message.stop, closing=message.closing)
            case m.Chosen():
                walker.mailbox.choose(message.choice, message.key, message.branch)
            case m.Counted():
                walker.mailbox.count(message.loop, message.key, message.items)
            case m.ItemDone():
                walker.mailbox.item_done(message.loop, message.key)

    def store(self, step: int, result: str, value: Any) -> list[tuple[int, int]]:
        """Store a step's result and feed it to the steps that read it. Returns (choice, branch) for each choice that
        this rank makes by it, for the other ranks."""
        self.results.put(step, result, value)
        verdicts = self.results.decided()
        self._feed_known()
        return verdicts

    def choose(self, choice: int, branch: int) -> list[tuple[int, int]]:
        """Take the verdict of a choice among steps. Returns verdicts that follow, as `store` does."""
        self.results.verdicts[choice] = branch
        verdicts = self.results.decided()
        self._feed_known()
        return verdicts

    def _feed_known(self) -> None:
        for (step, name), binding in list(self._unfed.items()):
            value = self.results.of(sources_of(binding))
            if value is ABSENT and isinstance(binding, FromLatest) and binding.otherwise:
                taken = self.results.last(binding.steps)
                value = self._inputs.get(binding.otherwise, ABSENT) if taken is ABSENT else value
            if value is not _LATER:
                del self._unfed[step, name]
                self._feed(self.walkers[step], name, value)

    def _feed(self, walker: Walker, name: str, value: Any) -> None:
        self._effects.commands += self._control.input(walker.step, name, value)
        walker.mailbox.feed_input(name, value)


class StepResults:
    """The results of a run's steps, as far as one rank has them, and the verdicts of the choices among its steps."""

    def __init__(
        self,
        plan: Plan,
        rank: Rank,
        steps: Sequence[StepPlan],
        choices: Iterable[StepChoice],
        text: Callable[[Any], str | None],
    ) -> None:
        """`steps`: all so far; the owner adds those of later legs."""
        self.verdicts: dict[int, int] = {}
        """Choice -> branch."""
        self._plan, self._rank, self._steps, self._text = plan, rank, steps, text
        self._open = [*choices]
        """Choices whose verdict isn't known."""
        self.values: dict[FromStep, Any] = {}
        self._absent: Counter[FromStep] = Counter()
        """Result -> the number of its edges that have no value."""

    def extend(self, leg: Leg) -> None:
        """Take the choices of the next leg, and forget results that no step takes any more."""
        self._open.extend(leg.choices)
        for source in [source for source in self.values if source.step not in leg.kept]:
            del self.values[source]

    def put(self, step: int, result: str, value: Any) -> None:
        """Take the value of a result. Of several edges, those of a merge, at most one has a value."""
        source = FromStep(step, result)
        if value is not ABSENT:
            self.values[source] = value
            return
        self._absent[source] += 1
        if self._absent[source] == len(result_edges(self._plan, self._steps, source)):
            self.values.setdefault(source, ABSENT)

    def taken(self, cases: Sequence[Branch]) -> bool | None:
        """True if the branches around a step are taken; None while that isn't known."""
        for choice, branch in cases:
            verdict = self.verdicts.get(choice)
            if verdict != branch:
                return None if verdict is None else False
        return True

    def of(self, sources: Sequence[FromStep]) -> Any:
        """The result of the last of these steps that is taken; `_LATER` while it isn't known."""
        last = self.last(sources)
        return self.values.get(last, _LATER) if isinstance(last, FromStep) else last

    def keep(self, wanted: Sequence[KeptResult]) -> list[tuple[str, Any]] | None:
        """(name, value) of those results that this rank gives; None while one isn't known."""
        found: list[tuple[str, Any]] = []
        for one in wanted:
            last = self.last(one.sources)
            if last is _LATER:
                return None
            if isinstance(last, FromStep) and self._gives(last) and self._decides(last):
                if last not in self.values:
                    return None
                found.append((one.name, self.values[last]))
        return found

    def decided(self) -> list[tuple[int, int]]:
        """Make the choices that can be made here. Returns (choice, branch) for each that the other ranks must learn."""
        found: list[tuple[int, int]] = []
        self._open = [choice for choice in self._open if choice.index not in self.verdicts]
        for choice in self._open:
            last = self.last(choice.sources)
            if last is ABSENT:
                self.verdicts[choice.index] = len(choice.cases) if choice.otherwise < 0 else choice.otherwise
            elif isinstance(last, FromStep) and last in self.values and self._decides(last):
                case = self._case(last)
                branch = choice.cases.index(case) if case in choice.cases else len(choice.cases)
                verdict = branch if branch else self._ends(choice, last)
                if verdict is not None:
                    self.verdicts[choice.index] = verdict
                    found.append((choice.index, verdict))
        return found

    def _ends(self, choice: StepChoice, result: FromStep) -> int | None:
        """The verdict of a choice whose first branch is taken: by the flag that says why; None while one isn't
        known."""
        for number, flag in enumerate(choice.reasons, len(choice.cases) + 1):
            beside = FromStep(result.step, flag_beside(result.result, flag))
            if not self._gives(beside):
                continue
            if beside not in self.values:
                return None
            if self._case(beside) == "true":
                return number
        return 0

    def _case(self, result: FromStep) -> str | None:
        """A known result as a case names it."""
        value = self.values[result]
        return self._text(value) if value is not ABSENT else None

    def last(self, sources: Sequence[FromStep]) -> FromStep | Any:
        """The last of these results whose step is taken, ABSENT if none is; `_LATER` while that isn't known."""
        for source in reversed(sources):
            taken = self.taken(self._steps[source.step].cases)
            if taken is not False:
                return source if taken else _LATER
        return ABSENT

    def _gives(self, source: FromStep) -> bool:
        """True if the step has such a result: of several that may end a loop, not all have the same flags beside it."""
        return bool(result_edges(self._plan, self._steps, source))

    def _decides(self, source: FromStep) -> bool:
        return deciding_rank(self._plan, self._steps, source) == self._rank
