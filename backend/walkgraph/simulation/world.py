"""A deployment in simulated time, made from a seed: it is asked for runs, disturbed, and must come to rest.

    World(scenario, seed).run() ──> Outcome, or a Violation that names the seed

The conductor's core, the workers' cores and the schedulers are the real ones. Network, clock, devices and processes are
simulated, and are arguments: whoever wants to know whether a world finds a fault gives it a faulty part.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from walkgraph.conductor import events as c
from walkgraph.conductor.core import Conductor
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.client import AskedRun, Chances, SimulatedClient
from walkgraph.simulation.device import SimulatedDevice
from walkgraph.simulation.engine import SimulatedEngine
from walkgraph.simulation.links import SimulatedLinks
from walkgraph.simulation.network import CONDUCTOR, Network, Packet, Process
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.states import StateStore
from walkgraph.simulation.timeline import Timeline
from walkgraph.simulation.violations import Watchman
from walkgraph.simulation.worker import SimulatedWorker, WorkerParts
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.worker.core import Core
from walkgraph.worker.interfaces import CoreLike
from walkgraph.worker.plan_variants import Variants

LIMITS = Limits(restarts=1000, backoff_first=0.1, backoff_last=0.5, step_deadline=2.0, load_deadline=3.0)
READY_SECONDS = 5.0
"""In which a world that nothing disturbs is ready."""
REST_SECONDS = 60.0
"""In which it must have come to rest."""
LATE_SECONDS = 0.05
"""After its deadline, in which a run's end must have begun."""
DIED_SECONDS = 0.002
"""From the death of a process until the conductor hears of it, at most."""
MOST_TICKS = 20
"""At one time."""


@dataclass(frozen=True)
class Parts:
    """What a world is made of."""

    network: Callable[[Timeline, random.Random], Network] = Network
    core: Callable[[Plan, Rank, Variants], CoreLike] = Core
    states: type[StateStore] = StateStore
    engine: type[SimulatedEngine] = SimulatedEngine
    device: type[SimulatedDevice] = SimulatedDevice
    links: type[SimulatedLinks] = SimulatedLinks
    worker: type[SimulatedWorker] = SimulatedWorker
    conductor: type[Conductor] = Conductor


PARTS = Parts()


class Outcome(NamedTuple):
    """What a world came to."""

    ends: Counter[str]
    """How its runs ended."""
    seconds: float
    """Simulated."""
    messages: int
    lost: int
    """Ranks that were killed."""


class World:
    def __init__(self, scenario: Scenario, seed: int, *, chances: Chances | None = None, parts: Parts = PARTS) -> None:
        self._scenario, self._parts = scenario, parts
        self._chances = Chances() if chances is None else chances
        self._timeline = Timeline()
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._watchman = Watchman(f"scenario `{scenario.name}`, seed {seed}", self._timeline)
        self._network = parts.network(self._timeline, self._chance)
        self._workers: dict[Rank, SimulatedWorker] = {}
        self._lost: list[tuple[float, Rank]] = []
        """Ranks that the world has ended, and when."""
        self._tick_at = float("inf")
        self._ticked, self._ticks = -1.0, 0
        """The last tick, and how many came at its time."""
        self._exited = False
        self._conductor = parts.conductor(scenario.graph, scenario.plan, LIMITS, lambda: 7)
        self.client = SimulatedClient(
            scenario, self._chances, self._timeline, self._chance, self._from_client, self._watchman
        )

    def run(self) -> Outcome:
        self._perform(self._conductor.begin(self._timeline.now))
        self._until(lambda: self._conductor.ranks.all_ready, READY_SECONDS, "it isn't ready")
        self.client.begin()
        self._disturb()
        self._until(lambda: self.client.over, REST_SECONDS, "not all runs have ended")
        self._until(self._at_rest, REST_SECONDS, "it doesn't come to rest")
        ends = Counter(self._check_run(run) for run in self.client.runs.values())
        self._check_left()
        if self._chance.random() < self._chances.stop:
            self.client.stop()
            self._until(lambda: self._exited, READY_SECONDS, "it doesn't stop")
        return Outcome(ends, self._timeline.now, self._network.carried, len(self._lost))

    # ── time ──

    def _until(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        end = self._timeline.now + seconds
        while not done():
            if self._timeline.now > end or not self._timeline.step():
                raise self._watchman.fail(f"{otherwise}; {self._standing()}")

    def _standing(self) -> str:
        """What keeps a world from resting."""
        open_ = [run.id for run in self.client.runs.values() if not run.over]
        states = {run.id: run.state for run in self._conductor.runs.table}
        left = [line for worker in self._workers.values() for line in worker.left()]
        ranks = {rank.rank: rank.state for rank in self._conductor.ranks.status()}
        return f"open runs {open_}, conductor {states}, ranks {ranks}, {'; '.join(left) or 'nothing kept'}"

    def _at_rest(self) -> bool:
        core = self._conductor
        if self._network.flying or not core.ranks.all_ready or len(core.runs.table) or len(core.runs.sessions):
            return False
        return all(worker.resting and worker.loaded for worker in self._workers.values())

    # ── conductor ──

    def _from_client(self, message: m.ToConductor) -> None:
        self._handle(c.FromService(message))
        match message:
            case m.Submit(run=run, deadline=deadline) if deadline is not None:
                self._timeline.after(deadline + LATE_SECONDS, lambda: self._check_deadline(run))
            case _:
                pass

    def _handle(self, event: c.Event) -> None:
        if not self._exited:
            self._perform(self._conductor.handle(event, self._timeline.now))
            self._plan_tick()

    def _plan_tick(self) -> None:
        due = max(self._conductor.due(), self._timeline.now)
        if due < self._tick_at:
            self._tick_at = due
            self._timeline.at(due, lambda: self._tick(due))

    def _tick(self, planned: float) -> None:
        if planned == self._tick_at:
            self._ticks = self._ticks + 1 if planned == self._ticked else 0
            if self._ticks > MOST_TICKS:
                raise self._watchman.fail("the conductor wants to act at once, again and again, and does nothing")
            self._tick_at, self._ticked = float("inf"), planned
            self._handle(c.Tick())

    def _perform(self, commands: list[c.Command]) -> None:
        for command in commands:
            match command:
                case c.ToService(message=message):
                    self.client.take(message)
                case c.ToRank(rank=rank, message=message):
                    worker = self._workers.get(rank)
                    if worker is not None:
                        self._network.send(CONDUCTOR, worker.here, Packet(message), partial(worker.receive, CONDUCTOR))
                case c.Spawn(rank=rank, start=start):
                    self._spawn(rank, start)
                case c.Kill(rank=rank):
                    self._killed(rank)
                case c.Exit():
                    if self._workers:
                        raise self._watchman.fail("it is over while ranks have processes")
                    self._exited = True
                case c.Tell():
                    pass

    def _post(self, source: Process, target: Process, packet: Packet) -> None:
        if target == CONDUCTOR:
            self._network.send(source, target, packet, lambda one: self._heard(source, one))
            return
        worker = self._workers.get(Rank(target.rank))
        if worker is not None and worker.here == target:
            self._network.send(source, target, packet, partial(worker.receive, source))

    def _heard(self, source: Process, packet: Packet) -> None:
        self._handle(c.FromRank(Rank(source.rank), source.start, packet.message))
        self._check_promises()

    # ── processes ──

    def _spawn(self, rank: Rank, start: int) -> None:
        if rank in self._workers:
            raise self._watchman.fail(f"rank {rank} is started while it runs")
        scenario, parts = self._scenario, self._parts
        made = WorkerParts(
            core=self._core,
            states=lambda: parts.states(scenario.paged, scenario.pages, self._watchman.fail),
            engine=lambda states: parts.engine(
                self._timeline, self._chance, scenario.functions, states, self._watchman.fail, parts.device
            ),
            links=parts.links,
        )
        here = Process(rank, start)
        self._workers[rank] = parts.worker(here, made, self._post, self._timeline, self._chance, self._watchman)
        self._workers[rank].ended = lambda code: self._ended(here, code)
        self._timeline.after(0.0, lambda: self._handle(c.Spawned(rank, start, 1000 + start)))

    def _core(self, plan: Plan, rank: Rank) -> CoreLike:
        return self._parts.core(plan, rank, self._scenario.variants[rank])

    def _ended(self, here: Process, code: int) -> None:
        worker = self._workers.get(Rank(here.rank))
        if worker is not None and worker.here == here:
            del self._workers[worker.rank]
            worker.kill()
            died = c.Died(worker.rank, here.start, code)
            self._timeline.after(self._chance.random() * DIED_SECONDS, lambda: self._handle(died))

    def _killed(self, rank: Rank) -> None:
        """By the conductor: of those that don't answer, and at the end."""
        worker = self._workers.get(rank)
        if worker is None:
            return
        if not worker.stopped and not self.client.stopping:
            raise self._watchman.fail(f"rank {rank} is killed though it answers; {self._standing()}")
        self._lost.append((self._timeline.now, rank))
        self._ended(worker.here, -9)

    def _disturb(self) -> None:
        chance = self._chance
        if chance.random() < self._chances.kill:
            for _ in range(chance.choice((1, 1, 2))):
                self._timeline.after(chance.random() * 0.6, self._kill_one)
        if chance.random() < self._chances.hang:
            self._timeline.after(chance.random() * 0.6, self._hang_one)

    def _kill_one(self) -> None:
        if self._workers and not self._exited:
            worker = self._workers[self._chance.choice(sorted(self._workers))]
            self._lost.append((self._timeline.now, worker.rank))
            self._ended(worker.here, -9)

    def _hang_one(self) -> None:
        if self._workers:
            worker = self._workers[self._chance.choice(sorted(self._workers))]
            self._lost.append((self._timeline.now, worker.rank))
            worker.stop()

    # ── what must hold ──

    def _check_run(self, run: AskedRun) -> str:
        return self.client.check(run, lost=any(run.at <= at + DIED_SECONDS for at, _ in self._lost))

    def _check_deadline(self, name: str) -> None:
        run, record = self.client.runs[name], self._conductor.runs.table.get(name)
        if record is not None and record.state != "ending" and not run.was_paused:
            raise self._watchman.fail(f"its deadline is over, and it is {record.state}", name)

    def _check_promises(self) -> None:
        for (rank, _), pages in self._conductor.pages.promised.items():
            if not 0 <= pages <= self._scenario.pages:
                raise self._watchman.fail(f"{pages} pages of rank {rank} are promised of {self._scenario.pages}")

    def _check_left(self) -> None:
        """All is freed."""
        core = self._conductor
        kept: list[str] = [line for worker in self._workers.values() for line in worker.left()]
        promised = core.pages.promised.items()
        kept += [f"{pages} pages of rank {rank} are promised" for (rank, _), pages in promised if pages]
        kept += [f"{len(core.runs.sessions)} sessions"] if len(core.runs.sessions) else []
        kept += [f"{len(core.runs.steering)} pauses"] if len(core.runs.steering) else []
        if kept:
            raise self._watchman.fail("; ".join(kept))
