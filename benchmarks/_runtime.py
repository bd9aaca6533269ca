"""The worker's core and the engine of one rank in this process, without sockets, to measure the cost of a run alone."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec import structs

from walkgraph.components import catalogue
from walkgraph.engine.engine import Begun, Done, Engine, LoopDone
from walkgraph.engine.loops.spec import Items
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.placement.tables import Plan
from walkgraph.resources import bundled
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    ABSENT,
    Allow,
    Cancelled,
    Command,
    DropStates,
    MoveState,
    Release,
    Report,
    RunCall,
    RunLoop,
    Started,
)
from walkgraph.worker.interfaces import called
from walkgraph.worker.io.moving import StateMoves
from walkgraph.worker.plan_variants import Variants

RANK = Rank(0)


def bundled_graph(
    name: str, sources: Mapping[str, str] | None = None, literals: Mapping[str, Mapping[str, Any]] | None = None
) -> Graph:
    """`sources`: weight set -> where its weights come from, instead of what the document says. `literals`: node ->
    parameters that are added to it."""
    document = json.loads(bundled("graphs")[name].read_text())
    for weights, source in (sources or {}).items():
        document["weights"][weights]["source"] = source
    for node, params in (literals or {}).items():
        document["nodes"][node].setdefault("params", {}).update(params)
    return codec.load(json.dumps(document).encode())


def placed(graph: Graph, device: str, *, resident: bool = True, kv_bytes: int = 0) -> Plan:
    """All on one rank; its caches share `kv_bytes`."""
    group, rank = Group(nodes=("*",), ranks=(RANK,)), RankDevice(rank=RANK, device=device)
    made = assemble(
        Assignment(graph, Placement(name="one", groups=(group,), ranks=(rank,))), catalogue(), resident=resident
    )
    return structs.replace(made, ranks=tuple(structs.replace(one, kv_bytes=kv_bytes) for one in made.ranks))


@dataclass
class Taken:
    """The result of a run; times are seconds of `time.perf_counter`."""

    began: float
    ended: float = 0.0
    values: list[Any] = field(default_factory=list[Any])
    times: tuple[m.NodeTime, ...] = ()


class Phases:
    """Seconds of each thing that was told of, by its first word."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def __call__(self, what: str, _done: float) -> None:
        now = time.perf_counter()
        name = what.partition(" ")[0]
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


class InProcess:
    def __init__(
        self, graph: Graph, plan: Plan, *, capture: bool = True, threads: int | None = None, fused: bool = True
    ) -> None:
        """Loads, and makes loops ready, as a rank does. `fused`: chains of small nodes are one call."""
        self._graph, self._plan = graph, plan
        self.core = Core(plan, RANK, Variants(plan, RANK, fused=fused))
        self.engine = Engine(plan, RANK, capture=capture, threads=threads)
        self.phases = Phases()
        self.engine.load(self.phases)
        for loop in self.core.loops():
            self.engine.prepare(loop, self.phases)
        self._moves = StateMoves(self.engine.transfers, lambda run: False, self._fail)
        self._runs: dict[str, Taken] = {}
        self._commands: deque[Command] = deque()

    def submit(self, run: str, task: str, params: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> None:
        declared = task_of(self._graph, task)
        filled, given = fill_params(declared, {"seed": 0, **params}), {k: [v] for k, v in (inputs or {}).items()}
        self._runs[run] = Taken(time.perf_counter())
        itinerary = expand(self._graph, self._plan, task, filled, given)
        values = {one.name: one.value for one in name_inputs(declared, given, ())}
        self.engine.limits.admit(run, filled)
        self._follow(self.core.handle(Started(RunId(run), itinerary, filled, values)))

    def serve(self, watch: Callable[[], None] = lambda: None) -> None:
        """Until nothing is left to do. `watch` is called after each step of the engine."""
        while not self.engine.idle:
            for event in self.engine.step():
                if isinstance(event, Items):
                    self._follow(self.core.handle(event))
                elif isinstance(event, Begun | Done | LoopDone):
                    self._follow(self.core.handle(called(event)))
            watch()

    def taken(self, run: str) -> Taken:
        """And forget the run."""
        self._follow(self.core.handle(Cancelled(RunId(run))))
        return self._runs.pop(run)

    def _follow(self, commands: list[Command]) -> None:
        self._commands.extend(commands)
        while self._commands:
            self._perform(self._commands.popleft())

    def _perform(self, command: Command) -> None:
        match command:
            case RunCall(call=call):
                self.engine.add(call)
            case RunLoop(call=loop):
                self.engine.add_loop(loop)
            case Allow(ref=ref, upto=upto, items=items, fed=fed):
                self.engine.loops.allow(ref.run, ref.step, ref.use, ref.iteration, upto, items, fed)
            case Report(message=message, value=value):
                self._report(message, value)
            case MoveState():
                for event in self._moves.perform(command):
                    self._commands.extend(self.core.handle(event))
            case DropStates(keys=keys):
                self.engine.states.drop(keys)
            case Release(run=run):
                self.engine.drop(run)
            case _:
                raise RuntimeError(f"one rank has no use for {command}")

    def _fail(self, run: str, error: ErrorInfo) -> None:
        raise RuntimeError(f"run {run}: {error}")

    def _report(self, message: m.FromWorker, value: Any) -> None:
        match message:
            case m.Emit():
                if value is not ABSENT:
                    self._runs[message.run].values.append(value)
            case m.RankDone():
                self._runs[message.run].ended = time.perf_counter()
                self._runs[message.run].times = message.times
            case m.RankFailed():
                raise RuntimeError(f"run {message.run}: {message.error}")
            case _:
                pass


def device_name() -> str:
    return "cuda:0" if torch.cuda.is_available() else "cpu"
