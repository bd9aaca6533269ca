"""One deployment of a simulated world: the real conductor's core, and its processes."""

from collections.abc import Callable, Iterator

from walkgraph.conductor import events as c
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.ids import Rank
from walkgraph.placement.tables import Itinerary
from walkgraph.simulation.client import Chances
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames
from walkgraph.simulation.page import NO_PAGE, Page
from walkgraph.simulation.processes import SimulatedProcesses, WorldParts
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

TURN_SECONDS = 0.0005
"""Longest time until the conductor reads its messages."""
MOST_TICKS = 20
"""Most ticks at the same simulated time."""


class SimulatedDeployment:
    def __init__(
        self,
        simulator: Simulator,
        scenario: Scenario,
        chances: Chances,
        parts: WorldParts,
        limits: Callable[[bool], Limits],
        tell: Callable[[m.FromConductor], None],
        page: Page = NO_PAGE,
    ) -> None:
        """`limits`: gives its limits; called with True if the first death of a process fails it. `tell` takes what the
        conductor sends to the service. `page`: what a page does with it."""
        self.exited = False
        self._simulator, self._scenario, self._tell = simulator, scenario, tell
        self._chance = simulator.chance
        self._tick_at = float("inf")
        self._ticked, self._ticks = -1.0, 0
        """Time of the last tick, and number of earlier ticks at that time."""
        self._unread: list[c.Event] = []
        """Events that the conductor has not read yet."""
        self._stopping = False
        self._failed = False
        self._started: dict[str, Itinerary] = {}
        """Run -> the itinerary with which it was started last."""
        self.processes = SimulatedProcesses(simulator, scenario, page, chances, parts, self._heard, self._hear)
        self._known = (scenario, *page.others)
        self.conductor = parts.conductor(
            scenario.itineraries, limits(self.processes.fragile), lambda: 7, read=self._itineraries
        )

    def begin(self) -> None:
        self._perform(self.conductor.begin(self._simulator.now))

    def send(self, message: m.ToConductor) -> None:
        """Sends a message of the service."""
        self._stopping = self._stopping or isinstance(message, m.Stop)
        self._hear(c.FromService(message))

    def standing(self) -> str:
        """Describes what keeps it from resting."""
        states = {run.id: run.state for run in self.conductor.runs.table}
        left = [line for worker in self.processes.workers.values() for line in worker.left()]
        ranks = {rank.rank: rank.state for rank in self.conductor.ranks.status()}
        return f"conductor {states}, ranks {ranks}, {'; '.join(left) or 'nothing kept'}"

    def at_rest(self) -> bool:
        core, workers = self.conductor, self.processes.workers
        under_way = self.processes.network.in_flight or self._simulator.blocked or self._unread
        if under_way or not (core.ranks.settled or self._failed):
            return False
        if len(core.runs.table) or len(core.runs.sessions):
            return False
        if self._failed:
            return not workers
        if len(workers) < sum(rank.state != "failed" for rank in core.ranks.status()):
            return False  # the conductor has not heard of a death yet
        return all(worker.resting and worker.loaded for worker in workers.values())

    def left(self) -> Iterator[str]:
        """Descriptions of what was not freed, once it is at rest."""
        core = self.conductor
        yield from (line for worker in self.processes.workers.values() for line in worker.left())
        promised = core.pages.promised.items()
        yield from (f"{pages} pages of rank {rank} are promised" for (rank, _), pages in promised if pages)
        if len(core.runs.sessions):
            yield f"{len(core.runs.sessions)} sessions"
        replaced = len(self._scenario.plan.alternatives) > 1
        if self.processes.fragile and not self._failed and self.processes.lost and not replaced:
            yield "a deployment that should have failed"
        if len(core.runs.steering):
            yield f"{len(core.runs.steering)} pauses"

    # ── conductor ──

    def _hear(self, *events: c.Event) -> None:
        """Queues events for the conductor's next turn."""
        if not self._unread:
            self._simulator.after(self._chance.random() * TURN_SECONDS, self._turn)
        self._unread += events

    def _turn(self) -> None:
        """One turn, as in `ConductorLoop.turn`: workers are read first, then deaths, then the service."""
        unread, self._unread = self._unread, []
        if len(unread) > 1:
            unread.sort(key=_reading_order)
        if not self.exited:
            self._perform(self.conductor.handle_all(unread, self._simulator.now))
            self._check_promises()
            self._plan_tick()

    def _handle(self, event: c.Event) -> None:
        if not self.exited:
            self._perform(self.conductor.handle(event, self._simulator.now))
            self._plan_tick()

    def _plan_tick(self) -> None:
        due = max(self.conductor.due(), self._simulator.now)
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
        workers = self.processes.workers
        for command in commands:
            match command:
                case c.ToService(message=message):
                    self._failed = message.state == "failed" if isinstance(message, m.Status) else self._failed
                    self._tell(message)
                case c.ToRank(rank=rank, message=message):
                    self._count_restart(message)
                    if rank in workers:
                        self.processes.post(CONDUCTOR, workers[rank].here, [codec.encode(message)])
                case c.Spawn(rank=rank, start=start):
                    self.processes.spawn(rank, start)
                    self._handle(c.Spawned(rank, start, 1000 + start))
                case c.Kill(rank=rank):
                    self._kill(rank)
                case c.Exit():
                    if workers:
                        raise self._simulator.fail("it is over while ranks have processes")
                    self.exited = True
                case c.Tell() | c.Rename():
                    pass

    def _count_restart(self, message: m.ToWorker) -> None:
        if isinstance(message, m.Start):
            again = self._started.get(message.run, message.itinerary) is not message.itinerary
            self._simulator.counts["runs started again"] += again
            self._started[message.run] = message.itinerary

    def _heard(self, source: Endpoint, frames: Frames) -> None:
        messages = codec.from_worker.decode_all(frames[0])
        self._hear(*(c.FromRank(Rank(source.rank), source.start, message) for message in messages))

    def _itineraries(self, message: m.TakeUp) -> ItineraryCache:
        documents = [one.document for one in self._known]
        return self._known[documents.index(message.graph)].itineraries

    def _kill(self, rank: Rank) -> None:
        """Kills a process, which must be one that doesn't answer unless the deployment is ending."""
        worker = self.processes.workers.get(rank)
        if worker is None:
            return
        if not (worker.stopped or self._stopping or self.processes.fragile):
            raise self._simulator.fail(f"rank {rank} is killed though it answers; {self.standing()}")
        self.processes.lost.append(self._simulator.now)
        self.processes.end(worker.here, -9)

    def _check_promises(self) -> None:
        for (rank, _), pages in self.conductor.pages.promised.items():
            if not 0 <= pages <= self._scenario.pages:
                raise self._simulator.fail(f"{pages} pages of rank {rank} are promised of {self._scenario.pages}")


def _reading_order(event: c.Event) -> int:
    return 0 if isinstance(event, c.FromRank) else 1 if isinstance(event, c.Died) else 2
