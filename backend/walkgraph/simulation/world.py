"""A deployment in simulated time, made from a seed: it gets requests, is disturbed, and must come to rest.

    World(scenario, seed).run() ──> Outcome, or a Violation that names the seed

The conductor's core and the workers' loops, cores, connections and schedulers are the real ones. Network, sockets,
clock, devices and processes are simulated. All of them are arguments, so that a test can put a fault into any.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from walkgraph.conductor import events as c
from walkgraph.ids import Rank
from walkgraph.simulation.client import AskedRun, Chances, SimulatedClient
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames
from walkgraph.simulation.processes import DIED_SECONDS, REAL_PARTS, SimulatedProcesses, WorldParts
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

LIMITS = Limits(restarts=1000, backoff_first=0.1, backoff_last=0.5, step_deadline=2.0, load_deadline=3.0)
READY_SECONDS = 5.0
"""Time within which an undisturbed world is ready."""
REST_SECONDS = 60.0
"""Time within which a world must come to rest."""
LATE_SECONDS = 0.05
"""Time after a run's deadline within which its end must have begun."""
TURN_SECONDS = 0.0005
"""Longest time until the conductor reads its messages."""
MANY, CROWDED = 6, 0.5
"""In this share of the worlds with more than `MANY` runs, only few may run or wait at a time."""
MOST_TICKS = 20
"""Most ticks at the same simulated time."""


class Outcome(NamedTuple):
    """The result of a world."""

    ends: Counter[str]
    """Runs by end: `done`, or an error code."""
    counts: Counter[str]
    """Occurrences by kind."""
    seconds: float
    """Simulated seconds."""


class World:
    def __init__(
        self, scenario: Scenario, seed: int, *, chances: Chances | None = None, parts: WorldParts = REAL_PARTS
    ) -> None:
        self._scenario, self._parts = scenario, parts
        self._chances = Chances() if chances is None else chances
        self._simulator = Simulator(scenario.name, seed)
        self._chance, self._counts = self._simulator.chance, self._simulator.counts
        self._tick_at = float("inf")
        self._ticked, self._ticks = -1.0, 0
        """Time of the last tick, and number of earlier ticks at that time."""
        self._unread: list[c.Event] = []
        """Events that the conductor has not read yet."""
        self._exited = False
        self.client = SimulatedClient(scenario, self._chances, self._simulator, self._from_client)
        self._processes = SimulatedProcesses(self._simulator, scenario, self._chances, parts, self._heard, self._hear)
        self._workers = self._processes.workers
        self._conductor = parts.conductor(scenario.graph, scenario.plan, self._limits(), lambda: 7)

    def run(self) -> Outcome:
        self._perform(self._conductor.begin(self._simulator.now))
        self._until(lambda: self.client.state == "ready", READY_SECONDS, "it isn't ready")
        self.client.begin()
        self._processes.disturb()
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
        """Describes what keeps the world from resting."""
        open_ = [run.id for run in self.client.runs.values() if not run.over]
        states = {run.id: run.state for run in self._conductor.runs.table}
        left = [line for worker in self._workers.values() for line in worker.left()]
        ranks = {rank.rank: rank.state for rank in self._conductor.ranks.status()}
        return f"open runs {open_}, conductor {states}, ranks {ranks}, {'; '.join(left) or 'nothing kept'}"

    def _at_rest(self) -> bool:
        core = self._conductor
        under_way = self._processes.network.in_flight or self._simulator.blocked or self._unread
        if under_way or not (core.ranks.all_ready or self._failed):
            return False
        if len(core.runs.table) or len(core.runs.sessions):
            return False
        if self._failed:
            return not self._workers
        if len(self._workers) < len(self._scenario.plan.ranks):
            return False  # the conductor has not heard of a death yet
        return all(worker.resting and worker.loaded for worker in self._workers.values())

    @property
    def _failed(self) -> bool:
        return self.client.state == "failed"

    def _limits(self) -> Limits:
        limits = LIMITS
        if self._processes.fragile:
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
        """Queues events for the conductor's next turn."""
        if not self._unread:
            self._simulator.after(self._chance.random() * TURN_SECONDS, self._turn)
        self._unread += events

    def _turn(self) -> None:
        """One turn, as in `ConductorLoop.turn`: workers are read first, then deaths, then the service."""
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
                        self._processes.post(CONDUCTOR, self._workers[rank].here, [codec.encode(message)])
                case c.Spawn(rank=rank, start=start):
                    self._processes.spawn(rank, start)
                    self._handle(c.Spawned(rank, start, 1000 + start))
                case c.Kill(rank=rank):
                    self._kill(rank)
                case c.Exit():
                    if self._workers:
                        raise self._simulator.fail("it is over while ranks have processes")
                    self._exited = True
                case c.Tell():
                    pass

    def _heard(self, source: Endpoint, frames: Frames) -> None:
        messages = codec.from_worker.decode_all(frames[0])
        self._hear(*(c.FromRank(Rank(source.rank), source.start, message) for message in messages))

    def _kill(self, rank: Rank) -> None:
        """Kills a process, which must be one that doesn't answer unless the deployment is ending."""
        worker = self._workers.get(rank)
        if worker is None:
            return
        if not (worker.stopped or self.client.stopping or self._processes.fragile):
            raise self._simulator.fail(f"rank {rank} is killed though it answers; {self._standing()}")
        self._processes.lost.append(self._simulator.now)
        self._processes.end(worker.here, -9)

    # ── checks ──

    def _check_run(self, run: AskedRun) -> str:
        return self.client.check(run, [at + DIED_SECONDS for at in self._processes.lost])

    def _check_deadline(self, name: str) -> None:
        run, record = self.client.runs[name], self._conductor.runs.table.get(name)
        if record is not None and record.state != "ending" and not run.was_paused:
            raise self._simulator.fail(f"its deadline is over, and it is {record.state}", name)

    def _check_promises(self) -> None:
        for (rank, _), pages in self._conductor.pages.promised.items():
            if not 0 <= pages <= self._scenario.pages:
                raise self._simulator.fail(f"{pages} pages of rank {rank} are promised of {self._scenario.pages}")

    def _check_left(self) -> None:
        """Checks that everything was freed."""
        core = self._conductor
        kept: list[str] = [line for worker in self._workers.values() for line in worker.left()]
        promised = core.pages.promised.items()
        kept += [f"{pages} pages of rank {rank} are promised" for (rank, _), pages in promised if pages]
        kept += [f"{len(core.runs.sessions)} sessions"] if len(core.runs.sessions) else []
        if self._processes.fragile and not self._failed and self._processes.lost:
            kept.append("a deployment that should have failed")
        kept += [f"{len(core.runs.steering)} pauses"] if len(core.runs.steering) else []
        if kept:
            raise self._simulator.fail("; ".join(kept))


def _reading_order(event: c.Event) -> int:
    return 0 if isinstance(event, c.FromRank) else 1 if isinstance(event, c.Died) else 2
