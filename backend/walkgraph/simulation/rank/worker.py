"""A rank's process: the real loop, core and connections, over simulated sockets, a simulated transport and engine.

boot ──> Hello ──Load──> loading ──> Ready ──> turn, turn, ...
                            └── another Load ──┘
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames
from walkgraph.simulation.rank.carrier import Arenas, SimulatedCarrier
from walkgraph.simulation.rank.checked_core import CheckedCore
from walkgraph.simulation.rank.device import SimulatedQueue
from walkgraph.simulation.rank.engine import SimulatedEngine
from walkgraph.simulation.rank.kept import SimulatedMemo
from walkgraph.simulation.rank.sockets import SimulatedContext, SimulatedSocket, address_of
from walkgraph.simulation.rank.states import PAGE_TOKENS
from walkgraph.simulation.simulator import Simulator
from walkgraph.telemetry.emit import Emitter
from walkgraph.telemetry.places import Places
from walkgraph.wire import messages as m
from walkgraph.wire.sockets import push
from walkgraph.worker.interfaces import CoreLike
from walkgraph.worker.io.links import Links
from walkgraph.worker.loop import WorkerLoop

BOOT_SECONDS = 0.1
LOAD_SECONDS = 0.3
"""Longest load. Many are short, so that a rank may have loaded before others know of it."""
TURN_SECONDS = 0.0002
UNLOADABLE = 0.1
"""Share of the later plans that a rank can't load."""


class WorkerParts(NamedTuple):
    """Factories of a worker's parts, called for each plan that it loads."""

    core: Callable[[Plan, Rank], CoreLike]
    engine: Callable[[Plan, SimulatedQueue, SimulatedMemo], SimulatedEngine]
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
        """`post` sends (source, target, frames); it returns False if the target is gone. `loads`: its first load
        succeeds."""
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
        # It stays while plans change, and goes on with what the former one has launched.
        self._device, self._memo = SimulatedQueue(simulator), SimulatedMemo(simulator)
        self._engine: SimulatedEngine | None = None
        self._core: CheckedCore | None = None
        self._loop: WorkerLoop | None = None
        self._loading = False
        self._before: Literal["nothing", "loaded", "failed"] = "nothing"
        """The end of the load before."""
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
        idle = self._engine is None or self._engine.idle
        return read and idle and self._next == float("inf")

    # ── turns ──

    def _wake(self) -> None:
        self._plan_turn(self._simulator.now)

    def _plan_turn(self, at: float) -> None:
        at = max(at, self._free)
        if at < self._next:
            self._next = at
            self._simulator.at(at, partial(self._turn, at))

    def _turn(self, planned: float) -> None:
        if self.over or self.stopped or planned != self._next:
            return
        self._next = float("inf")
        if self._loop is None:
            self._links.conductor.flush()
            if not self._loading:
                self._load()
            return
        self._loop.act()  # simulated time passes between turns, never within one
        if self._loop.stopping:
            self._leave(self._loop.next)
            return
        self._free = self._simulator.now + TURN_SECONDS
        if self._engine is not None and not self._engine.idle:
            self._plan_turn(self._engine.due())
        self._plan_turn(self._carrier.due())

    # ── start, as in `worker.serve` ──

    def _connected(self, links: type[Links], context: SimulatedContext) -> Links:
        conductor, inbox = cast("Any", self._conductor), cast("Any", self._inbox)

        def connect(_: Rank, peer: m.Peer) -> Any:
            return push(cast("Any", context), peer.address)

        return links(self.rank, self.here.start, conductor, inbox, connect, self._carrier, Places())

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
        """Reads until the order to load a plan. A rank that couldn't load a later plan ignores everything else."""
        for _, message in self._links.from_conductor.drain():
            match message:
                case m.Load():
                    self._begin(message)
                    return
                case m.Stop():
                    self.ended(0)
                    return
                case _ if self._before != "nothing":
                    pass
                case _:
                    raise self._simulator.fail(f"rank {self.rank} gets {message} before it has loaded")

    def _begin(self, order: m.Load) -> None:
        self._links.set_peers(order.peers)
        self._loading = True
        if self._before != "nothing":
            self._loads = self._simulator.chance.random() >= UNLOADABLE
        seconds = LOAD_SECONDS * self._simulator.chance.random() ** 3
        self._simulator.after(seconds, partial(self._ready, order))

    def _leave(self, order: m.Load | None) -> None:
        """Ends the loop: for another plan, or for good."""
        if order is None:
            self.ended(0)
            return
        # Messages for peers may still wait: they go on to wait under the next plan.
        kept = [*self._kept(), *(self._engine.held() if self._engine is not None else ())]
        if kept:
            raise self._simulator.fail(f"rank {self.rank} leaves a plan while it keeps {'; '.join(kept)}")
        self._loop, self._core, self._engine = None, None, None
        self._begin(order)

    def _ready(self, order: m.Load) -> None:
        if self.over:
            return
        if self.stopped:
            self._simulator.after(LOAD_SECONDS, partial(self._ready, order))
            return
        if not self._loads:
            error = ErrorInfo(code="out_of_memory", message="it can't load", rank=self.rank)
            self._tell(m.LoadFailed(rank=self.rank, error=error, number=order.number))
            if self._before != "loaded":
                self.ended(1)
                return
            self._simulator.counts["plans that can't be loaded"] += 1
            self._loading, self._before = False, "failed"
            self._wake()
            return
        core, engine = self._parts.core(order.plan, self.rank), self._parts.engine(order.plan, self._device, self._memo)
        self._engine, self._before = engine, "loaded"
        self._core = CheckedCore(self._simulator, self.rank, order.plan, core, engine.calls)
        emitter, clock = self._parts.emitter(), lambda: self._simulator.now
        self._loop = self._parts.loop(self.rank, self._core, engine, self._links, emitter, clock)
        _, total = engine.states.pages()
        pool = m.PoolSize(states=engine.states.paged, pages=total, page_tokens=PAGE_TOKENS, page_bytes=1024)
        self._tell(m.Ready(rank=self.rank, seconds=LOAD_SECONDS, pools=(pool,), number=order.number))
        self._wake()

    # ── checks ──

    def left(self) -> Iterable[str]:
        """Descriptions of leaks: things that are kept although nothing runs."""
        engine = self._engine.left() if self._engine is not None else ()
        unsent = [f"{self._links.waiting} messages for peers"] if self._links.waiting else []
        out = [f"{self._carrier.out} values in the arena"] if self._carrier.out else []
        whole = (*self._kept(), *unsent, *out, *engine) if self.loaded else ()
        return (f"rank {self.rank} keeps {what}" for what in whole)

    def _kept(self) -> Iterable[str]:
        if self._loop is None or self._core is None:
            return
        yield from (f"run {run} in the core" for run in self._core.runs)
        yield from (f"run {run} in suspension" for run in self._loop.suspension.runs)
        if self._loop.moves.leaving:
            yield f"{self._loop.moves.leaving} states that leave"
        if self._core.in_flight:
            yield f"{len(self._core.in_flight)} calls in flight"
