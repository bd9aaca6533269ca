"""A world around a conductor's core, in simulated time: workers are slow, fail, stop or die; messages repeat."""

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from walkgraph.conductor.core import Conductor
from walkgraph.conductor.events import (
    Command,
    Died,
    Event,
    Exit,
    FromRank,
    FromService,
    Kill,
    Spawn,
    Spawned,
    Tell,
    Tick,
    ToRank,
    ToService,
)
from walkgraph.errors import ErrorInfo
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

PAGES = 40
POOL = m.PoolSize(states=("main", "copy", "kept"), pages=PAGES, page_tokens=16, page_bytes=1024)


@dataclass
class FakeWorker:
    """Does what a worker does, at the world's pace."""

    rank: Rank
    start: int
    inbox: deque[m.ToWorker] = field(default_factory=deque)
    outbox: deque[m.FromWorker] = field(default_factory=deque)
    runs: dict[str, m.Start] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    suspended: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    stopped: bool = False
    """As by SIGSTOP."""
    over: bool = False

    def read(self) -> None:
        match self.inbox.popleft():
            case m.Load():
                self.outbox.append(m.Progress(rank=self.rank, phase="load", fraction=1.0))
                self.outbox.append(m.Ready(rank=self.rank, seconds=0.1, pools=(POOL,)))
            case m.Start() as start:
                if start.run not in self.ended:
                    self.runs[start.run] = start
                    if start.session:
                        self.sessions.add(start.session)
            case m.Cancel(run=run):
                self.runs.pop(run, None)
                self.suspended.discard(run)
                self.ended.add(run)
                self.sessions.discard(run.removeprefix("session:"))
                self.outbox.append(m.Released(rank=self.rank, run=run, pages_free=0, pages_total=0))
            case m.Suspend(run=run):
                assert run not in self.suspended, "once"
                self.suspended.add(run)
                self.outbox.append(m.Suspended(rank=self.rank, run=run, pages_free=0))
            case m.Resume(run=run):
                assert run in self.suspended or run in self.ended, "what is here can't come back"
                self.suspended.discard(run)
            case m.Ping(number=number):
                self.outbox.append(m.Pong(rank=self.rank, number=number))
            case m.Stop():
                self.over = True
            case m.Peers() | m.Watch():
                pass
            case m.Gate():
                pass

    def work(self, chance: random.Random) -> None:
        """One sign of life of one run."""
        run = chance.choice(sorted(self.runs.keys() - self.suspended))
        start = self.runs[run]
        if chance.random() < 0.6:
            name = chance.choice(start.itinerary.outputs)
            value = m.Small(value=chance.randrange(9))
            self.outbox.append(m.Emit(rank=self.rank, run=RunId(run), name=name, value=value, iteration=()))
        elif chance.random() < 0.2:
            del self.runs[run]
            error = ErrorInfo(code="node_error", message="a node failed")
            self.outbox.append(m.RankFailed(rank=self.rank, run=RunId(run), error=error))
        else:
            del self.runs[run]
            self.outbox.append(m.RankDone(rank=self.rank, run=RunId(run), times=()))


class World:
    def __init__(self, graph: Graph, plan: Plan, limits: Limits, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 100.0
        self.core = Conductor(graph, plan, limits, lambda: 7)
        self.workers: dict[Rank, FakeWorker] = {}
        self.accepted: set[str] = set()
        self.rejected: dict[str, m.Rejected] = {}
        self.finished: dict[str, m.Finished] = {}
        self.outputs: dict[str, list[int]] = defaultdict(list)
        self.statuses: list[m.Status] = []
        self.spawned: list[tuple[float, Rank]] = []
        self.killed: list[Rank] = []
        self.told: list[Any] = []
        self.exited = False
        self.perform(self.core.begin(self.now))

    @property
    def state(self) -> str:
        return self.statuses[-1].state

    def handle(self, event: Event) -> None:
        self.perform(self.core.handle(event, self.now))
        self.check()

    def submit(self, run: str, task: str = "write", **fields: Any) -> None:
        params = fields.pop("params", {})
        self.handle(FromService(m.Submit(run=RunId(run), task=task, params=params, inputs={}, **fields)))

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case ToService(message=message):
                    self.take(message)
                case ToRank(rank=rank, message=message):
                    if rank in self.workers:
                        self.workers[rank].inbox.append(message)
                case Spawn(rank=rank, start=start):
                    assert rank not in self.workers, "one process a rank"
                    self.spawned.append((self.now, rank))
                    worker = FakeWorker(rank, start)
                    self.workers[rank] = worker
                    peer = m.Peer(address="", start=start, pid=start, arena_fd=0, arena_bytes=0, arena_token=b"")
                    worker.outbox.append(m.Hello(rank=rank, peer=peer))
                    self.handle(Spawned(rank, start, 1000 + start))
                case Kill(rank=rank):
                    self.killed.append(rank)
                    self.kill(rank)
                case Tell(event=event):
                    self.told.append(event)
                case Exit():
                    assert not self.workers
                    self.exited = True

    def take(self, message: m.FromConductor) -> None:
        match message:
            case m.Accepted(run=run):
                assert run not in self.accepted
                self.accepted.add(run)
            case m.Rejected(run=run):
                assert run not in self.accepted
                self.rejected[run] = message
            case m.Output(run=run):
                assert run in self.accepted
                assert run not in self.finished, "nothing after the end"
                self.outputs[run].append(message.index)
            case m.Finished(run=run):
                assert run in self.accepted
                assert run not in self.finished, "once"
                self.finished[run] = message
            case m.Status():
                self.statuses.append(message)
            case m.Paused() | m.Resumed():
                pass

    # ── what may happen ──

    def deliver(self, rank: Rank, twice: bool = False) -> None:
        worker = self.workers[rank]
        message = worker.outbox.popleft()
        for _ in range(2 if twice and not isinstance(message, m.Emit) else 1):
            if self.workers.get(rank) is worker:
                self.handle(FromRank(rank, worker.start, message))

    def kill(self, rank: Rank) -> None:
        worker = self.workers.pop(rank, None)
        if worker is not None:
            stale = [*worker.outbox]
            self.handle(Died(rank, worker.start, -9))
            for message in stale:  # arrives late: the socket was read after the pidfd
                self.handle(FromRank(rank, worker.start, message))
            self.handle(Died(rank, worker.start, -9))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.handle(Tick())

    def act(self, rank: Rank) -> bool:
        """One thing that a worker does by itself; False if it has nothing to do."""
        worker = self.workers[rank]
        if worker.stopped:
            return False
        choices: list[Callable[[], None]] = []
        if worker.inbox:
            choices.append(worker.read)
        if worker.outbox:
            choices.append(lambda: self.deliver(rank, self.chance.random() < 0.1))
        if worker.runs.keys() - worker.suspended:
            choices.append(lambda: worker.work(self.chance))
        if not choices:
            return False
        self.chance.choice(choices)()
        if worker.over and not worker.outbox:
            del self.workers[rank]
            self.handle(Died(rank, worker.start, 0))
        return True

    def settle(self, turns: int = 20_000) -> None:
        """Until nothing moves any more, time included."""
        for _ in range(turns):
            ranks = list(self.workers)
            if not sum(self.act(rank) for rank in ranks if rank in self.workers):
                if not self.core.runs.running and not self.core.runs.waiting:
                    return
                self.pass_time(0.25)
        raise AssertionError("it doesn't come to rest")

    def check(self) -> None:
        """Pages are never promised twice, and never negative."""
        for (rank, _), pages in self.core.pages.promised.items():
            assert 0 <= pages <= PAGES, (rank, pages)
