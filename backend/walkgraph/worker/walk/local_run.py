"""What one rank does for one run: its steps lane by lane, the values that come and go, its streams, its times."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from walkgraph.abi.calls import ChunkInfo, StateKey
from walkgraph.engine.loops.spec import Items
from walkgraph.errors import ErrorInfo
from walkgraph.graph.language.expressions import ExpressionError
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.turns import taking_turns
from walkgraph.placement.tables import EdgePlan, FromInput, FromLiteral, FromStep, Plan, StepPlan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Gate, Watch
from walkgraph.worker.events import (
    ABSENT,
    Arrived,
    CallBegun,
    CallDone,
    Command,
    DropStates,
    Ref,
    Report,
    RunLoop,
    Send,
    Started,
)
from walkgraph.worker.loops.device_loops import DeviceLoops
from walkgraph.worker.observe.control import Control
from walkgraph.worker.walk import shaping
from walkgraph.worker.walk.calls import Calls, Lacking, no_value
from walkgraph.worker.walk.streams import Streams
from walkgraph.worker.walk.times import Times
from walkgraph.worker.walk.walk_tables import UseTable, WalkTable, result_readers
from walkgraph.worker.walk.walker import Vector, Walker


class LocalRun:
    """Implements `walker.Host`. Every public method returns the commands that follow."""

    def __init__(self, plan: Plan, tables: Sequence[WalkTable], rank: Rank, event: Started, watch: Watch) -> None:
        self.run: RunId = event.run
        self.params = event.params
        self._plan = plan
        self._tables = tables
        self._rank = rank
        self._inputs = event.inputs
        self._steps: tuple[StepPlan, ...] = event.itinerary.steps
        self._in_turn = taking_turns(event.itinerary.turns, rank)
        self._lanes: dict[int, list[StepPlan]] = defaultdict(list)
        for step in self._steps:
            if tables[step.walk].uses:
                self._lanes[step.lane].append(step)
        self._walkers: dict[int, Walker] = {}
        self._finished: set[int] = set()
        self._results: dict[tuple[int, str], Any] = {}
        self._early: dict[int, list[Arrived]] = defaultdict(list)
        self._streams = Streams(plan, tables, rank, event.run, event.itinerary, self._send)
        self._calls = Calls(plan, rank, event.run, event.session, event.params, event.priority)
        self._loops = DeviceLoops(self._calls, self._streams.outgoing)
        self._times = Times()
        self._begun: set[Ref] = set()
        """Calls under way that were followed already: what becomes of them is told."""
        self._failure: ErrorInfo | None = None
        self._over = False
        self.sent = self.received = 0
        """Messages to and from other ranks."""
        self._out: list[Command] = []
        self._control = Control(plan, rank, event, watch, self._loops.refs)
        self._watched = None if self._control.needless else self._control

    # ── events ──

    def begin(self, early: Iterable[Arrived]) -> list[Command]:
        for event in early:
            self.received += 1
            self._take(event)
        for lane in list(self._lanes):
            self._next_step(lane)
        return self._progress()

    def arrived(self, event: Arrived) -> list[Command]:
        self.received += 1
        self._take(event)
        return self._progress()

    def watch(self, watch: Watch) -> None:
        self._control.watch(watch)
        self._watched = None if self._control.needless else self._control
        for walker in self._walkers.values():
            walker.looked = self._control.edges(walker.step)

    def obey(self, gate: Gate) -> list[Command]:
        out = [] if self._over else self._control.obey(gate)
        self._watched = None if self._control.needless else self._control
        return out

    def called(self, event: CallBegun | CallDone) -> list[Command]:
        walker, begun = self._walkers.get(event.ref.step), event.ref in self._begun
        if self._over or (walker is None and not begun):
            return []
        if isinstance(event, CallBegun):
            # Who watches a run sees values that are there.
            if walker is not None and self._watched is None:
                self._begun.add(event.ref)
                walker.finish(event.ref.use, event.outputs)
            return self._progress()
        if begun:
            self._begun.discard(event.ref)
        walk = self._tables[self._steps[event.ref.step].walk]
        table = walk.uses[event.ref.use]
        outputs: dict[str, Any] | ErrorInfo = event.outputs or {}
        if table.device_loop is None:
            self._times.add(walk.plan.name, table, event)
        else:
            self._times.add_loop(walk.plan.name, table.device_loop, self._loops.calls(event), event)
            outputs = self._loops.end(event)
        if event.error is not None:
            self._failure = event.error
        elif isinstance(outputs, ErrorInfo):
            self._failure = outputs
        elif begun:
            self._close_streams(event.ref.step)
        elif walker is not None:
            if self._watched is not None and table.device_loop is None:
                self._out += self._watched.outputs(event.ref, outputs)
            walker.finish(event.ref.use, outputs)
        return self._progress()

    def items(self, event: Items) -> list[Command]:
        """What a loop hands out while the engine runs it."""
        walker = self._walkers.get(event.call.step)
        if self._over or walker is None:
            return []
        for edge, iterations, values in self._loops.items(event):
            if edge.target.kind == "stream":
                self._streams.give(event.call.step, edge, values)
            else:
                for at, value in zip(iterations, values, strict=True):
                    walker.give(edge, at, value)
        self._loops.judge(event)
        return self._progress()

    @property
    def walkers(self) -> Iterable[Walker]:
        return self._walkers.values()

    @property
    def busy(self) -> bool:
        """The engine has something of it: a call, or a loop that may go on."""
        running = ((w.step, use.plan.index) for w in self.walkers for use, _, s in w.standing() if s == "running")
        return bool(self._begun) or any(not self._loops.starved(*place) for place in running)

    # ── steps ──

    def _progress(self) -> list[Command]:
        try:
            while not self._over and self._failure is None and self._advance():
                pass
        except ExpressionError as error:
            self._failure = no_value(error)
        self._out.extend(self._loops.allow())
        out, self._out = self._out, []
        if self._failure is not None and not self._over:
            self._over = True
            return [Report(m.RankFailed(rank=self._rank, run=self.run, error=self._failure))]
        return out if self._watched is None else self._watched.take(out)

    def _advance(self) -> bool:
        """True if anything moved, so that there may be more to do."""
        moved = False
        for walker in self._walkers.values():
            moved |= walker.advance()
        ended = [step for step, walker in self._walkers.items() if walker.done]
        for index in ended:
            step = self._steps[index]
            self._end_step(step, self._walkers.pop(index))
            self._next_step(step.lane)
        if not (self._over or self._walkers or self._begun or any(self._lanes.values())):
            self._over = True
            self._out.append(Report(self._times.told(self._rank, self.run)))
        return moved or bool(ended)

    def _next_step(self, lane: int) -> None:
        if not self._lanes[lane]:
            return
        step = self._lanes[lane].pop(0)
        walker = Walker(self._tables[step.walk], step.index, self)
        walker.looked = self._control.edges(step.index)
        self._walkers[step.index] = walker
        for name in walker.table.readers:
            match step.bindings.get(name):
                case FromInput(name=source):
                    self._feed(walker, name, self._inputs.get(source, ABSENT))
                case FromLiteral(value=value):
                    self._feed(walker, name, value)
                case FromStep(step=source, result=result):
                    if (source, result) in self._results:
                        self._feed(walker, name, self._results[source, result])
                case None:
                    self._feed(walker, name, ABSENT)
        for event in self._early.pop(step.index, []):
            self._take(event)

    def _end_step(self, step: StepPlan, walker: Walker) -> None:
        self._finished.add(step.index)
        keys = [
            StateKey(self.run, state.name, (step.index,))
            for index, depth in walker.table.plan.state_scopes.items()
            if depth == 0 and (state := self._plan.states[index]).scope in ("walk", "iteration")
        ]
        if keys:
            self._out.append(DropStates(tuple(keys)))
        self._close_streams(step.index)
        if step.index in self._in_turn:
            self._out.append(Report(m.Sent(rank=self._rank, run=self.run, step=step.index)))

    # ── messages ──

    def _take(self, event: Arrived) -> None:
        match event.message:
            case m.Deliver() as deliver:
                self._deliver(event, deliver)
            case m.Until() as until:
                walker = self._walkers.get(until.step)
                if walker is not None:
                    walker.judge(until.loop, until.key, until.stop, closing=until.closing)
                elif until.step not in self._finished:
                    self._early[until.step].append(event)
            case m.StreamItem() | m.StreamDone() | m.Credit() as message:
                self._streams.take(message, event.value)
            case m.Freed():
                pass

    def _deliver(self, event: Arrived, deliver: m.Deliver) -> None:
        edge = self._plan.walks[self._steps[deliver.step].walk].edges[deliver.edge]
        if edge.target.kind == "result":
            self._store(deliver.step, edge.target.port, event.value)
        elif deliver.step in self._walkers:
            self._walkers[deliver.step].feed(deliver.edge, deliver.key, event.value)
        elif deliver.step not in self._finished:
            self._early[deliver.step].append(event)

    def _store(self, step: int, result: str, value: Any) -> None:
        self._results[step, result] = value
        for walker in self._walkers.values():
            for name, binding in self._steps[walker.step].bindings.items():
                if binding == FromStep(step=step, result=result):
                    self._feed(walker, name, value)

    def _feed(self, walker: Walker, name: str, value: Any) -> None:
        if self._watched is not None:
            self._out += self._watched.input(walker.step, name, value)
        walker.feed_input(name, value)

    # ── walker.Host ──

    def call(
        self, walker: Walker, use: UseTable, at: Vector, inputs: dict[str, Any], chunks: dict[str, ChunkInfo]
    ) -> None:
        if use.device_loop is not None:
            match self._loops.enter(walker, use, use.device_loop, at, inputs):
                case Lacking() if walker.closes(at):
                    walker.skip(use, at)
                case Lacking(error=failure) | (ErrorInfo() as failure):
                    self._failure = failure
                case call:
                    self._out.append(RunLoop(call))
            return
        match self._calls.made(walker, use, at, inputs, chunks):
            case Lacking() if walker.closes(at):
                walker.skip(use, at)
            case Lacking(error=failure):
                self._failure = failure
            case command:
                self._out.append(command)

    def release(self, walker: Walker, edge: EdgePlan, key: Vector, value: Any) -> None:
        target = edge.target
        if target.kind == "use":
            rank = walker.table.plan.uses[target.use].rank
            message = m.Deliver(run=self.run, step=walker.step, edge=edge.index, key=key, value=m.Absent())
            self._send(rank, message, value, edge.transport)
        elif target.kind == "result":
            self._store(walker.step, target.port, value)
            message = m.Deliver(run=self.run, step=walker.step, edge=edge.index, key=key, value=m.Absent())
            for rank in result_readers(self._plan, self._steps, FromStep(step=walker.step, result=target.port)):
                if rank != self._rank:
                    self._send(rank, message, value, edge.transport)
        elif value is ABSENT:
            return
        elif target.kind == "out":
            if walker.table.plan.chunked and shaping.empty(value):
                return
            emit = m.Emit(
                rank=self._rank,
                run=self.run,
                name=target.port,
                value=m.Absent(),
                iteration=key,
                modality=target.modality,
                step=walker.step,
            )
            self._out.append(Report(emit, value))
        else:
            self._streams.give(walker.step, edge, (value,))

    def passing(self, walker: Walker, edge: EdgePlan, key: Vector, value: Any) -> None:
        self._out += self._control.passing(walker.step, edge.index, key, value)

    def judged(self, walker: Walker, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        message = m.Until(run=self.run, step=walker.step, loop=loop, key=key, stop=stop, closing=closing)
        for rank in walker.table.plan.loops[loop].ranks:
            if rank != self._rank:
                self._send(rank, message)

    def chunk(self, walker: Walker, use: int, stream: int, key: Vector) -> tuple[Any, ChunkInfo] | None:
        fresh, found = self._streams.chunk(use, stream, (walker.step, *key))
        if found is not None and fresh:
            for loop in walker.table.plan.loops:
                if loop.stream == stream:
                    walker.verdict(loop.index, key[:1], found[1].last, closing=found[1].closing)
        return found

    def credit(self, edges: Sequence[EdgePlan]) -> bool:
        return self._streams.open(edges)

    def stack(self, values: Sequence[Any]) -> Any:
        return shaping.stack(values)

    def part(self, value: Any, index: int) -> Any:
        return shaping.part(value, index)

    def passed(self, walker: Walker, state: str, key: Vector) -> None:
        self._out.append(DropStates((StateKey(self.run, state, (walker.step, *key)),)))

    # ── helpers ──

    def _send(self, rank: Rank, message: m.BetweenWorkers, value: Any = ABSENT, transport: str = "inline") -> None:
        if rank == self._rank:
            self._take(Arrived(message, value))
        else:
            self.sent += 1
            walk = self._tables[self._steps[message.step].walk].plan.name if isinstance(message, m.Deliver) else ""
            self._out.append(Send(rank, message, value, transport, walk))

    def _close_streams(self, step: int) -> None:
        """A step that is over gives no more items. Calls that were followed before they ended may fail yet: their
        streams have an error then, and no end."""
        if step in self._finished and not any(ref.step == step for ref in self._begun):
            self._streams.close(step)
