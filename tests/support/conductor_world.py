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
    Parted,
    Rename,
    Spawn,
    Spawned,
    Tell,
    Tick,
    ToRank,
    ToService,
)
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.errors import ErrorInfo
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.wire.standing import Probe, Standing
from walkgraph.wire.watching import HeldCall

PAGES = 40
POOL = m.PoolSize(states=("main", "copy", "kept"), pages=PAGES, page_tokens=16, page_bytes=1024)


@dataclass
class FakeGate:
    """The gate of one run on one rank. While it is closed, it reports every change of what it holds."""

    open: bool = True
    through: bool = False
    held: list[HeldCall] = field(default_factory=list)
    breakpoint: str = ""
    number: int = 0
    said: tuple[Any, ...] = ((), "")

    def obey(self, order: m.Gate) -> None:
        self.open, self.through = order.mode == "open", order.mode == "through"
        self.breakpoint, self.number = "", order.number
        if order.mode == "one":
            self.held = [call for call in self.held if call != order.call]
        elif order.mode != "close":
            self.held = []
        if self.open:
            self.said = ((), "")

    def close(self, breakpoint_: str) -> None:
        self.open, self.through, self.breakpoint = False, False, breakpoint_

    def halted(self, rank: Rank, run: str) -> m.Halted | None:
        said = (tuple(self.held), self.breakpoint)
        if self.open or said == self.said:
            return None
        self.said = said
        return m.Halted(rank=rank, run=RunId(run), held=said[0], breakpoint=self.breakpoint, gate=self.number)


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
    gates: dict[str, FakeGate] = field(default_factory=dict)
    watch: m.Watch = field(default_factory=m.Watch)
    peers: dict[Rank, m.Peer] = field(default_factory=dict)
    loaded: bool = False
    loads: list[m.Load] = field(default_factory=list[m.Load])
    bad: set[str] = field(default_factory=set[str])
    """Digests of plans that it can't load."""
    stuck: set[str] = field(default_factory=set)
    """Runs that wait for what never comes."""
    calls: int = 0
    stopped: bool = False
    """As by SIGSTOP."""
    over: bool = False

    def read(self) -> None:
        match self.inbox.popleft():
            case m.Watch() as watch:
                self.watch = watch
            case m.Gate(run=run) as order:
                if run in self.gates:
                    self.gates[run].obey(order)
                    self.say(run)
            case message:
                self.obey(message)

    def obey(self, message: m.ToWorker) -> None:
        match message:
            case m.Load():
                self.load(message)
            case m.Peers(peers=peers):
                self.peers = peers
                self.connect()
            case m.Start() as start:
                if start.run not in self.ended:
                    self.runs[start.run] = start
                    self.gates[start.run] = FakeGate(open=not start.hold)
                    if start.session:
                        self.sessions.add(start.session)
            case m.Cancel(run=run):
                self.runs.pop(run, None)
                self.gates.pop(run, None)
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
                self.outbox.append(m.Pong(rank=self.rank, number=number, at=0.0))
            case m.Probe():
                self.outbox.append(self.probed(message))
            case m.Stop():
                self.over = True
            case _:
                pass

    def load(self, order: m.Load) -> None:
        assert not self.runs, "they are released before it loads another plan"
        self.peers, self.loaded = order.peers, True
        self.loads.append(order)
        self.outbox.append(m.Progress(rank=self.rank, phase="load", fraction=1.0))
        if order.plan.digest in self.bad:
            error = ErrorInfo(code="invalid_input", message="a tensor is missing")
            self.outbox.append(m.LoadFailed(rank=self.rank, error=error, number=order.number))
            return
        self.outbox.append(m.Ready(rank=self.rank, seconds=0.1, pools=(POOL,), number=order.number))
        self.connect()

    def connect(self) -> None:
        """Its peers answer at once."""
        starts = {rank: peer.start for rank, peer in self.peers.items() if rank != self.rank}
        if starts:
            self.outbox.append(m.Connected(rank=self.rank, peers=starts))

    def probed(self, probe: Probe) -> m.Probed:
        known = [run for run in probe.runs if run in self.gates]
        busy = {run: run in self.runs and run not in self.stuck for run in known}
        runs = tuple(Standing(run=run, busy=busy[run], sent=0, received=0) for run in known)
        return m.Probed(rank=self.rank, number=probe.number, runs=runs)

    def work(self, chance: random.Random) -> None:
        """One sign of life of one run."""
        run = chance.choice(self.movable)
        start, gate = self.runs[run], self.gates[run]
        if gate.open and self.watch.breaks and chance.random() < 0.2:
            gate.close(chance.choice(self.watch.breaks).id)
        if not gate.open and not (gate.through and chance.random() < 0.3):
            self.hold(run)
        elif chance.random() < 0.6:
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

    def hold(self, run: str) -> None:
        """A run has few calls that could be made at a time."""
        gate = self.gates[run]
        if len(gate.held) < 3:
            self.calls += 1
            where = {"walk": "w", "use": "u", "node": "n", "step": self.calls % 3, "iteration": (self.calls,)}
            gate.held.append(HeldCall(rank=self.rank, **where))  # type: ignore[arg-type]
        self.say(run)

    def say(self, run: str) -> None:
        halted = self.gates[run].halted(self.rank, run)
        if halted is not None:
            self.outbox.append(halted)

    @property
    def movable(self) -> list[str]:
        """Runs that can do something."""
        full = {run for run, gate in self.gates.items() if not gate.open and len(gate.held) >= 3}
        return sorted(self.runs.keys() - self.suspended - self.stuck - full)


class World:
    def __init__(self, graph: Graph, plan: Plan, limits: Limits, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 100.0
        self.core = Conductor(ItineraryCache(graph, plan), limits, lambda: 7)
        self.workers: dict[Rank, FakeWorker] = {}
        self.accepted: set[str] = set()
        self.rejected: dict[str, m.Rejected] = {}
        self.finished: dict[str, m.Finished] = {}
        self.outputs: dict[str, list[int]] = defaultdict(list)
        self.statuses: list[m.Status] = []
        self.spawned: list[tuple[float, Rank]] = []
        self.killed: list[Rank] = []
        self.told: list[Any] = []
        self.sessions: list[m.SessionsTold] = []
        self.queues: list[m.QueueTold] = []
        self.taken: list[m.TakenUp] = []
        self.name = ""
        """In telemetry."""
        self.paused: dict[str, m.Paused] = {}
        """As the service sees it."""
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
                    peer = m.Peer(address="", start=start)
                    worker.outbox.append(m.Hello(rank=rank, peer=peer))
                    self.handle(Spawned(rank, start, 1000 + start))
                case Kill(rank=rank):
                    self.killed.append(rank)
                    self.kill(rank)
                case Tell(event=event):
                    self.told.append(event)
                case Rename(name=name):
                    self.name = name
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
            case m.SessionsTold():
                self.sessions.append(message)
            case m.QueueTold():
                self.queues.append(message)
            case m.TakenUp():
                self.taken.append(message)
            case m.Output(run=run):
                assert run in self.accepted
                assert run not in self.finished, "nothing after the end"
                self.outputs[run].append(message.index)
            case m.Finished(run=run):
                assert run in self.accepted
                assert run not in self.finished, "once"
                self.finished[run] = message
                self.paused.pop(run, None)
            case m.Status():
                self.statuses.append(message)
            case m.Paused(run=run):
                assert run in self.accepted
                assert run not in self.finished, "nothing after the end"
                assert self.paused.get(run) != message, "only what is new"
                self.paused[run] = message
            case m.Resumed(run=run):
                assert run in self.paused
                del self.paused[run]

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

    def part(self, rank: Rank) -> None:
        """The connection with a worker is lost."""
        self.handle(Parted(rank, self.workers[rank].start))

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
        if worker.movable:
            choices.append(lambda: worker.work(self.chance))
        if not choices:
            return False
        self.chance.choice(choices)()
        if worker.over and not worker.outbox:
            del self.workers[rank]
            self.handle(Died(rank, worker.start, 0))
        return True

    def settle(self, turns: int = 60_000) -> None:
        """Until nothing moves any more, time included."""
        for _ in range(turns):
            ranks = list(self.workers)
            if not sum(self.act(rank) for rank in ranks if rank in self.workers):
                if not self.core.runs.table.running and not self.core.runs.table.waiting:
                    return
                self.pass_time(0.25)
        raise AssertionError("it doesn't come to rest")

    def steer(self, run: str, action: Any, call: HeldCall | None = None) -> None:
        self.handle(FromService(m.Steer(run=RunId(run), action=action, call=call)))

    def steer_any(self, run: str) -> None:
        action = self.chance.choice(["pause", "step", "iteration", "resume", "resume"])
        held = [call for paused in self.paused.values() for call in paused.held]
        self.steer(run, action, self.chance.choice([None, *held]) if action != "pause" else None)
        if self.chance.random() < 0.3:
            self.hear()
            self.check_paused()

    def hear(self) -> None:
        """All that was said is heard; nobody does anything else meanwhile."""
        while any(worker.inbox or worker.outbox for worker in self.workers.values() if not worker.stopped):
            for rank, worker in list(self.workers.items()):
                while worker.inbox and not worker.stopped and self.workers.get(rank) is worker:
                    worker.read()
                while worker.outbox and not worker.stopped and self.workers.get(rank) is worker:
                    self.deliver(rank)
            for rank, worker in list(self.workers.items()):
                if worker.over and not worker.outbox:
                    del self.workers[rank]
                    self.handle(Died(rank, worker.start, 0))

    def check_paused(self) -> None:
        """Once all was heard: what the service was told of each run is what its ranks hold."""
        if any(worker.stopped for worker in self.workers.values()):
            return
        gates: dict[str, list[FakeGate]] = defaultdict(list)
        for rank in sorted(self.workers):
            for run, gate in self.workers[rank].gates.items():
                gates[run].append(gate)
        for run in self.accepted - set(self.finished):
            told = self.paused.get(run)
            if told is None:
                assert all(gate.open for gate in gates[run])
            else:
                assert not any(gate.open for gate in gates[run])
                held = [call for gate in gates[run] for call in gate.held]
                assert list(told.held) == sorted(held, key=lambda call: (call.rank, call.step, call.iteration))

    def check(self) -> None:
        """Pages are never promised twice, and never negative."""
        for (rank, _), pages in self.core.pages.promised.items():
            assert 0 <= pages <= PAGES, (rank, pages)
