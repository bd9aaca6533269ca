"""Serves the walkers of a run: makes calls, sends values off the rank, reads and feeds streams."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from walkgraph.abi.calls import ChunkInfo, StateKey
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.placement.tables import ChoicePlan, EdgePlan, FromStep, Gather, Plan
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT, DropStates, Report, RunLoop
from walkgraph.worker.loops.device_loops import DeviceLoops
from walkgraph.worker.observe.control import Control
from walkgraph.worker.tables.walk_tables import UseTable
from walkgraph.worker.walk import shaping
from walkgraph.worker.walk.call_arguments import Calls, Lacking
from walkgraph.worker.walk.cursor import Vector
from walkgraph.worker.walk.edge_values import ClientValues
from walkgraph.worker.walk.effects import Effects
from walkgraph.worker.walk.run_streams import Sender, Streams
from walkgraph.worker.walk.steps import Steps
from walkgraph.worker.walk.walker import Walker


class _Handed(NamedTuple):
    """A result of a step on this rank, as one of its edges gives it."""

    source: FromStep
    edge: EdgePlan
    key: Vector
    value: Any
    ranks: set[Rank]
    """The ranks that have it."""


class RunHost:
    """Implements `host.Host`."""

    def __init__(
        self,
        plan: Plan,
        steps: Steps,
        calls: Calls,
        loops: DeviceLoops,
        streams: Streams,
        control: Control,
        effects: Effects,
        send: Sender,
    ) -> None:
        self.params = calls.given
        self._plan, self._rank, self._run = plan, calls.rank, calls.run
        self._steps, self._calls, self._loops, self._streams = steps, calls, loops, streams
        self._control, self._effects, self._send = control, effects, send
        self._to_client = ClientValues(calls.selected)
        self._handed: list[_Handed] = []
        """Results of this rank that a later leg may read."""

    def call(
        self, walker: Walker, use: UseTable, at: Vector, inputs: dict[str, Any], chunks: dict[str, ChunkInfo]
    ) -> None:
        if use.device_loop is not None:
            match self._loops.enter(walker, use, use.device_loop, at, inputs):
                case Lacking() if walker.progress.verdicts.closes(at):
                    walker.skip(use, at)
                case Lacking(error=failure) | (ErrorInfo() as failure):
                    self._effects.failure = failure
                case call:
                    self._effects.commands.append(RunLoop(call))
            return
        if self._calls.needless(walker, use, at) and self._control.needless:
            walker.skip(use, at)
            return
        match self._calls.made(walker, use, at, inputs, chunks):
            case Lacking() if walker.progress.verdicts.closes(at):
                walker.skip(use, at)
            case Lacking(error=failure):
                self._effects.failure = failure
            case command:
                self._effects.commands.append(command)

    def release(self, walker: Walker, edge: EdgePlan, key: Vector, value: Any) -> None:
        target = edge.target
        if target.kind == "use":
            rank = walker.table.plan.uses[target.use].rank
            message = m.Deliver(run=self._run, step=walker.step, edge=edge.index, key=key, value=m.Absent())
            self._send(rank, message, value, edge.transport)
        elif target.kind == "result":
            verdicts = self._steps.store(walker.step, target.port, value)
            handed = _Handed(FromStep(step=walker.step, result=target.port), edge, key, value, {self._rank})
            self._hand(handed)
            if self._steps.more:
                self._handed.append(handed)
            self.steps_chosen(verdicts)
        elif target.kind == "out":
            if target.port not in self._steps.outputs:
                return
            if value is not ABSENT and walker.table.plan.chunked and shaping.empty(value):
                value = ABSENT
            if value is ABSENT and not target.chosen:
                return
            emit = m.Emit(
                rank=self._rank,
                run=self._run,
                name=target.port,
                value=m.Absent(),
                iteration=key,
                modality=target.modality,
                step=walker.step,
                passes=self._steps.all[walker.step].passes,
            )
            value = self._to_client.sent(emit, value)
            if value is not ABSENT or target.chosen:
                self._effects.commands.append(Report(emit, value))
        elif value is not ABSENT:
            self._streams.give(walker.step, edge, (value,))

    def passing(self, walker: Walker, edge: EdgePlan, key: Vector, value: Any) -> None:
        self._effects.commands += self._control.passing(walker.step, edge.index, key, value)

    def judged(self, walker: Walker, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        message = m.Until(run=self._run, step=walker.step, loop=loop, key=key, stop=stop, closing=closing)
        self._tell(walker.table.plan.loops[loop].ranks, message)

    def chosen(self, walker: Walker, choice: ChoicePlan, key: Vector, branch: int) -> None:
        message = m.Chosen(run=self._run, step=walker.step, choice=choice.index, key=key, branch=branch)
        self._tell(choice.ranks, message)

    def count(self, walker: Walker, head: UseTable, at: Vector, value: Any) -> int | None:
        if value is ABSENT or head.counts is None:
            return 0
        found, most = shaping.length(value), walker.progress.times(head.counts.index, at)
        if found <= most:
            return found
        source = head.plan.name.partition(":")[2]
        message = f"`{source}` has {found} items, and the map takes {most} at most; raise its `bound`"
        self._effects.failure = ErrorInfo(
            code="node_error", message=message, walk=walker.table.plan.name, iteration=at, rank=self._rank
        )
        return None

    def counted(self, walker: Walker, loop: int, key: Vector, items: int) -> None:
        message = m.Counted(run=self._run, step=walker.step, loop=loop, key=key, items=items)
        self._tell(walker.table.plan.loops[loop].ranks, message)

    def item_done(self, walker: Walker, loop: int, key: Vector) -> None:
        message = m.ItemDone(run=self._run, step=walker.step, loop=loop, key=key)
        self._tell(walker.table.plan.loops[loop].ranks, message)

    def _tell(self, ranks: Iterable[Rank], message: m.BetweenWorkers) -> None:
        """Send a message to those of these ranks that are others."""
        for rank in ranks:
            if rank != self._rank:
                self._send(rank, message, ABSENT, "inline")

    def steps_chosen(self, verdicts: Iterable[tuple[int, int]]) -> None:
        """Send the verdicts of choices among steps to the run's other ranks."""
        for choice, branch in verdicts:
            self._tell(self._steps.ranks, m.StepChosen(run=self._run, choice=choice, branch=branch))

    def extended(self, kept: Sequence[int], verdicts: Iterable[tuple[int, int]]) -> None:
        """Send results of earlier legs that a new one reads. `kept`: the steps whose results may still be read."""
        self._handed = [handed for handed in self._handed if handed.source.step in kept]
        for handed in self._handed:
            self._hand(handed)
        self.steps_chosen(verdicts)

    def ended(self, step: int) -> None:
        """Send what was held back until a step ended."""
        self._effects.commands += self._to_client.ended(step)

    def _hand(self, handed: "_Handed") -> None:
        """Send a result to the ranks that read it and don't have it yet."""
        source, edge, key, value, ranks = handed
        message = m.Deliver(run=self._run, step=source.step, edge=edge.index, key=key, value=m.Absent())
        for rank in self._steps.readers(source):
            if rank not in ranks:
                ranks.add(rank)
                self._send(rank, message, value, edge.transport)

    def text(self, value: Any) -> str | None:
        return shaping.text(value)

    def chunk(self, walker: Walker, use: int, stream: int, key: Vector) -> tuple[Any, ChunkInfo] | None:
        fresh, found = self._streams.chunk(use, stream, (walker.step, *key))
        if found is not None and fresh:
            for loop in walker.table.plan.loops:
                if loop.stream == stream:
                    walker.verdict(loop.index, key[:1], found[1].last, closing=found[1].closing)
        return found

    def credit(self, edges: Sequence[EdgePlan]) -> bool:
        return self._streams.open(edges)

    def gather(self, values: Sequence[Any], how: Gather) -> Any:
        return shaping.gather(values, how)

    def part(self, value: Any, index: int) -> Any:
        return shaping.part(value, index)

    def passed(self, walker: Walker, state: str, key: Vector) -> None:
        self._effects.commands.append(DropStates((StateKey(self._run, state, (walker.step, *key)),)))
