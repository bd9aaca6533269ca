"""The rank processes of a simulated deployment: its conductor starts and ends them, and the seed disturbs them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from walkgraph.conductor import events as c
from walkgraph.conductor.core import Conductor
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.client import Chances
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames, Network
from walkgraph.simulation.page import DIED_SECONDS, Page
from walkgraph.simulation.rank.carrier import Arenas
from walkgraph.simulation.rank.device import SimulatedDevice, SimulatedQueue
from walkgraph.simulation.rank.engine import SimulatedEngine
from walkgraph.simulation.rank.kept import SimulatedMemo
from walkgraph.simulation.rank.shared_states import SharedStates
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.rank.worker import SimulatedWorker, WorkerParts
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.telemetry.emit import Buffered, Emitter, Off
from walkgraph.wire.watching import Level
from walkgraph.worker.core import Core
from walkgraph.worker.interfaces import CoreLike
from walkgraph.worker.io.links import Links
from walkgraph.worker.loop import WorkerLoop
from walkgraph.worker.plan_variants import Variants

STALL_SECONDS = 0.8
"""Longest stop of a process that goes on afterwards; the conductor must not take it for dead."""
FUSED = 0.8
"""Share of the other worlds in which chains of small nodes are one call."""
CRASHES = 0.3
"""Share of deaths that the process reports before it ends."""


@dataclass(frozen=True)
class WorldParts:
    """The classes that a world is built from."""

    network: type[Network] = Network
    core: Callable[[Plan, Rank, Variants], CoreLike] = Core
    states: type[StateStore] = StateStore
    engine: type[SimulatedEngine] = SimulatedEngine
    device: type[SimulatedDevice] = SimulatedDevice
    links: type[Links] = Links
    loop: type[WorkerLoop] = WorkerLoop
    conductor: type[Conductor] = Conductor


REAL_PARTS = WorldParts()


class SimulatedProcesses:
    def __init__(
        self,
        simulator: Simulator,
        scenario: Scenario,
        page: Page,
        chances: Chances,
        parts: WorldParts,
        heard: Callable[[Endpoint, Frames], None],
        died: Callable[[c.Died], None],
    ) -> None:
        """`heard` and `died` are called once the conductor can read a message or a death."""
        self.workers: dict[Rank, SimulatedWorker] = {}
        self.lost: list[float] = []
        """Times at which ranks were killed or stopped for good."""
        self._simulator, self._scenario, self._chances, self._parts = simulator, scenario, chances, parts
        self._of_plan = {one.plan.digest: one for one in (scenario, *page.others)}
        self._keeps = page.keeps
        # What is drawn is watched, and its nodes are kept one by one: as in `worker.serve`, no chain is one call.
        self._fused = not (page.keeps or page.others) and simulator.apart.random() < FUSED
        self._heard, self._died = heard, died
        self._chance, self._counts = simulator.chance, simulator.counts
        self.network = parts.network(simulator)
        self._arenas: Arenas = {}
        self.fragile = self._chance.random() < chances.fail
        """The first death fails the deployment."""
        self._level: Level = self._chance.choice(("off", "summary", "full"))
        self._tells = self._chance.random() < chances.telemetry

    def post(self, source: Endpoint, target: Endpoint, frames: Frames) -> bool:
        """Sends frames; returns False if the target no longer exists."""
        if target == CONDUCTOR:
            self.network.send(source, target, frames, partial(self._heard, source))
            return True
        worker = self.workers.get(Rank(target.rank))
        if worker is None or worker.here != target:
            return False
        self.network.send(source, target, frames, partial(worker.receive, source))
        return True

    def spawn(self, rank: Rank, start: int) -> None:
        if rank in self.workers:
            raise self._simulator.fail(f"rank {rank} is started while it runs")
        self._counts["processes started"] += 1
        scenario, parts, simulator = self._scenario, self._parts, self._simulator
        made = WorkerParts(
            core=self._core,
            engine=partial(self._engine, rank),
            links=parts.links,
            loop=parts.loop,
            emitter=lambda: self._emitter(rank),
        )
        here = Endpoint(rank, start)
        loads = start <= len(scenario.plan.ranks) or self._chance.random() >= self._chances.unloadable
        self._counts["processes that can't load"] += not loads
        self.workers[rank] = SimulatedWorker(simulator, here, made, self.post, self._arenas, loads=loads)
        self.workers[rank].ended = lambda code: self.end(here, code)

    def _core(self, plan: Plan, rank: Rank) -> CoreLike:
        scenario = self._of_plan[plan.digest]
        variants = scenario.fused_variants if self._fused else scenario.variants
        return self._parts.core(plan, rank, variants[rank])

    def _engine(self, rank: Rank, plan: Plan, queue: SimulatedQueue, memo: SimulatedMemo) -> SimulatedEngine:
        scenario, parts = self._of_plan[plan.digest], self._parts
        kind = SharedStates if self._chances.shares else parts.states
        states = kind(self._simulator, scenario.paged, scenario.pages)
        kept = memo if self._keeps else None
        made = self._simulator, queue, scenario.functions, states, parts.device
        return parts.engine(*made, plan=plan, rank=rank, memo=kept)

    def _emitter(self, rank: Rank) -> Emitter:
        return Buffered("simulated", f"rank {rank}", self._level, self._told) if self._tells else Off()

    def _told(self, packet: bytes) -> bool:
        """Takes a telemetry packet; returns False for some, as a full socket does."""
        self._counts["packets of telemetry"] += 1
        return self._chance.random() < 0.9

    def end(self, here: Endpoint, code: int) -> None:
        worker = self.workers.get(Rank(here.rank))
        if worker is not None and worker.here == here:
            del self.workers[worker.rank], self._arenas[here]
            worker.kill()
            died = c.Died(worker.rank, here.start, code)
            self._simulator.after(self._chance.random() * DIED_SECONDS, lambda: self._died(died))

    def disturb(self) -> None:
        """Plans the disturbances of processes from now on."""
        chance = self._chance
        if self.fragile or chance.random() < self._chances.kill:
            for _ in range(chance.choice((1, 1, 2))):
                self._simulator.after(chance.random() * 0.6, self.kill_one)
        if chance.random() < self._chances.hang:
            self._simulator.after(chance.random() * 0.6, self._hang_one)
        if chance.random() < self._chances.stall:
            self._simulator.after(chance.random() * 0.6, self._stall_one)

    def _any_worker(self) -> SimulatedWorker | None:
        running = [rank for rank in sorted(self.workers) if not self.workers[rank].stopped]
        return self.workers[self._chance.choice(running)] if running else None

    def kill_one(self) -> None:
        worker = self._any_worker()
        if worker is not None:
            self.lost.append(self._simulator.now)
            if worker.loaded and self._chance.random() < CRASHES:
                self._counts["processes crashed"] += 1
                worker.crash()
            else:
                self._counts["processes killed"] += 1
                self.end(worker.here, -9)

    def _hang_one(self) -> None:
        worker = self._any_worker()
        if worker is not None:
            self._counts["processes hung"] += 1
            self.lost.append(self._simulator.now)
            worker.stop()

    def _stall_one(self) -> None:
        worker = self._any_worker()
        if worker is not None and worker.loaded:
            self._counts["processes stalled"] += 1
            worker.stop()
            self._simulator.after(self._chance.random() * STALL_SECONDS, worker.go_on)
