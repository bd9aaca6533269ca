"""A rank's process: the real loop, core and connections, over simulated sockets, a simulated transport and engine.

boot ──> Hello ──Load──> loading ──> Ready ──> turn, turn, ...
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames
from walkgraph.simulation.rank.carrier import Arenas, SimulatedCarrier
from walkgraph.simulation.rank.checked_core import CheckedCore
from walkgraph.simulation.rank.engine import SimulatedEngine
from walkgraph.simulation.rank.sockets import SimulatedContext, SimulatedPoller, SimulatedSocket, address_of
from walkgraph.simulation.rank.states import PAGE_TOKENS, StateStore
from walkgraph.simulation.simulator import Simulator
from walkgraph.telemetry.emit import Emitter
from walkgraph.telemetry.places import Places
from walkgraph.wire import messages as m
from walkgraph.worker.interfaces import CoreLike
from walkgraph.worker.io.links import Links
from walkgraph.worker.loop import WorkerLoop

BOOT_SECONDS = 0.1
LOAD_SECONDS = 0.3
"""Longest load. Many are short, so that a rank may have loaded before others know of it."""
TURN_SECONDS = 0.0002
COPYING_SECONDS = 0.0005
"""Time between two checks of copies under way."""


class WorkerParts(NamedTuple):
    """Factories of a worker's parts, called for each start."""

    core: Callable[[Plan, Rank], CoreLike]
    states: Callable[[], StateStore]
    engine: Callable[[StateStore], SimulatedEngine]
    links: type[Links]
    loop: type[WorkerLoop]
    emitter: Callable[[], Emitter]


class SimulatedWorker:
    def __init__(
        self,
        simulator: Simulator,
        here: Endpoint,
        parts: WorkerParts,
        post: Callable[[Endpoint, Endpoint, Frames], bool],
        arenas: Arenas,
        *,
        loads: bool = True,
    ) -> None:
        """`post` sends (source, target, frames); it returns False if the target is gone. `loads`: loading succeeds."""
        self.here, self.rank = here, Rank(here.rank)
        self.ended: Callable[[int], None] = lambda code: None
        """Called with the exit status when the process ends by itself."""
        self.over = False
        self.stopped = False
        """Stopped as by SIGSTOP."""
        self._simulator, self._parts, self._loads = simulator, parts, loads
        send = partial(post, here)
        self._conductor = SimulatedSocket(simulator, partial(send, CONDUCTOR), self._wake)
        self._inbox = SimulatedSocket(simulator, lambda frames: False, self._wake)
        self._carrier = SimulatedCarrier(simulator, here, arenas)
        self._links = self._connected(parts.links, SimulatedContext(simulator, send, self._wake))
        self._states = parts.states()
        self._engine = parts.engine(self._states)
        self._core: CheckedCore | None = None
        self._loop: WorkerLoop | None = None
        self._loading = False
        self._next = float("inf")
        """Time of the planned turn."""
        self._free = 0.0
        """Time at which its current turn ends."""
        simulator.after(BOOT_SECONDS * simulator.chance.random(), self._boot)

    # ── process ──

    def kill(self) -> None:
        self.over = True

    def crash(self) -> None:
        """Ends the process as an exception does, after reporting it to the conductor."""
        error = ErrorInfo(code="worker_lost", message=f"the worker of rank {self.rank} failed", rank=self.rank)
        self._tell(m.Faulted(rank=self.rank, error=error))
        self.ended(1)

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        self.stopped, self._next = False, float("inf")
        self._wake()

    def receive(self, source: Endpoint, frames: Frames) -> None:
        if not self.over:
            (self._conductor if source == CONDUCTOR else self._inbox).inbox.append(frames)
            self._wake()

    @property
    def loaded(self) -> bool:
        return self._loop is not None

    @property
    def resting(self) -> bool:
        """True if there is nothing to read or compute. A stopped process never rests: the conductor must notice it."""
        if self.stopped:
            return False
        read = not (self._conductor.inbox or self._inbox.inbox)
        return read and self._engine.idle and self._next == float("inf")

    # ── turns ──

    def _wake(self) -> None:
        self._plan_turn(self._simulator.now)

    def _plan_turn(self, at: float) -> None:
        at = max(at, self._free)
        if at < self._next:
            self._next = at
            self._simulator.at(at, lambda: self._turn(at))

    def _turn(self, planned: float) -> None:
        if self.over or self.stopped or planned != self._next:
            return
        self._next = float("inf")
        if self._loop is None:
            self._links.conductor.flush()
            if not self._loading:
                self._load()
            return
        self._loop.turn()
        if self._loop.stopping:
            self.ended(0)
            return
        self._free = self._simulator.now + TURN_SECONDS
        if not self._engine.idle:
            self._plan_turn(self._engine.due())
        if self._carrier.copying:
            self._plan_turn(self._simulator.now + COPYING_SECONDS)

    # ── start, as in `worker.serve` ──

    def _connected(self, links: type[Links], context: SimulatedContext) -> Links:
        conductor, inbox = cast("Any", self._conductor), cast("Any", self._inbox)
        poller = cast("Any", SimulatedPoller())
        start = self.here.start
        return links(self.rank, start, conductor, inbox, cast("Any", context), self._carrier, Places(), poller)

    def _boot(self) -> None:
        if self.stopped:
            self._simulator.after(BOOT_SECONDS, self._boot)
        elif not self.over:
            self._tell(m.Hello(rank=self.rank, peer=self._carrier.peer(address_of(self.here))))
            self._wake()

    def _tell(self, message: m.FromWorker) -> None:
        self._links.conductor.send(message)
        self._links.conductor.flush()

    def _load(self) -> None:
        for _, message in self._links.from_conductor.drain():
            match message:
                case m.Load(plan=plan, peers=peers):
                    self._links.set_peers(peers)
                    seconds = LOAD_SECONDS * self._simulator.chance.random() ** 3
                    self._loading = True
                    self._simulator.after(seconds, partial(self._ready, plan))
                    return
                case m.Stop():
                    self.ended(0)
                    return
                case _:
                    raise self._simulator.fail(f"rank {self.rank} gets {message} before it has loaded")

    def _ready(self, plan: Plan) -> None:
        if self.over:
            return
        if self.stopped:
            self._simulator.after(LOAD_SECONDS, partial(self._ready, plan))
            return
        if not self._loads:
            error = ErrorInfo(code="out_of_memory", message="it can't load", rank=self.rank)
            self._tell(m.LoadFailed(rank=self.rank, error=error))
            self.ended(1)
            return
        core = self._parts.core(plan, self.rank)
        self._core = CheckedCore(self._simulator, self.rank, core, self._engine.calls)
        emitter, clock = self._parts.emitter(), lambda: self._simulator.now
        self._loop = self._parts.loop(self.rank, self._core, self._engine, self._links, emitter, clock)
        _, total = self._states.pages()
        pool = m.PoolSize(states=self._states.paged, pages=total, page_tokens=PAGE_TOKENS, page_bytes=1024)
        self._tell(m.Ready(rank=self.rank, seconds=LOAD_SECONDS, pools=(pool,)))
        self._wake()

    # ── checks ──

    def left(self) -> Iterable[str]:
        """Descriptions of leaks: things that are kept although nothing runs."""
        return (f"rank {self.rank} keeps {what}" for what in (*self._kept(), *self._engine.left()))

    def _kept(self) -> Iterable[str]:
        if self._loop is None or self._core is None:
            return
        yield from (f"run {run} in the core" for run in self._core.runs)
        yield from (f"run {run} in suspension" for run in self._loop.suspension.runs)
        if self._core.in_flight:
            yield f"{len(self._core.in_flight)} calls in flight"
        if self._links.waiting:
            yield f"{self._links.waiting} messages for peers"
        if self._carrier.out:
            yield f"{self._carrier.out} values in the arena"
