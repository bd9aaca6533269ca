"""One process of a simulated rank: the real core, in a loop that does what `worker.loop.WorkerLoop` does.

boot ──> Hello ──Load──> loading ──> Ready ──> turn, turn, ...
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.spec import Items
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan
from walkgraph.simulation.engine import SimulatedEngine, SimulatedSwap
from walkgraph.simulation.links import SimulatedLinks
from walkgraph.simulation.network import CONDUCTOR, Packet, Process
from walkgraph.simulation.states import PAGE_TOKENS, StateStore
from walkgraph.simulation.timeline import Timeline
from walkgraph.simulation.violations import Watchman
from walkgraph.wire import messages as m
from walkgraph.worker.events import (
    ABSENT,
    Allow,
    CallDone,
    Cancelled,
    Command,
    DropStates,
    Event,
    FreeLoops,
    Gated,
    HoldLoops,
    MoveState,
    Observe,
    Ref,
    Release,
    Report,
    RunCall,
    RunLoop,
    Send,
    Started,
    Watched,
)
from walkgraph.worker.interfaces import CoreLike, called
from walkgraph.worker.io import moving, values
from walkgraph.worker.suspension import Suspension

BOOT_SECONDS = 0.1
LOAD_SECONDS = 0.2
TURN_SECONDS = 0.0002


class WorkerParts(NamedTuple):
    """What a worker is made of; made anew for each start."""

    core: Callable[[Plan, Rank], CoreLike]
    states: Callable[[], StateStore]
    engine: Callable[[StateStore], SimulatedEngine]
    links: Callable[[Process, Any, Any], SimulatedLinks]


class SimulatedWorker:
    def __init__(
        self,
        here: Process,
        parts: WorkerParts,
        post: Callable[[Process, Process, Packet], None],
        timeline: Timeline,
        chance: random.Random,
        watchman: Watchman,
    ) -> None:
        """`post`: (source, target, packet)."""
        self.here, self.rank = here, Rank(here.rank)
        self.ended: Callable[[int], None] = lambda code: None
        """Called with its exit status when it ends itself."""
        self.over = False
        self.stopped = False
        """As by SIGSTOP."""
        self.loaded = False
        self._parts, self._timeline, self._chance, self._watchman = parts, timeline, chance, watchman
        self._post = partial(post, here)
        self.links = parts.links(here, self._post, self.report)
        self.states = parts.states()
        self.engine = parts.engine(self.states)
        self.suspension = Suspension()
        self._core: CoreLike | None = None
        self._orders: deque[m.ToWorker] = deque()
        self._commands: deque[Command] = deque()
        self._probe: m.Probe | None = None
        self._under_way: set[Ref] = set()
        """Calls and loops that the engine was given and has not ended."""
        self._next = float("inf")
        """The turn that is planned."""
        self._free = 0.0
        """When it is done with what it does now."""
        timeline.after(BOOT_SECONDS * (1 + chance.random()), self._boot)

    # ── life ──

    def kill(self) -> None:
        self.over = True

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        self.stopped = False
        self._plan_turn(self._timeline.now)

    def receive(self, source: Process, packet: Packet) -> None:
        if self.over:
            return
        if source == CONDUCTOR:
            self._orders.append(packet.message)
        else:
            self.links.receive(source, packet)
        self._plan_turn(self._timeline.now)

    @property
    def core(self) -> CoreLike:
        if self._core is None:
            raise self._watchman.fail(f"rank {self.rank} is sent a run before it has loaded")
        return self._core

    @property
    def resting(self) -> bool:
        """Nothing is to be read or computed."""
        return not self._orders and not self.links.waiting and self.engine.idle

    def report(self, message: m.FromWorker, value: Any = ABSENT) -> None:
        if isinstance(message, m.Emit) and value is not ABSENT:
            message = replace(message, value=values.pack(value))
        if isinstance(message, m.RankDone):
            self._check_done(message.run)
        self._post(CONDUCTOR, Packet(message))

    # ── turns ──

    def _boot(self) -> None:
        if not self.over:
            peer = m.Peer(address=f"rank{self.here.rank}.{self.here.start}", start=self.here.start)
            self.report(m.Hello(rank=self.rank, peer=peer))

    def _plan_turn(self, at: float) -> None:
        at = max(at, self._free)
        if at < self._next:
            self._next = at
            self._timeline.at(at, lambda: self._turn(at))

    def _turn(self, planned: float) -> None:
        if self.over or self.stopped or planned != self._next:
            return
        self._next = float("inf")
        if self._core is None and not self._load():
            return
        while self._orders and not self.over:
            self._obey(self._orders.popleft())
        for arrived in self.links.arrivals():
            self.handle(arrived)
        if self.over:
            return
        if not self.engine.idle:
            for event in self.engine.step():
                self._take(event)
        self.links.flush()
        for run, error in self.links.failures():
            self.report(m.RankFailed(rank=self.rank, run=RunId(run), error=error))
        self._answer()
        self._free = self._timeline.now + TURN_SECONDS
        if not self.engine.idle:
            self._plan_turn(self.engine.due())

    def _load(self) -> bool:
        """False while there is nothing to be loaded, or for as long as it takes."""
        load = self._orders.popleft() if self._orders else None
        if not isinstance(load, m.Load):
            return False
        self.links.set_peers(load.peers)
        self._core = self._parts.core(load.plan, self.rank)
        self._free = self._timeline.now + LOAD_SECONDS * (0.5 + self._chance.random())
        self._timeline.at(self._free, self._ready)
        self._plan_turn(self._free)
        return False

    def _ready(self) -> None:
        if not self.over:
            self.loaded = True
            pool = m.PoolSize(
                states=self.states.paged, pages=self.states.total, page_tokens=PAGE_TOKENS, page_bytes=1024
            )
            self.report(m.Ready(rank=self.rank, seconds=LOAD_SECONDS, pools=(pool,)))

    def _answer(self) -> None:
        """A probe, once all that has come was dealt with."""
        if self._probe is not None:
            probe, self._probe = self._probe, None
            found = [one for run in probe.runs if (one := self._standing(run)) is not None]
            self.report(m.Probed(rank=self.rank, number=probe.number, runs=tuple(found)))

    def _standing(self, run: str) -> Any:
        found = self.core.standing(run)
        if found is None:
            return None
        held = self.links.held.of(run)
        busy = found.busy or self.suspension.away(run) or self.links.sends(run)
        return replace(found, busy=busy, sent=found.sent - len(held), held=held)

    # ── in ──

    def _obey(self, message: m.ToWorker) -> None:
        match message:
            case m.Start():
                self._start(message)
            case m.Cancel():
                self.handle(Cancelled(message.run))
            case m.Suspend(run=run):
                self.suspension.begin(run)
                self.engine.suspend(run)
            case m.Resume(run=run):
                self.engine.resume(run)
            case m.Watch():
                self.handle(Watched(message))
            case m.Gate():
                self.handle(Gated(message))
            case m.Peers(peers=peers):
                self.links.set_peers(peers)
            case m.Ping(number=number):
                self.report(m.Pong(rank=self.rank, number=number))
            case m.Probe():
                self._probe = message
            case m.Stop():
                self.ended(0)
            case m.Load():
                raise self._watchman.fail(f"rank {self.rank} is to load twice")

    def _start(self, message: m.Start) -> None:
        inputs = {name: values.unpack(value) for name, value in message.inputs.items()}
        how = message.session, message.priority, message.stepped, message.record, message.hold
        self.handle(Started(message.run, message.itinerary, dict(message.params), inputs, *how))

    def handle(self, event: Event) -> None:
        if self.suspension.keeps(event):
            return
        self._commands.extend(self.core.handle(event))
        while self._commands:
            self._perform(self._commands.popleft())

    def _take(self, event: Any) -> None:
        match event:
            case SimulatedSwap(run=run, out=True):
                self.report(m.Suspended(rank=self.rank, run=RunId(run), pages_free=self.states.free))
            case SimulatedSwap(run=run):
                for kept in self.suspension.end(run):
                    self.handle(kept)
            case Items():
                self._check_under_way(Ref(event.call.run, event.call.step, event.call.use, event.call.iteration))
                self.handle(event)
            case LoopDone():
                self._end(called(event))
            case Stepped():
                pass
            case _:
                self._end(event)

    def _end(self, event: Any) -> None:
        self._check_under_way(event.ref)
        if isinstance(event, CallDone):
            self._under_way.discard(event.ref)
        self.handle(event)

    # ── out ──

    def _perform(self, command: Command) -> None:
        match command:
            case RunCall(call=call):
                call.ready_at = self._timeline.now
                self._give(Ref(call.run, call.step, call.use, call.iteration))
                self.engine.add(call)
            case RunLoop(call=loop):
                loop.ready_at = self._timeline.now
                self._give(Ref(loop.run, loop.step, loop.use, loop.iteration))
                self.engine.add_loop(loop)
            case Allow(ref=ref, upto=upto):
                self.engine.loops.allow(ref.run, ref.step, ref.use, ref.iteration, upto)
            case Send():
                self.links.send(command)
            case Report(message=message, value=value):
                self.report(message, value)
            case MoveState():
                self._commands.extend(self.core.handle(moving.move(self.states, command)))
            case HoldLoops(run=run):
                self.engine.hold_loops(run)
            case FreeLoops(run=run):
                self.engine.release_loops(run)
            case DropStates(keys=keys):
                self.states.drop(keys)
            case Release(run=run):
                self._release(run)
            case Observe():
                pass

    def _release(self, run: RunId) -> None:
        self._under_way = {ref for ref in self._under_way if ref.run != run}
        self.links.forget(run)
        self.engine.drop(run)
        self.report(m.Released(rank=self.rank, run=run, pages_free=self.states.free, pages_total=self.states.total))

    # ── what must hold ──

    def _give(self, ref: Ref) -> None:
        if ref in self._under_way:
            raise self._watchman.fail(f"rank {self.rank} makes {ref} twice", ref.run)
        self._under_way.add(ref)

    def _check_under_way(self, ref: Ref) -> None:
        if ref not in self._under_way and ref.run in self.core.runs:
            raise self._watchman.fail(f"on rank {self.rank} something comes of {ref} after its end", ref.run)

    def _check_done(self, run: str) -> None:
        left = [ref for ref in self._under_way if ref.run == run]
        if left:
            raise self._watchman.fail(f"rank {self.rank} is done with {left[0]} under way", run)
        for (_, _, port), chunks in self.engine.chunks.get(run, {}).items():
            indices, lasts = [chunk.index for chunk in chunks], [chunk.last for chunk in chunks]
            after = chunks[lasts.index(True) + 1 :] if True in lasts else []
            absent = all(chunk.valid == 0 for chunk in after)
            if indices != [*range(len(indices))] or lasts.count(True) != 1 or not absent:
                raise self._watchman.fail(f"`{port}` on rank {self.rank} reads chunks {indices}, last {lasts}", run)

    def left(self) -> list[str]:
        """What is kept though nothing runs."""
        if self._core is None:
            return []
        found = [f"run {run} in the core" for run in self._core.runs]
        found += [f"calls under way: {len(self._under_way)}"] if self._under_way else []
        found += [f"run {run} in suspension" for run in self.suspension.runs]
        return [f"rank {self.rank} keeps {what}" for what in [*found, *self.engine.left(), *self.links.left()]]
