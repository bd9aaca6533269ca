"""A deployment in simulated time, made from a seed: it gets requests, is disturbed, and must come to rest.

    World(scenario, seed).run() ──> Outcome, or a Violation that names the seed

The conductor's core and the workers' loops, cores, connections and schedulers are the real ones. Network, sockets,
clock, devices and processes are simulated. All of them are arguments, so that a test can put a fault into any.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from walkgraph.simulation.asked_run import AskedRun
from walkgraph.simulation.client import Chances, SimulatedClient
from walkgraph.simulation.deployment import SimulatedDeployment
from walkgraph.simulation.page import DIED_SECONDS, NO_PAGE, Page
from walkgraph.simulation.person import PATIENCE_SECONDS
from walkgraph.simulation.processes import REAL_PARTS, WorldParts
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

LIMITS = Limits(restarts=1000, backoff_first=0.1, backoff_last=0.5, step_deadline=2.0, load_deadline=3.0)
READY_SECONDS = 5.0
"""Time within which an undisturbed world is ready."""
REST_SECONDS = 60.0
"""Time within which a world must come to rest."""
LATE_SECONDS = 0.05
"""Time after a run's deadline within which its end must have begun."""
LOST_WAITING = 0.08
"""Share of waits for a person during which a rank is lost."""
MANY, CROWDED = 6, 0.5
"""In this share of the worlds with more than `MANY` runs, only few may run or wait at a time."""


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
        self,
        scenario: Scenario,
        seed: int,
        *,
        chances: Chances | None = None,
        parts: WorldParts = REAL_PARTS,
        page: Page = NO_PAGE,
    ) -> None:
        self._chances = Chances() if chances is None else chances
        self._simulator = Simulator(scenario.name, seed)
        self._chance, self._counts = self._simulator.chance, self._simulator.counts
        self._page, lost = page, list[float]()
        self.client = SimulatedClient(scenario, self._chances, self._simulator, self._from_client, page, lost)
        self._deployment = SimulatedDeployment(
            self._simulator, scenario, self._chances, parts, self._limits, self._told, page
        )
        self._deployment.processes.lost = lost
        self.client.person.waits = self._waits
        self._conductor = self._deployment.conductor

    def run(self) -> Outcome:
        self._deployment.begin()
        self._until(lambda: self.client.state == "ready", READY_SECONDS, "it isn't ready")
        self.client.begin()
        self._deployment.processes.disturb()
        self._until(self.client.over, REST_SECONDS, "not all runs have ended")
        self._until(self._deployment.at_rest, REST_SECONDS, "it doesn't come to rest")
        ends = Counter(self._check_run(run) for run in self.client.runs.values())
        self._check_left()
        if self._chance.random() < self._chances.stop:
            self.client.stop()
            self._until(lambda: self._deployment.exited, READY_SECONDS, "it doesn't stop")
        return Outcome(ends, self._counts, self._simulator.now)

    # ── time ──

    def _until(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        simulator = self._simulator
        end, step = simulator.now + seconds, simulator.step
        while not done():
            if simulator.now > end or not step():
                raise simulator.fail(f"{otherwise}; {self._standing()}")

    def _standing(self) -> str:
        """Describes what keeps the world from resting."""
        open_ = [run.id for run in self.client.runs.values() if not run.over]
        return f"open runs {open_}, {self._deployment.standing()}"

    def _limits(self, fragile: bool) -> Limits:
        limits = LIMITS
        if fragile:
            limits = replace(limits, restarts=0)
        if self._page.moves:
            limits = replace(limits, running=1)
        elif self._chances.most_runs > MANY and self._chance.random() < CROWDED:
            self.client.crowded = True
            limits = replace(limits, queue=1, running=3)
        return limits

    def _told(self, message: m.FromConductor) -> None:
        if isinstance(message, m.Answered):
            self.client.page.told(message, failed=self.client.state == "failed", stopping=self.client.stopping)
        else:
            self.client.take(message)

    def _from_client(self, message: m.ToConductor) -> None:
        self._deployment.send(message)
        match message:
            case m.Submit(run=run, deadline=deadline) if deadline is not None:
                self._simulator.after(deadline + LATE_SECONDS, lambda: self._check_deadline(run))
            case _:
                pass

    def _waits(self) -> None:
        """A run begins to wait for a person: ranks may be lost meanwhile."""
        apart = self._simulator.apart
        if self._chances.kill and apart.random() < LOST_WAITING:
            self._counts["ranks lost while a run waits for a person"] += 1
            self._simulator.after(apart.random() * PATIENCE_SECONDS, self._deployment.processes.kill_one)

    # ── checks ──

    def _check_run(self, run: AskedRun) -> str:
        return self.client.check(run, [at + DIED_SECONDS for at in self._deployment.processes.lost])

    def _check_deadline(self, name: str) -> None:
        run, record = self.client.person.asked(name), self._conductor.runs.table.get(name)
        if record is not None and record.state != "ending" and run is not None and not run.was_paused:
            raise self._simulator.fail(f"its deadline is over, and it is {record.state}", name)

    def _check_left(self) -> None:
        """Checks that everything was freed."""
        kept = [*self._deployment.left()]
        if kept:
            raise self._simulator.fail("; ".join(kept))
