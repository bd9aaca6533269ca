"""A deployment on GPUs that aren't there: every rank's engine and core in a thread, on the CPU, with real messages
between the parts of loops that span ranks."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from msgspec.structs import replace

from tests.support.local import LocalDeployment
from tests.support.spanning import OFFSET, Node, connected, quiet
from walkgraph.components import catalogue
from walkgraph.engine.engine import Begun, Done, Engine, LoopDone
from walkgraph.engine.loops.loop_peers import PeerMemory
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Placement
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import Arrived, Command, Send, Started
from walkgraph.worker.interfaces import called
from walkgraph.worker.loops.parts import Parts


class Worker(Node):
    """With the worker's own `Parts`; stands for its links and its carrier, too."""

    def __init__(self, rank: int, engine: Engine, deployment: Threaded) -> None:
        super().__init__(rank, engine, 1 << 20)
        self.deployment = deployment
        self.parts_here = Parts(engine.loops, self, self)  # type: ignore[arg-type]
        engine.connect_peers(PeerMemory(self.arena[OFFSET:], OFFSET), self.parts_here)

    def urge(self, to: Rank, message: m.BetweenParts) -> None:
        frame, it = codec.encode(message), self.peers[to]
        assert isinstance(it, Worker)
        it.mail.put(lambda: it.parts_here.take(self.rank, codec.between_workers.decode(frame)))  # type: ignore[arg-type]

    def came(self, event: Any) -> None:
        self.deployment.perform(self.rank, called(event) if isinstance(event, Begun | Done | LoopDone) else event)


class Threaded(LocalDeployment):
    def __init__(self, graph: Graph, placement: Placement, kv_bytes: int = 64 * 2**20) -> None:
        """`placement`: on GPUs, as far as the plan goes."""
        self.graph = graph
        tables = assemble(Assignment(graph, placement), catalogue())
        self.plan = replace(tables, ranks=tuple(replace(r, kv_bytes=kv_bytes, device="cpu") for r in tables.ranks))
        self.cores = {rank.rank: Core(self.plan, rank.rank) for rank in self.plan.ranks}
        self.engines = {rank.rank: Engine(self.plan, rank.rank, threads=1, threaded=False) for rank in self.plan.ranks}
        for rank, engine in self.engines.items():
            engine.load()
            for loop in self.cores[rank].loops():
                engine.prepare(loop)
        self.outputs = defaultdict(lambda: defaultdict(list))
        self.failed: dict[str, Any] = {}
        self.moves = self._moves()
        self.times = defaultdict(list)
        self.ends = defaultdict(list)
        self.observed, self.halted = [], []
        self.nodes = {rank: Worker(rank, engine, self) for rank, engine in self.engines.items()}
        connected(*self.nodes.values())

    def perform(self, rank: Rank, event: Any) -> None:
        self._perform(rank, self.cores[rank].handle(event))

    def _begin(self, rank: Rank, event: Started) -> None:
        self.nodes[rank].mail.put(lambda: self.perform(rank, event))

    def run(self) -> None:
        assert quiet(list(self.nodes.values()), parts=not self.failed)

    def _command(self, rank: Rank, engine: Engine, command: Command) -> None:
        if isinstance(command, Send):
            to, event = command.rank, Arrived(command.message, command.value)
            self.nodes[to].mail.put(lambda: self.perform(to, event))
        else:
            super()._command(rank, engine, command)

    def end(self) -> None:
        for node in self.nodes.values():
            node.end()


def on_gpus(placement: Placement) -> Placement:
    ranks = tuple(one.model_copy(update={"device": f"cuda:{one.rank}"}) for one in placement.ranks)
    return placement.model_copy(update={"ranks": ranks})
