"""The cores and engines of several ranks in this process, each with a clock of its own: it goes by the processor time
that the rank's work takes. So ranks run side by side, however few processors there are and whatever else runs."""

import contextlib
import gc
import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.commands import performed
from walkgraph.components import catalogue
from walkgraph.engine.calls.schedule import CPU_MIX
from walkgraph.engine.engine import Begun, Done, Engine, LoopDone
from walkgraph.engine.loops.spec import Items
from walkgraph.errors import ErrorInfo
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Placement
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    ABSENT,
    Arrived,
    BeginMove,
    Cancelled,
    Command,
    Event,
    Report,
    Send,
    Started,
)
from walkgraph.worker.interfaces import called
from walkgraph.worker.io import values
from walkgraph.worker.io.moving import StateMoves
from walkgraph.worker.plan_variants import Variants

LATENCY = 1e-4
"""Seconds until a message is there, besides its bytes."""


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """All ranks are one process, whose garbage collections take the time of several."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class VirtualRanks:
    def __init__(self, graph: Graph, placement: Placement, link: float, *, parts: bool = True) -> None:
        """`link`: bytes a second from a rank to another. `parts`: states leave in parts while they grow; otherwise
        whole."""
        self._graph, self._link, self._parts = graph, link, parts
        made = assemble(Assignment(graph, placement), catalogue())
        self._plan = replace(made, ranks=tuple(replace(one, kv_bytes=1 << 28) for one in made.ranks))
        ranks = [one.rank for one in made.ranks]
        self._cores = {rank: Core(self._plan, rank, Variants(self._plan, rank, fused=True)) for rank in ranks}
        self._engines = {rank: Engine(self._plan, rank, threads=1, mix=CPU_MIX, threaded=False) for rank in ranks}
        for engine in self._engines.values():
            engine.load()
        self._moves = {rank: StateMoves(one.transfers, lambda run: False, _fail) for rank, one in self._engines.items()}
        self._clocks = dict.fromkeys(ranks, 0.0)
        self._coming: dict[Rank, list[tuple[float, int, Event]]] = {rank: [] for rank in ranks}
        self._numbers = count()
        self._said: list[tuple[Rank, Command]] = []
        """The commands of a rank's turn that send something, at its end."""
        self._free: dict[tuple[Rank, Rank], float] = defaultdict(float)
        """The time at which a link has carried what it was given."""
        self.told: dict[str, list[float]] = defaultdict(list)
        """The time of each output of a run."""
        self.values: dict[str, list[Any]] = defaultdict(list)

    @property
    def now(self) -> float:
        return max(self._clocks.values())

    def submit(self, at: float, run: str, task: str, params: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        declared = task_of(self._graph, task)
        filled, given = fill_params(declared, {"seed": 0, **params}), {k: [v] for k, v in inputs.items()}
        itinerary = expand(self._graph, self._plan, task, filled, given, outputs=["text"])
        named = {one.name: one.value for one in name_inputs(declared, given, ())}
        for rank in itinerary.ranks:
            self._engines[rank].limits.admit(run, filled)
            self._come(rank, at, Started(RunId(run), itinerary, filled, named))

    def forget(self, run: str) -> None:
        for rank in self._cores:
            self._come(rank, self.now, Cancelled(RunId(run)))
        self.run()

    def run(self) -> None:
        """Run until nothing is left to do."""
        while (turn := min(self._turns(), default=None)) is not None:
            self._turn(*turn)

    def _turns(self) -> list[tuple[float, Rank]]:
        found: list[tuple[float, Rank]] = []
        for rank, engine in self._engines.items():
            if not engine.idle:
                found.append((self._clocks[rank], rank))
            elif self._coming[rank]:
                found.append((max(self._clocks[rank], self._coming[rank][0][0]), rank))
        return found

    def _turn(self, now: float, rank: Rank) -> None:
        began = time.process_time()
        coming, engine = self._coming[rank], self._engines[rank]
        while coming and coming[0][0] <= now:
            self._follow(rank, self._cores[rank].handle(heapq.heappop(coming)[2]))
        for event in [] if engine.idle else engine.step():
            if isinstance(event, Items):
                self._follow(rank, self._cores[rank].handle(event))
            elif isinstance(event, Begun | Done | LoopDone):
                self._follow(rank, self._cores[rank].handle(called(event)))
        for event in self._moves[rank].grown():
            self._follow(rank, self._cores[rank].handle(event))
        self._clocks[rank] = now + time.process_time() - began
        for source, command in self._said:
            self._say(source, command, self._clocks[rank])
        self._said.clear()

    def _come(self, rank: Rank, at: float, event: Event) -> None:
        heapq.heappush(self._coming[rank], (at, next(self._numbers), event))

    def _say(self, rank: Rank, command: Command, now: float) -> None:
        match command:
            case Send():
                nbytes, way = values.size(command.value), (rank, command.rank)
                self._free[way] = max(self._free[way], now) + nbytes / self._link
                self._come(command.rank, self._free[way] + LATENCY, Arrived(command.message, command.value))
            case Report(message=m.Emit(run=run), value=value) if value is not ABSENT:
                self.told[run].append(now)
                self.values[run].append(value)
            case Report(message=m.RankFailed(run=run, error=error)):
                _fail(run, error)
            case _:
                pass

    def _follow(self, rank: Rank, commands: list[Command]) -> None:
        for command in commands:
            self._perform(rank, command)

    def _perform(self, rank: Rank, command: Command) -> None:
        if isinstance(command, BeginMove) and not self._parts:
            return
        events = performed(command, self._engines[rank], self._moves[rank])
        if events is None:
            self._said.append((rank, command))
        for event in events or ():
            self._follow(rank, self._cores[rank].handle(event))


def _fail(run: str, error: ErrorInfo) -> None:
    raise RuntimeError(f"run {run}: {error}")
