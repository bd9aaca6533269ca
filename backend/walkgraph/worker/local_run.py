"""What one rank does for one run: its steps lane by lane, the values that come and go, its streams, its times."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from walkgraph.errors import ErrorInfo
from walkgraph.graph.expressions import ExpressionError
from walkgraph.ids import Rank, RunId
from walkgraph.networks.base import Call, ChunkInfo, Scalar, StateKey
from walkgraph.placement.tables import EdgePlan, FromInput, FromLiteral, FromStep, Plan, StepPlan
from walkgraph.wire import messages as m
from walkgraph.worker import shaping
from walkgraph.worker.events import (
    ABSENT,
    Arrived,
    CallDone,
    Command,
    DropStates,
    MoveState,
    Ref,
    Report,
    Run,
    Send,
    Started,
)
from walkgraph.worker.streams import Incoming, Outgoing
from walkgraph.worker.tables import UseTable, WalkTable, evaluator
from walkgraph.worker.walker import Vector, Walker, indices


@dataclass(slots=True)
class _Times:
    calls: int = 0
    busy: float = 0.0
    queued: float = 0.0


class LocalRun:
    """Implements `walker.Host`. Every public method returns the commands that follow."""

    def __init__(self, plan: Plan, tables: Sequence[WalkTable], rank: Rank, event: Started) -> None:
        self.run: RunId = event.run
        self.params = event.params
        self._plan = plan
        self._tables = tables
        self._rank = rank
        self._session = event.session
        self._inputs = event.inputs
        self._steps: tuple[StepPlan, ...] = event.itinerary.steps
        self._lanes: dict[int, list[StepPlan]] = defaultdict(list)
        for step in self._steps:
            if tables[step.walk].uses:
                self._lanes[step.lane].append(step)
        self._walkers: dict[int, Walker] = {}
        self._opened: set[tuple[int, int]] = set()
        """Step and loop over chunks that is known to have some, or none."""
        self._finished: set[int] = set()
        self._results: dict[tuple[int, str], Any] = {}
        self._early: dict[int, list[Arrived]] = defaultdict(list)
        self._incoming, self._outgoing = self._streams(event.itinerary.streams)
        self._fixed: dict[tuple[int, int], dict[str, Scalar]] = {}
        """Walk and use -> parameters that are the same in every call."""
        self._seeds: dict[str, int] = {}
        self._times: dict[str, _Times] = defaultdict(_Times)
        self._failure: ErrorInfo | None = None
        self._over = False
        self._out: list[Command] = []

    # ── events ──

    def begin(self, early: Iterable[Arrived]) -> list[Command]:
        for event in early:
            self._take(event)
        for lane in list(self._lanes):
            self._next_step(lane)
        return self._progress()

    def arrived(self, event: Arrived) -> list[Command]:
        self._take(event)
        return self._progress()

    def call_done(self, event: CallDone) -> list[Command]:
        if self._over:
            return []
        walker = self._walkers.get(event.ref.step)
        if walker is None:
            return []
        table = walker.table.uses[event.ref.use]
        times = self._times[table.node.name if table.node else table.plan.op]
        times.calls += 1
        times.busy += event.busy
        times.queued += event.queued
        if event.error is not None:
            self._failure = event.error
        else:
            walker.finish(event.ref.use, event.outputs or {})
        return self._progress()

    def waiting_for(self) -> dict[str, Vector]:
        return {name: at for walker in self._walkers.values() for name, at in walker.waiting_for().items()}

    # ── steps ──

    def _progress(self) -> list[Command]:
        try:
            while not self._over and self._failure is None and self._advance():
                pass
        except ExpressionError as error:
            self._failure = ErrorInfo(code="node_error", message=f"an expression has no value: {error}")
        out, self._out = self._out, []
        if self._failure is not None and not self._over:
            self._over = True
            return [Report(m.RankFailed(rank=self._rank, run=self.run, error=self._failure))]
        return out

    def _advance(self) -> bool:
        """True if anything moved, so that there may be more to do."""
        moved = False
        for walker in self._walkers.values():
            self._open_chunk_loops(walker)
            moved |= walker.advance()
        ended = [step for step, walker in self._walkers.items() if walker.done]
        for index in ended:
            step = self._steps[index]
            self._end_step(step, self._walkers.pop(index))
            self._next_step(step.lane)
        if not self._over and not self._walkers and not any(self._lanes.values()):
            self._over = True
            times = tuple(
                m.NodeTime(node=name, rank=self._rank, calls=t.calls, busy=t.busy, queued=t.queued)
                for name, t in self._times.items()
            )
            self._out.append(Report(m.RankDone(rank=self._rank, run=self.run, times=times)))
        return moved or bool(ended)

    def _next_step(self, lane: int) -> None:
        if not self._lanes[lane]:
            return
        step = self._lanes[lane].pop(0)
        walker = Walker(self._tables[step.walk], step.index, self)
        self._walkers[step.index] = walker
        for name in walker.table.readers:
            match step.bindings.get(name):
                case FromInput(name=source):
                    walker.feed_input(name, self._inputs.get(source, ABSENT))
                case FromLiteral(value=value):
                    walker.feed_input(name, value)
                case FromStep(step=source, result=result):
                    if (source, result) in self._results:
                        walker.feed_input(name, self._results[source, result])
                case None:
                    walker.feed_input(name, ABSENT)
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
        for stream in self._outgoing.values():
            if stream.feeders <= self._finished and not stream.closed:
                stream.closed = True
                for rank in stream.plan.consumers:
                    self._send(rank, m.StreamDone(run=self.run, stream=stream.plan.index, count=stream.sent))

    # ── messages ──

    def _take(self, event: Arrived) -> None:
        match event.message:
            case m.Deliver() as deliver:
                self._deliver(event, deliver)
            case m.Until() as until:
                walker = self._walkers.get(until.step)
                if walker is not None:
                    walker.judge(until.loop, until.key, until.stop)
                elif until.step not in self._finished:
                    self._early[until.step].append(event)
            case m.StreamItem() as item:
                if item.stream in self._incoming:
                    self._incoming[item.stream].push(item.index, event.value)
            case m.StreamDone() as done:
                if done.stream in self._incoming:
                    self._incoming[done.stream].finish(done.count)
            case m.Credit() as credit:
                if credit.stream in self._outgoing:
                    self._outgoing[credit.stream].credited(credit.rank, credit.consumed)
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
                    walker.feed_input(name, value)

    # ── walker.Host ──

    def call(
        self, walker: Walker, use: UseTable, at: Vector, inputs: dict[str, Any], chunks: dict[str, ChunkInfo]
    ) -> None:
        ref = Ref(self.run, walker.step, use.plan.index, at)
        if use.node is None:
            keys = [self._key(walker, state, at) for state in use.plan.states]
            match use.plan.op:
                case "export":
                    self._out.append(MoveState(ref, "export", source=keys[0]))
                case "import":
                    self._out.append(MoveState(ref, "import", target=keys[0], value=inputs.get("state", ABSENT)))
                case _:
                    width = evaluator(self._plan.states[use.plan.states[1]].width)(self.params, {})
                    self._out.append(MoveState(ref, "fork", source=keys[0], target=keys[1], width=int(width)))
            return
        missing = [port for port in use.node.required if port not in inputs]
        if missing and all(port in chunks and chunks[port].last for port in missing):
            walker.finish(use.plan.index, {})  # a closing chunk without items: there is nothing to compute
            return
        if missing:
            message = f"input `{missing[0]}` of `{use.node.name}` holds no value here; connect it or make it optional"
            self._failure = ErrorInfo(
                code="node_error", message=message, node=use.node.name, port=missing[0], iteration=at, rank=self._rank
            )
            return
        self._out.append(
            Run(
                Call(
                    run=self.run,
                    node=use.node.name,
                    walk=walker.table.plan.name,
                    step=walker.step,
                    use=use.plan.index,
                    iteration=at,
                    inputs=inputs,
                    params=self._call_params(walker, use, at),
                    states={slot: self._key(walker, state, at) for slot, state in use.node.states.items()},
                    seed=self._seed(use.node.name),
                    chunks=chunks,
                )
            )
        )

    def release(self, walker: Walker, edge: EdgePlan, key: Vector, value: Any) -> None:
        target = edge.target
        if target.kind == "use":
            rank = walker.table.plan.uses[target.use].rank
            message = m.Deliver(run=self.run, step=walker.step, edge=edge.index, key=key, value=m.Absent())
            self._send(rank, message, value, edge.transport)
        elif target.kind == "result":
            self._store(walker.step, target.port, value)
            message = m.Deliver(run=self.run, step=walker.step, edge=edge.index, key=key, value=m.Absent())
            for rank in self._result_readers(walker.step, target.port):
                self._send(rank, message, value, edge.transport)
        elif value is ABSENT:
            return
        elif target.kind == "out":
            emit = m.Emit(
                rank=self._rank,
                run=self.run,
                name=target.port,
                value=m.Absent(),
                iteration=key,
                modality=target.modality,
            )
            self._out.append(Report(emit, value))
        elif target.index in self._outgoing:
            stream = self._outgoing[target.index]
            item = m.StreamItem(run=self.run, stream=target.index, index=stream.take_number(), value=m.Absent())
            for rank in stream.plan.consumers:
                self._send(rank, item, value, edge.transport)

    def judged(self, walker: Walker, loop: int, key: Vector, stop: bool) -> None:
        message = m.Until(run=self.run, step=walker.step, loop=loop, key=key, stop=stop)
        for rank in walker.table.plan.loops[loop].ranks:
            if rank != self._rank:
                self._out.append(Send(rank, message))

    def chunk(self, walker: Walker, use: int, stream: int, key: Vector) -> tuple[Any, ChunkInfo] | None:
        incoming = self._incoming.get(stream)
        if incoming is None:
            return ABSENT, ChunkInfo(index=0, first=True, last=True, valid=0)
        consumed = incoming.consumed
        fresh, found = incoming.chunk(use, (walker.step, *key))
        if found is not None and fresh:
            for loop in walker.table.plan.loops:
                if loop.stream == stream:
                    walker.judge(loop.index, key[:1], found[1].last)
                    self.judged(walker, loop.index, key[:1], found[1].last)
        if incoming.consumed > consumed:
            for rank in incoming.plan.producers:
                credit = m.Credit(run=self.run, stream=stream, rank=self._rank, consumed=incoming.consumed)
                self._send(rank, credit)
        return found

    def credit(self, edges: Sequence[EdgePlan]) -> bool:
        return all(
            self._outgoing[e.target.index].open
            for e in edges
            if e.target.kind == "stream" and e.target.index in self._outgoing
        )

    def stack(self, values: Sequence[Any]) -> Any:
        return shaping.stack(values)

    def part(self, value: Any, index: int) -> Any:
        return shaping.part(value, index)

    def passed(self, walker: Walker, state: str, key: Vector) -> None:
        self._out.append(DropStates((StateKey(self.run, state, (walker.step, *key)),)))

    # ── helpers ──

    def _call_params(self, walker: Walker, use: UseTable, at: Vector) -> Mapping[str, Scalar]:
        place = walker.table.plan.index, use.plan.index
        if place not in self._fixed:
            fixed = {name: value(self.params, {}) for name, value in use.fixed}
            self._fixed[place] = {**use.literals, **fixed, "seed": self.params["seed"]}
        if not use.computed:
            return self._fixed[place]
        where = indices(use.loop_names, at)
        return {**self._fixed[place], **{name: value(self.params, where) for name, value in use.computed}}

    def _seed(self, node: str) -> int:
        if node not in self._seeds:
            digest = blake2b(f"{self.params['seed']}:{node}".encode(), digest_size=8).digest()
            self._seeds[node] = int.from_bytes(digest, "big") >> 1
        return self._seeds[node]

    def _send(self, rank: Rank, message: m.BetweenWorkers, value: Any = ABSENT, transport: str = "inline") -> None:
        if rank == self._rank:
            self._take(Arrived(message, value))
        else:
            self._out.append(Send(rank, message, value, transport))

    def _key(self, walker: Walker, state: int, at: Vector) -> StateKey:
        plan = self._plan.states[state]
        if plan.scope == "session" and self._session is not None:
            return StateKey(f"session:{self._session}", plan.name)
        if plan.scope in ("walk", "iteration"):
            depth = walker.table.plan.state_scopes.get(state, 0)
            return StateKey(self.run, plan.name, (walker.step, *at[:depth]))
        return StateKey(self.run, plan.name)

    def _result_readers(self, step: int, result: str) -> set[Rank]:
        """Other ranks that read the result in a later step."""
        ranks: set[Rank] = set()
        for later in self._steps:
            names = {n for n, b in later.bindings.items() if b == FromStep(step=step, result=result)}
            walk = self._plan.walks[later.walk]
            ranks |= {
                walk.uses[e.target.use].rank
                for e in walk.edges
                if e.source.kind == "input" and e.source.port in names and e.target.kind == "use"
            }
        return ranks - {self._rank}

    def _streams(self, used: Sequence[int]) -> tuple[dict[int, Incoming], dict[int, Outgoing]]:
        incoming: dict[int, Incoming] = {}
        outgoing: dict[int, Outgoing] = {}
        for index in used:
            plan = self._plan.streams[index]
            feeders = frozenset(s.index for s in self._steps if s.walk in plan.walks)
            if self._rank in plan.consumers:
                read = {s.index: self._tables[s.walk].stream_readers.get(index, 0) for s in self._steps}
                incoming[index] = Incoming(plan, read)
                if not feeders:
                    incoming[index].finish(0)
            if self._rank in plan.producers:
                outgoing[index] = Outgoing(plan, feeders)
        return incoming, outgoing

    def _open_chunk_loops(self, walker: Walker) -> None:
        """A loop over chunks may be entered once there is one, or is known to be empty."""
        for loop in walker.table.plan.loops:
            if loop.stream is None or loop.stream not in self._incoming or (walker.step, loop.index) in self._opened:
                continue
            empty = self._incoming[loop.stream].empty
            if empty is not None:
                self._opened.add((walker.step, loop.index))
                walker.judge(loop.index, (-1,), empty)
                self.judged(walker, loop.index, (-1,), empty)
