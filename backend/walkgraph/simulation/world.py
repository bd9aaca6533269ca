"""A deployment in simulated time, made from a seed: it is asked for runs, disturbed, and must come to rest.

    World(scenario, seed).run() ──> Outcome, or a Violation that names the seed

The conductor's core and the workers' loops, cores, connections and schedulers are the real ones. Network, sockets,
clock, devices and processes are simulated. All of them are arguments, so that a test can plant a fault in any.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from walkgraph.conductor import events as c
from walkgraph.conductor.core import Conductor
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.client import AskedRun, Chances, SimulatedClient
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames, Network
from walkgraph.simulation.rank.carrier import Arenas
from walkgraph.simulation.rank.device import SimulatedDevice
from walkgraph.simulation.rank.engine import SimulatedEngine
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.rank.worker import SimulatedWorker, WorkerParts
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.telemetry.emit import Buffered, Emitter, Off
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.wire.watching import Level
from walkgraph.worker.core import Core
from walkgraph.worker.interfaces import CoreLike
from walkgraph.worker.io.links import Links
from walkgraph.worker.loop import WorkerLoop
from walkgraph.worker.plan_variants import Variants

LIMITS = Limits(restarts=1000, backoff_first=0.1, backoff_last=0.5, step_deadline=2.0, load_deadline=3.0)
READY_SECONDS = 5.0
"""In which an undisturbed world is ready."""
REST_SECONDS = 60.0
"""In which a world must come to rest."""
LATE_SECONDS = 0.05
"""After a run's deadline, in which its end must have begun."""
TURN_SECONDS = 0.0005
"""The longest that the conductor takes until it reads what has come."""
DIED_SECONDS = 0.002
"""From the death of a process until the conductor can read of it, at most."""
STALL_SECONDS = 0.8
"""The longest that a process stands still and then goes on: the conductor must not take it for dead."""
CRASHES = 0.3
"""The share of deaths that a process tells of before it ends."""
MANY, CROWDED = 6, 0.5
"""Of worlds with more runs than this, the share in which few may run or wait at a time."""
MOST_TICKS = 20
"""At one time."""


@dataclass(frozen=True)
class WorldParts:
    """What a world is made of."""

    network: type[Network] = Network
    core: Callable[[Plan, Rank, Variants], CoreLike] = Core
    states: type[StateStore] = StateStore
    engine: type[SimulatedEngine] = SimulatedEngine
    device: type[SimulatedDevice] = SimulatedDevice
    links: type[Links] = Links
    loop: type[WorkerLoop] = WorkerLoop
    conductor: type[Conductor] = Conductor


REAL_PARTS = WorldParts()


class Outcome(NamedTuple):
    """What became of a world."""

    ends: Counter[str]
    """How its runs ended."""
    counts: Counter[str]
    """What happened, by kind."""
    seconds: float
    """Simulated."""


class World:
    def __init__(
        self, scenario: Scenario, seed: int, *, chances: Chances | None = None, parts: WorldParts = REAL_PARTS
    ) -> None:
        self._scenario, self._parts = scenario, parts
        self._chances = Chances() if chances is None else chances
        self._simulator = Simulator(scenario.name, seed)
        self._chance, self._counts = self._simulator.chance, self._simulator.counts
        self._network = parts.network(self._simulator)
        self._arenas: Arenas = {}
        self._workers: dict[Rank, SimulatedWorker] = {}
        self._lost: list[float] = []
        """When ranks were killed or stopped for good."""
        self._tick_at = float("inf")
        self._ticked, self._ticks = -1.0, 0
        """The last tick, and how many came at its time."""
        self._unread: list[c.Event] = []
        """What has come and the conductor has not read."""
        self._exited = False
        self.client = SimulatedClient(scenario, self._chances, self._simulator, self._from_client)
        self._fragile = self._chance.random() < self._chances.fail
        """The first death of a process fails the deployment."""
        self._level: Level = self._chance.choice(("off", "summary", "full"))
        self._tells = self._chance.random() < self._chances.telemetry
        self._conductor = parts.conductor(scenario.graph, scenario.plan, self._limits(), lambda: 7)

    def run(self) -> Outcome:
        self._perform(self._conductor.begin(self._simulator.now))
        self._until(lambda: self.client.ready, READY_SECONDS, "it isn't ready")
        self.client.begin()
        self._disturb()
        self._until(lambda: self.client.over, REST_SECONDS, "not all runs have ended")
        self._until(self._at_rest, REST_SECONDS, "it doesn't come to rest")
        ends = Counter(self._check_run(run) for run in self.client.runs.values())
        self._check_left()
        if self._chance.random() < self._chances.stop:
            self.client.stop()
            self._until(lambda: self._exited, READY_SECONDS, "it doesn't stop")
        return Outcome(ends, self._counts, self._simulator.now)

    # ── time ──

    def _until(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        end = self._simulator.now + seconds
        while not done():
            if self._simulator.now > end or not self._simulator.step():
                raise self._simulator.fail(f"{otherwise}; {self._standing()}")

    def _standing(self) -> str:
        """What keeps the world from resting."""
        open_ = [run.id for run in self.client.runs.values() if not run.over]
        states = {run.id: run.state for run in self._conductor.runs.table}
        left = [line for worker in self._workers.values() for line in worker.left()]
        ranks = {rank.rank: rank.state for rank in self._conductor.ranks.status()}
        return f"open runs {open_}, conductor {states}, ranks {ranks}, {'; '.join(left) or 'nothing kept'}"

    def _at_rest(self) -> bool:
        core = self._conductor
        under_way = self._network.in_flight or self._simulator.blocked or self._unread
        if under_way or not (core.ranks.all_ready or self.client.failed):
            return False
        if len(core.runs.table) or len(core.runs.sessions):
            return False
        if self.client.failed:
            return not self._workers
        return all(worker.resting and worker.loaded for worker in self._workers.values())

    def _limits(self) -> Limits:
        limits = LIMITS
        if self._fragile:
            limits = replace(limits, restarts=0)
        if self._chances.most_runs > MANY and self._chance.random() < CROWDED:
            self.client.crowded = True
            limits = replace(limits, queue=1, running=3)
        return limits

    # ── conductor ──

    def _from_client(self, message: m.ToConductor) -> None:
        self._hear(c.FromService(message))
        match message:
            case m.Submit(run=run, deadline=deadline) if deadline is not None:
                self._simulator.after(deadline + LATE_SECONDS, lambda: self._check_deadline(run))
            case _:
                pass

    def _hear(self, *events: c.Event) -> None:
        """To be read in the conductor's next turn, with what else has come by then."""
        if not self._unread:
            self._simulator.after(self._chance.random() * TURN_SECONDS, self._turn)
        self._unread += events

    def _turn(self) -> None:
        """As `ConductorLoop.turn`: workers are read first, then deaths, then the service."""
        unread = sorted(self._unread, key=_reading_order)
        self._unread = []
        if not self._exited:
            self._perform(self._conductor.handle_all(unread, self._simulator.now))
            self._check_promises()
            self._plan_tick()

    def _handle(self, event: c.Event) -> None:
        if not self._exited:
            self._perform(self._conductor.handle(event, self._simulator.now))
            self._plan_tick()

    def _plan_tick(self) -> None:
        due = max(self._conductor.due(), self._simulator.now)
        if due < self._tick_at:
            self._tick_at = due
            self._simulator.at(due, lambda: self._tick(due))

    def _tick(self, planned: float) -> None:
        if planned == self._tick_at:
            self._ticks = self._ticks + 1 if planned == self._ticked else 0
            if self._ticks > MOST_TICKS:
                raise self._simulator.fail("the conductor wants to act at once, again and again, and does nothing")
            self._tick_at, self._ticked = float("inf"), planned
            self._handle(c.Tick())

    def _perform(self, commands: list[c.Command]) -> None:
        for command in commands:
            match command:
                case c.ToService(message=message):
                    self.client.take(message)
                case c.ToRank(rank=rank, message=message):
                    if rank in self._workers:
                        self._post(CONDUCTOR, self._workers[rank].here, [codec.encode(message)])
                case c.Spawn(rank=rank, start=start):
                    self._spawn(rank, start)
                case c.Kill(rank=rank):
                    self._killed(rank)
                case c.Exit():
                    if self._workers:
                        raise self._simulator.fail("it is over while ranks have processes")
                    self._exited = True
                case c.Tell():
                    pass

    def _post(self, source: Endpoint, target: Endpoint, frames: Frames) -> bool:
        """False if the target is no more."""
        if target == CONDUCTOR:
            self._network.send(source, target, frames, partial(self._heard, source))
            return True
        worker = self._workers.get(Rank(target.rank))
        if worker is None or worker.here != target:
            return False
        self._network.send(source, target, frames, partial(worker.receive, source))
        return True

    def _heard(self, source: Endpoint, frames: Frames) -> None:
        messages = codec.from_worker.decode_all(frames[0])
        self._hear(*(c.FromRank(Rank(source.rank), source.start, message) for message in messages))

    # ── processes ──

    def _spawn(self, rank: Rank, start: int) -> None:
        if rank in self._workers:
            raise self._simulator.fail(f"rank {rank} is started while it runs")
        self._counts["processes started"] += 1
        scenario, parts, simulator = self._scenario, self._parts, self._simulator
        made = WorkerParts(
            core=self._core,
            states=partial(parts.states, simulator, scenario.paged, scenario.pages),
            engine=partial(parts.engine, simulator, scenario.functions, device=parts.device),
            links=parts.links,
            loop=parts.loop,
            emitter=lambda: self._emitter(rank),
        )
        here = Endpoint(rank, start)
        loads = start <= len(scenario.plan.ranks) or self._chance.random() >= self._chances.unloadable
        self._counts["processes that can't load"] += not loads
        self._workers[rank] = SimulatedWorker(simulator, here, made, self._post, self._arenas, loads=loads)
        self._workers[rank].ended = lambda code: self._ended(here, code)
        self._handle(c.Spawned(rank, start, 1000 + start))

    def _core(self, plan: Plan, rank: Rank) -> CoreLike:
        return self._parts.core(plan, rank, self._scenario.variants[rank])

    def _emitter(self, rank: Rank) -> Emitter:
        return Buffered("simulated", f"rank {rank}", self._level, self._told) if self._tells else Off()

    def _told(self, packet: bytes) -> bool:
        """Some packets of telemetry are not taken."""
        self._counts["packets of telemetry"] += 1
        return self._chance.random() < 0.9

    def _ended(self, here: Endpoint, code: int) -> None:
        worker = self._workers.get(Rank(here.rank))
        if worker is not None and worker.here == here:
            del self._workers[worker.rank], self._arenas[here]
            worker.kill()
            died = c.Died(worker.rank, here.start, code)
            self._simulator.after(self._chance.random() * DIED_SECONDS, lambda: self._hear(died))

    def _killed(self, rank: Rank) -> None:
        """By the conductor: of those that don't answer, and at the end."""
        worker = self._workers.get(rank)
        if worker is None:
            return
        if not (worker.stopped or self.client.stopping or self._fragile):
            raise self._simulator.fail(f"rank {rank} is killed though it answers; {self._standing()}")
        self._lost.append(self._simulator.now)
        self._ended(worker.here, -9)

    def _disturb(self) -> None:
        chance = self._chance
        if self._fragile or chance.random() < self._chances.kill:
            for _ in range(chance.choice((1, 1, 2))):
                self._simulator.after(chance.random() * 0.6, self._kill_one)
        if chance.random() < self._chances.hang:
            self._simulator.after(chance.random() * 0.6, self._hang_one)
        if chance.random() < self._chances.stall:
            self._simulator.after(chance.random() * 0.6, self._stall_one)

    def _any_worker(self) -> SimulatedWorker | None:
        running = [rank for rank in sorted(self._workers) if not self._workers[rank].stopped]
        return self._workers[self._chance.choice(running)] if running else None

    def _kill_one(self) -> None:
        worker = self._any_worker()
        if worker is not None and not self._exited:
            self._lost.append(self._simulator.now)
            if worker.loaded and self._chance.random() < CRASHES:
                self._counts["processes crashed"] += 1
                worker.crash()
            else:
                self._counts["processes killed"] += 1
                self._ended(worker.here, -9)

    def _hang_one(self) -> None:
        worker = self._any_worker()
        if worker is not None:
            self._counts["processes hung"] += 1
            self._lost.append(self._simulator.now)
            worker.stop()

    def _stall_one(self) -> None:
        worker = self._any_worker()
        if worker is not None and worker.loaded:
            self._counts["processes stalled"] += 1
            worker.stop()
            self._simulator.after(self._chance.random() * STALL_SECONDS, worker.go_on)

    # ── what must hold ──

    def _check_run(self, run: AskedRun) -> str:
        return self.client.check(run, [at + DIED_SECONDS for at in self._lost])

    def _check_deadline(self, name: str) -> None:
        run, record = self.client.runs[name], self._conductor.runs.table.get(name)
        if record is not None and record.state != "ending" and not run.was_paused:
            raise self._simulator.fail(f"its deadline is over, and it is {record.state}", name)

    def _check_promises(self) -> None:
        for (rank, _), pages in self._conductor.pages.promised.items():
            if not 0 <= pages <= self._scenario.pages:
                raise self._simulator.fail(f"{pages} pages of rank {rank} are promised of {self._scenario.pages}")

    def _check_left(self) -> None:
        """All is freed."""
        core = self._conductor
        kept: list[str] = [line for worker in self._workers.values() for line in worker.left()]
        promised = core.pages.promised.items()
        kept += [f"{pages} pages of rank {rank} are promised" for (rank, _), pages in promised if pages]
        kept += [f"{len(core.runs.sessions)} sessions"] if len(core.runs.sessions) else []
        if self._fragile and not self.client.failed and self._lost:
            kept.append("a deployment that should have failed")
        kept += [f"{len(core.runs.steering)} pauses"] if len(core.runs.steering) else []
        if kept:
            raise self._simulator.fail("; ".join(kept))


def _reading_order(event: c.Event) -> int:
    return 0 if isinstance(event, c.FromRank) else 1 if isinstance(event, c.Died) else 2
