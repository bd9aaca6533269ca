"""Worker cores of all ranks in one process, under simulated message order: a deployment without processes.

Messages between two ranks keep their order (as sockets do); everything else is shuffled by the seed.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from walkgraph.abi.calls import Call, StateKey
from walkgraph.conductor.runs.ordered_outputs import OrderedOutputs
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.tables import Itinerary, Plan
from walkgraph.simulation.reference.plain_loop import ChannelValues, PlainLoop
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Gate, Watch
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    ABSENT,
    Allow,
    Arrived,
    CallBegun,
    CallDone,
    Cancelled,
    Command,
    DropStates,
    Extended,
    FreeLoops,
    Gated,
    HoldLoops,
    MoveState,
    Observe,
    Ref,
    Release,
    Report,
    RunCall,
    RunLoop,
    Send,
    Started,
    Watched,
)

CONDUCTOR = Rank(-1)
Function = Callable[[Call], dict[str, Any]]
"""Serves a call; raises to fail it."""


class Cluster:
    def __init__(
        self,
        plan: Plan,
        functions: Mapping[str, Function],
        seed: int = 0,
        *,
        begun: float = 0.0,
        faulty: str = "",
        lagging: Rank | None = None,
    ) -> None:
        """`begun`: the chance that a call is told before it is over. `faulty`: a node whose calls fail then. `lagging`:
        a rank that serves a call only where nothing else is left to do."""
        self._lagging = lagging
        self.plan, self._begun, self._faulty = plan, begun, faulty
        self.cores = {rank.rank: Core(plan, rank.rank) for rank in plan.ranks}
        self.states: dict[tuple[Rank, StateKey], Any] = {}
        """Contents of forked and moved states, for functions that look into them."""
        self.calls: list[Call] = []
        self.emitted: dict[tuple[str, str], list[tuple[tuple[int, ...], Any]]] = defaultdict(list)
        self.passes: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
        """The passes of each of these values."""
        self.outputs: dict[tuple[str, str], list[tuple[tuple[int, ...], Any]]] = defaultdict(list)
        """As `emitted`, in the order in which the conductor sends them."""
        self._in_turn: dict[str, OrderedOutputs] = defaultdict(lambda: OrderedOutputs(()))
        self._values: list[Any] = []
        self.modalities: dict[str, str] = {}
        self.reports: list[m.FromWorker] = []
        self.dropped: list[StateKey] = []
        self.released: list[tuple[Rank, str]] = []
        self.ranks: dict[str, tuple[Rank, ...]] = {}
        self.loops: list[LoopCall] = []
        self.observed: list[tuple[Rank, Observe]] = []
        self.parked: set[tuple[Rank, str]] = set()
        """Runs whose loops on a rank are held by its engine."""
        self._channels: ChannelValues = {}
        self.sent: list[m.BetweenWorkers] = []
        self._blocked: list[tuple[Rank, PlainLoop]] = []
        """Loops whose streams have no credit."""
        self._functions = functions
        self._random = random.Random(seed)
        self._links: dict[tuple[Rank, Rank], deque[Arrived | Extended]] = defaultdict(deque)
        self._legs: dict[str, Legs] = {}
        self.kept: dict[str, dict[str, Any]] = defaultdict(dict)
        """Run -> the results that are kept of it while a person is asked."""
        self._ended: dict[str, dict[Rank, int]] = defaultdict(dict)
        """Run -> the ranks that have ended its leg, with their verdicts."""
        self._work: dict[Rank, list[RunCall | MoveState | PlainLoop | CallDone]] = defaultdict(list)

    def start(
        self,
        run: str,
        itinerary: Itinerary,
        params: dict[str, Any],
        inputs: Mapping[str, Any],
        legs: Legs | None = None,
        **how: Any,
    ) -> None:
        """`how`: `stepped`, `record`, `hold`, `selected`."""
        if legs is not None:
            self._legs[run] = legs
        self._in_turn[run], self.ranks[run] = OrderedOutputs(itinerary.send_orders), itinerary.ranks
        event = Started(RunId(run), itinerary, {"seed": 0, **params}, dict(inputs), **how)
        for rank in self._random.sample(list(itinerary.ranks), len(itinerary.ranks)):
            self._perform(rank, self.cores[rank].handle(event))

    def cancel(self, run: str) -> None:
        for rank, core in self.cores.items():
            self._perform(rank, core.handle(Cancelled(RunId(run))))

    def gate(self, rank: Rank, order: Gate) -> None:
        self._perform(rank, self.cores[rank].handle(Gated(order)))

    def watch(self, watch: Watch) -> None:
        for rank, core in self.cores.items():
            self._perform(rank, core.handle(Watched(watch)))

    def run(self, most: int = 100_000) -> None:
        """Until nothing is left to do."""
        for _ in range(most):
            if not self.turn():
                return
        raise RuntimeError(f"still at work after {most} events")

    def turn(self) -> bool:
        """One event; False where there is none."""
        links = [link for link, queue in self._links.items() if queue]
        work = {rank: found for rank in self._work if (found := self._going(rank))}
        if links or len(work) > 1:
            work.pop(self._lagging, None)
        if not links and not work:
            return False
        choice = self._random.randrange(len(links) + len(work))
        if choice < len(links):
            source, target = links[choice]
            event = self._links[source, target].popleft()
            self._perform(target, self.cores[target].handle(event))
        else:
            rank = list(work)[choice - len(links)]
            one = self._random.choice(work[rank])
            self._work[rank] = [other for other in self._work[rank] if other is not one]
            self._serve(rank, one)
        return True

    def _going(self, rank: Rank) -> "list[RunCall | MoveState | PlainLoop | CallDone]":
        return [w for w in self._work[rank] if not (isinstance(w, PlainLoop) and (rank, w.call.run) in self.parked)]

    @property
    def failures(self) -> list[ErrorInfo]:
        return [r.error for r in self.reports if isinstance(r, m.RankFailed)]

    def done(self, run: str) -> set[Rank]:
        return {r.rank for r in self.reports if isinstance(r, m.RankDone) and r.run == run}

    def _serve(self, rank: Rank, work: RunCall | MoveState | PlainLoop | CallDone) -> None:
        if isinstance(work, PlainLoop):
            self._iterate(rank, work)
            return
        if isinstance(work, MoveState | CallDone):
            done = work if isinstance(work, CallDone) else CallDone(work.ref, self._move(rank, work))
            self._perform(rank, self.cores[rank].handle(done))
            return
        call = work.call
        ref = Ref(call.run, call.step, call.use, call.iteration)
        self.calls.append(call)
        try:
            done = CallDone(ref, self._functions[call.node](call))
        except ValueError as error:
            done = CallDone(ref, None, ErrorInfo(code="node_error", message=str(error), node=call.node))
        if done.outputs is None or not self._begun or self._random.random() >= self._begun:
            self._perform(rank, self.cores[rank].handle(done))
            return
        unsound = ErrorInfo(code="numeric_error", message="unsound", node=call.node)
        self._work[rank].append(CallDone(ref, None, unsound) if call.node == self._faulty else done)
        self._perform(rank, self.cores[rank].handle(CallBegun(ref, done.outputs)))

    def _iterate(self, rank: Rank, loop: PlainLoop) -> None:
        if loop.blocked:
            self._blocked.append((rank, loop))
            return
        events = loop.advance()
        if not any(isinstance(event, CallDone) for event in events):
            self._work[rank].append(loop)
        for event in events:
            self._perform(rank, self.cores[rank].handle(event))

    def _move(self, rank: Rank, work: MoveState) -> dict[str, Any]:
        if work.op == "export":
            return {"state": self.states.get((rank, work.source), "empty")}
        if work.target is not None:
            self.states[rank, work.target] = (
                work.value if work.op == "import" else self.states.get((rank, work.source), "empty")
            )
        return {}

    def _perform(self, rank: Rank, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case RunCall() | MoveState():
                    self._work[rank].append(command)
                case RunLoop(call=call):
                    self.loops.append(call)
                    self._work[rank].append(self._looped(rank, call))
                case Allow():
                    self._allow(rank, command)
                case Send():
                    self.sent.append(command.message)
                    self._links[rank, command.rank].append(Arrived(command.message, command.value))
                case Report(message=m.Emit() as emit):
                    self._output(emit, command.value)
                case Report(message=m.LegResult() as result):
                    assert result.name not in self.kept[result.run]
                    self.kept[result.run][result.name] = command.value
                case Report(message=message):
                    ends = message.run if isinstance(message, m.RankDone) else None
                    assert all(_run_of(one) != ends for one in self._work[rank]), "all is over"
                    self._reported(message)
                case DropStates():
                    self.dropped.extend(command.keys)
                case HoldLoops() | FreeLoops() | Observe():
                    self._watch(rank, command)
                case Release():
                    self.parked.discard((rank, command.run))
                    self.released.append((rank, command.run))
                    self._work[rank] = [w for w in self._work[rank] if _run_of(w) != command.run]

    def _reported(self, message: m.FromWorker) -> None:
        self.reports.append(message)
        if isinstance(message, m.Sent):
            self._send(self._in_turn[message.run].sent(message.step, message.rank))
        elif isinstance(message, m.LegDone):
            self._leg_done(message)

    def _leg_done(self, message: m.LegDone) -> None:
        ended = self._ended[message.run]
        assert message.rank not in ended
        ended[message.rank] = message.verdict
        if len(ended) == len(self.ranks[message.run]):
            assert len({*ended.values()}) == 1, "all ranks know one verdict"
            ended.clear()
            if self._legs[message.run].approval is not None:
                return
            leg = self._legs[message.run].next(message.verdict)
            self._in_turn[message.run] = OrderedOutputs(leg.send_orders)
            for rank in self.ranks[message.run]:
                self._links[CONDUCTOR, rank].append(Extended(message.run, leg))

    def _looped(self, rank: Rank, call: LoopCall) -> PlainLoop:
        def begin() -> None:
            for key, (source, _) in call.anew.items():
                self.states[rank, key] = self.states.get((rank, source), "empty") if source is not None else "empty"

        return PlainLoop(call, self._functions, self.calls, self._channels, begin)

    def _watch(self, rank: Rank, command: HoldLoops | FreeLoops | Observe) -> None:
        match command:
            case HoldLoops(run=run):
                assert (rank, run) not in self.parked
                self.parked.add((rank, run))
            case FreeLoops(run=run):
                self.parked.remove((rank, run))
            case Observe():
                self.observed.append((rank, command))

    def _output(self, emit: m.Emit, value: Any) -> None:
        self.modalities[emit.name] = emit.modality
        if value is ABSENT:
            emit = replace(emit, value=m.Absent())
        else:
            self.emitted[emit.run, emit.name].append((emit.iteration, value))
            self.passes[emit.run, emit.name].append(emit.passes)
            emit = replace(emit, value=m.Small(value=len(self._values)))
            self._values.append(value)
        self._send(self._in_turn[emit.run].emit(emit))

    def _send(self, messages: list[m.Emit]) -> None:
        for one in messages:
            assert isinstance(one.value, m.Small)
            self.outputs[one.run, one.name].append((one.iteration, self._values[int(one.value.value or 0)]))

    def _allow(self, rank: Rank, command: Allow) -> None:
        loops = [loop for _, loop in self._blocked] + [w for w in self._work[rank] if isinstance(w, PlainLoop)]
        loop = next((loop for loop in loops if loop.ref == command.ref), None)
        if loop is None:  # it has ended meanwhile
            return
        before = loop.call.times if loop.allowed is None else loop.allowed
        assert command.upto > before or command.items or command.fed != loop.fed
        for items in command.items:
            loop.put_items(items)
        loop.allowed, loop.fed = command.upto, command.fed
        self._work[rank].extend(loop for where, loop in self._blocked if where == rank and loop.ref == command.ref)
        self._blocked = [(where, loop) for where, loop in self._blocked if loop.ref != command.ref]


def _run_of(work: RunCall | MoveState | PlainLoop | CallDone) -> str:
    return work.ref.run if isinstance(work, MoveState | CallDone) else work.call.run
