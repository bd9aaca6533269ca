"""The loop of one rank: it carries messages to the core, and the core's commands to engine and peers. It decides
nothing.

    messages ──> Core.handle ──> commands ──> engine, links
    engine.step ──> CallDone ──> Core.handle ──> ...

Between two steps of the engine it reads the messages that have come; it waits for messages only when the engine rests.
"""

import gc
import time
from collections import deque
from collections.abc import Callable

import msgspec

from walkgraph.engine.engine import Begun, Done, Forwarded, LoopDone, Stepped, Swapped
from walkgraph.engine.loops.spec import Items
from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire import messages as m
from walkgraph.worker.asked_tasks import AskedTasks
from walkgraph.worker.events import (
    Allow,
    Arrived,
    BeginMove,
    Cancelled,
    Command,
    DropStates,
    Event,
    Extended,
    FreeLoops,
    Gated,
    HoldLoops,
    LetPart,
    MoveState,
    Observe,
    Release,
    Report,
    RunCall,
    RunLoop,
    Send,
    Started,
    StateMove,
    TakePart,
    Watched,
)
from walkgraph.worker.idle import IdleMoments
from walkgraph.worker.interfaces import CoreLike, EngineLike, LoopParts, NoParts, called
from walkgraph.worker.io import values
from walkgraph.worker.io.links import FromPart, Links
from walkgraph.worker.io.moving import StateMoves
from walkgraph.worker.observe.observer import Observer
from walkgraph.worker.observe.probes import Probes
from walkgraph.worker.observe.samples import Samples
from walkgraph.worker.observe.work_telemetry import WorkTelemetry
from walkgraph.worker.suspension import Suspension

WAIT = 0.05
"""The longest wait for a message while there are runs, in seconds."""
IDLE_SECONDS = 30.0
"""The longest wait for a message without runs, in seconds; then gauges are sent anyway."""


class WorkerLoop:
    def __init__(
        self,
        rank: Rank,
        core: CoreLike,
        engine: EngineLike,
        links: Links,
        emitter: Emitter,
        clock: Callable[[], float] = time.monotonic,
        parts: LoopParts | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`parts`: those of loops that span devices. `observer`: reports its work; None: reports all of it."""
        self.stopping = False
        self.next: m.Load | None = None
        """The order to load another plan, which ended the loop."""
        self._rank, self._core, self._engine, self._links = rank, core, engine, links
        self._clock, self.suspension = clock, Suspension()
        self._telemetry, self._samples = observer or Observer(
            WorkTelemetry(rank, emitter, clock, engine, links), Samples(rank, engine.states, emitter, clock)
        )
        self.moves = StateMoves(engine.transfers, self.suspension.away, self._fail)
        self._probes = Probes(rank, core, links, self.suspension)
        self.asked = AskedTasks(rank, links.conductor.send, self._telemetry.called, clock, links.post)
        self._commands: deque[Command] = deque()
        self._parts = parts or NoParts()
        self._quiet = IdleMoments()

    def run(self) -> None:
        while not self.stopping:
            self.turn()

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        self._wait()
        self.act()

    def act(self) -> None:
        """Read messages, perform the commands that follow, run one batch. Raises `PageFault` if the engine's page
        counts are wrong."""
        for message in self._links.messages():
            self._obey(message)
            if self.stopping:
                self._links.conductor.flush()
                return
        for arrival in self._links.arrivals():
            if isinstance(arrival, Arrived):
                self._telemetry.arrived(arrival)
                self._handle(arrival)
            elif isinstance(arrival, FromPart):
                self._parts.take(arrival.rank, arrival.message)
            else:
                self._fail(*arrival)
        if not self._engine.idle:
            # Send results before starting work that may take long.
            self._links.conductor.flush()
            self._step()
        for event in self.moves.grown() if self.moves.leaving else ():
            self._handle(event)
        self._links.flush()
        for run, error in self._links.failures():
            self._fail(run, error)
        self._telemetry.departed(self._links.departures())
        self._probes.answer()
        self._links.conductor.flush()
        self._samples.tell()
        runs = len(self._core.runs)
        self._telemetry.flush(runs)
        if self._quiet.now(runs, self._clock()):
            self._engine.states.audit()
            if self._links.post is not None:
                self._links.post.sender.rest()
            gc.collect()

    # ── in ──

    def _wait(self) -> None:
        if not self._engine.resting:
            self._parts.wait(self._links.poller)
            return
        longest = self._telemetry.wait(self._samples.wait(WAIT if self._core.runs else IDLE_SECONDS))
        soon = self._links.check_after
        self._links.wait(longest if soon is None else min(soon, longest), self._engine.wakes)

    def _obey(self, message: m.ToWorker) -> None:
        match message:
            case m.Start():
                self._start(message)
            case m.Extend() | m.Cancel() | m.Gate():
                self._handle(_event(message))
            case m.Suspend() | m.Resume():
                self._swap(message)
            case m.TaskAnswer() | m.TaskPiece():
                self._answered(message)
            case m.Watch():
                self._telemetry.set_level(message.level)
                self._samples.keep(message.taps)
                self._handle(Watched(message))
            case m.Peers():
                self._set_peers(message.peers)
            case m.Ping():
                self._links.conductor.send(m.Pong(rank=self._rank, number=message.number, at=self._clock()))
                # At once: the clock is known the better, the sooner the answer is there.
                self._links.conductor.flush()
                self._links.reach_again()
                self._telemetry.tell(message.clock)
            case m.Probe():
                self._probes.ask(message)
            case m.Stop():
                self.stopping = True
            case m.Load():
                self.next, self.stopping = message, True

    def _swap(self, message: m.Suspend | m.Resume) -> None:
        if isinstance(message, m.Suspend):
            self.suspension.begin(message.run)
            self._engine.swap.suspend(message.run)
        else:
            self._engine.swap.resume(message.run)

    def _answered(self, message: m.TaskAnswer | m.TaskPiece) -> None:
        event = self.asked.answered(message) if isinstance(message, m.TaskAnswer) else self.asked.piece(message)
        if event is not None:
            self._handle(event)

    def _set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        for rank in self._links.peers.replaced(peers):
            self._parts.gone(rank)
        self._links.set_peers(peers)

    def _start(self, message: m.Start) -> None:
        self._telemetry.received(message.run)
        opened = self._links.post and self._links.post.opener(message.run)
        try:
            inputs = {name: values.unpack(value, opened=opened) for name, value in message.inputs.items()}
        except WalkgraphError as error:
            self._fail(message.run, error.info())
            return
        self._engine.limits.admit(message.run, message.params, message.salt)
        if message.session is not None:
            self._engine.limits.admit(f"session:{message.session}", message.params, message.salt)
        how = message.session, message.priority, message.stepped, message.record, message.hold, message.selected
        self._handle(Started(message.run, message.itinerary, dict(message.params), inputs, *how))

    def _handle(self, event: Event) -> None:
        if self.suspension.keeps(event):
            return
        self._commands.extend(self._core.handle(event))
        while self._commands:
            self._perform(self._commands.popleft())

    def _fail(self, run: str, error: ErrorInfo) -> None:
        self._links.conductor.send(m.RankFailed(rank=self._rank, run=RunId(run), error=error))

    # ── out ──

    def _perform(self, command: Command) -> None:
        match command:
            case RunCall():
                self._call(command)
            case RunLoop(call=loop):
                self._engine.add_loop(loop)
                self._telemetry.began(loop)
            case Allow(ref=ref, upto=upto, items=items, fed=fed):
                self._engine.loops.allow(ref.run, ref.step, ref.use, ref.iteration, upto, items, fed)
            case Send():
                self._links.send(command, self._telemetry.transfer(command))
            case Report():
                self._report(command)
            case MoveState() | BeginMove() | LetPart() | TakePart():
                self._move(command)
            case HoldLoops(run=run):
                self._engine.holds.hold_loops(run)
            case FreeLoops(run=run):
                self._engine.holds.release_loops(run)
            case Observe():
                self._samples.look(command)
            case DropStates(keys=keys):
                self._engine.states.drop(keys)
            case Release(run=run):
                self._release(run)

    def _move(self, command: StateMove) -> None:
        for event in self.moves.perform(command):
            self._commands.extend(self._core.handle(event))

    def _report(self, command: Report) -> None:
        message = command.message
        if isinstance(message, m.RankDone):
            self._telemetry.rests(message.run)
            message = self._with_playback(message)
        self._links.conductor.send(message, command.value)

    def _with_playback(self, message: m.RankDone) -> m.RankDone:
        """The report of a run's end, with how its values came for a player."""
        if (one := self._engine.loops.playbacks.played(message.run)) is None:
            return message
        played = m.Played(seconds=one.position, underruns=one.underruns, late=one.late)
        return msgspec.structs.replace(message, played=played)

    def _call(self, command: RunCall) -> None:
        if command.task:
            command.call.ready_at = self._clock()
            self.asked.ask(command)
        else:
            self._engine.add(command.call)

    def _release(self, run: RunId) -> None:
        self._telemetry.rests(run)
        self._links.forget(run)
        self.asked.forget(run)
        self.moves.forget(run)
        self._engine.drop(run)
        free, total = self._engine.pools.pages()
        self._links.conductor.send(m.Released(rank=self._rank, run=run, pages_free=free, pages_total=total))

    def _step(self) -> None:
        events = self._engine.step()
        self._parts.stepped(quiet=not events)
        for event in events:
            match event:
                case Items():
                    self._handle(event)
                case Swapped():
                    self._swapped(event)
                case Stepped() | Forwarded():
                    self._telemetry.worked(event)
                case LoopDone():
                    self._telemetry.ended(event)
                    self._handle(called(event))
                case Begun() | Done():
                    if isinstance(event, Done) and event.kept:
                        self._telemetry.kept(event.call)
                    self._handle(called(event))

    def _swapped(self, event: Swapped) -> None:
        if event.error is not None:
            self._fail(event.run, event.error)
        elif event.out:
            free, _ = self._engine.pools.pages()
            self._links.conductor.send(m.Suspended(rank=self._rank, run=RunId(event.run), pages_free=free))
        else:
            for kept in self.suspension.end(event.run):
                self._handle(kept)


def _event(message: m.Extend | m.Cancel | m.Gate) -> Event:
    """The event of a message about one run."""
    match message:
        case m.Extend():
            return Extended(message.run, message.leg)
        case m.Cancel():
            return Cancelled(message.run)
        case m.Gate():
            return Gated(message)
