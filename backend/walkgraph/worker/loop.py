"""The loop of one rank: it carries messages to the core and the core's commands to engine and peers. No decisions.

    messages ──> Core.handle ──> commands ──> engine, links
    engine.step ──> CallDone ──> Core.handle ──> ...

Between two steps of the engine it reads what has come, without waiting; it waits only when the engine is idle.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Protocol

import zmq

from walkgraph.engine.engine import Done, Forwarded, LoopDone, Stepped, Swapped
from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank, RunId
from walkgraph.networks.base import Call, Scalar, StateKey
from walkgraph.networks.loops import Items, LoopCall
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire import messages as m
from walkgraph.worker import moving, values
from walkgraph.worker.events import (
    Allow,
    Arrived,
    CallDone,
    Cancelled,
    Command,
    DropStates,
    Event,
    MoveState,
    Ref,
    Release,
    Report,
    Run,
    RunLoop,
    Send,
    Started,
)
from walkgraph.worker.links import Links
from walkgraph.worker.parts import Parts
from walkgraph.worker.suspension import Suspension
from walkgraph.worker.telling import Teller

WAIT = 0.05
"""The longest wait for a message while there are runs."""
IDLE_SECONDS = 30.0
"""The longest wait for a message, after which gauges are told all the same."""
QUIET_SECONDS = 1.0
"""Without a run for so long, the engine's books are checked: a check that no run waits for."""


class Core(Protocol):
    @property
    def runs(self) -> tuple[str, ...]: ...

    def handle(self, event: Event) -> list[Command]: ...


class Engine(moving.Keeper, Protocol):
    """What the loop asks of `engine.Engine`."""

    @property
    def idle(self) -> bool: ...

    def load(self, progress: Callable[[str, float], None]) -> None: ...

    def admit(self, run: str, params: Mapping[str, Scalar]) -> None: ...

    def add(self, call: Call) -> None: ...

    def add_loop(self, call: LoopCall) -> None: ...

    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None: ...

    def time_steps(self, *, on: bool) -> None: ...

    def step(self) -> Sequence[Done | Forwarded | Items | LoopDone | Stepped | Swapped]: ...

    def suspend(self, run: str) -> None: ...

    def resume(self, run: str) -> None: ...

    def drop(self, run: str) -> None: ...

    def drop_states(self, keys: Iterable[StateKey]) -> None: ...

    def pages(self) -> tuple[int, int]: ...

    def audit(self) -> None: ...


class Loop:
    def __init__(
        self,
        rank: Rank,
        core: Core,
        engine: Engine,
        links: Links,
        emitter: Emitter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stopping = False
        self._rank, self._core, self._engine, self._links = rank, core, engine, links
        self._clock, self._teller = clock, Teller(rank, emitter, clock, engine, links)
        self._suspension = Suspension()
        self._poller = zmq.Poller()
        for socket in (links.conductor.socket, links.inbox):
            self._poller.register(socket, zmq.POLLIN)
        engine.time_steps(on=emitter.level != "off")
        self._commands: deque[Command] = deque()
        self.parts: Parts | None = None
        """Of loops that span devices."""
        self._worked: float | None = None
        """When there was a run last; None once the books were checked since."""

    def run(self) -> None:
        while not self.stopping:
            self.turn()

    def turn(self) -> None:
        """Read what has come, do what follows, run one batch. Raises `PageFault` when the engine's books are wrong."""
        self._wait()
        for message in self._links.from_conductor.drain():
            self._obey(message[1])
        for arrival in self._links.arrivals():
            if isinstance(arrival, Arrived):
                self._teller.arrived(arrival)
                self._handle(arrival)
            else:
                self._fail(*arrival)
        if not self._engine.idle:
            self._step()
        self._links.flush()
        for run, error in self._links.failures():
            self._fail(run, error)
        self._teller.flush(len(self._core.runs))
        self._audit()

    # ── in ──

    def _wait(self) -> None:
        if not self._engine.idle:
            if self.parts is not None:
                self.parts.wait(self._poller)
            return
        blocked = self._links.blocked()
        for socket in blocked:
            self._poller.modify(socket, zmq.POLLIN | zmq.POLLOUT if socket in self._poller else zmq.POLLOUT)
        wait = 0.0 if self._links.copying else self._teller.wait(WAIT if self._core.runs else IDLE_SECONDS)
        self._poller.poll(ceil(1000 * wait))
        for socket in blocked:
            if socket is self._links.conductor.socket:
                self._poller.modify(socket, zmq.POLLIN)
            else:
                self._poller.unregister(socket)

    def _obey(self, message: m.ToWorker) -> None:
        match message:
            case m.Start():
                self._start(message)
            case m.Cancel():
                self._handle(Cancelled(message.run))
            case m.Suspend(run=run):
                self._suspension.begin(run)
                self._engine.suspend(run)
            case m.Resume(run=run):
                self._engine.resume(run)
            case m.Peers():
                self._links.set_peers(message.peers)
            case m.Ping():
                self._links.conductor.send(m.Pong(rank=self._rank, number=message.number))
            case m.Stop():
                self.stopping = True
            case m.Load():
                pass  # taken before the loop was made

    def _start(self, message: m.Start) -> None:
        try:
            inputs = {name: values.unpack(value) for name, value in message.inputs.items()}
        except WalkgraphError as error:
            self._fail(message.run, error.info())
            return
        self._engine.admit(message.run, message.params)
        if message.session is not None:
            self._engine.admit(f"session:{message.session}", message.params)
        params, priority = dict(message.params), message.priority
        self._handle(Started(message.run, message.itinerary, params, inputs, message.session, priority))

    def _handle(self, event: Event) -> None:
        if self._suspension.keeps(event):
            return
        self._commands.extend(self._core.handle(event))
        while self._commands:
            self._perform(self._commands.popleft())

    def _fail(self, run: str, error: ErrorInfo) -> None:
        self._links.conductor.send(m.RankFailed(rank=self._rank, run=RunId(run), error=error))

    # ── out ──

    def _perform(self, command: Command) -> None:
        match command:
            case Run(call=call):
                call.ready_at = self._clock()
                self._engine.add(call)
            case RunLoop(call=loop):
                loop.ready_at = self._clock()
                self._engine.add_loop(loop)
                self._teller.began(loop)
            case Allow(ref=ref, upto=upto):
                self._engine.allow(ref.run, ref.step, ref.use, ref.iteration, upto)
            case Send():
                self._links.send(command.rank, command.message, command.value, command.transport)
                self._teller.sent(command)
            case Report(message=message, value=value):
                self._links.conductor.send(message, value)
            case MoveState():
                self._commands.extend(self._core.handle(moving.move(self._engine, command)))
            case DropStates(keys=keys):
                self._engine.drop_states(keys)
            case Release(run=run):
                self._release(run)

    def _release(self, run: RunId) -> None:
        self._links.forget(run)
        self._engine.drop(run)
        free, total = self._engine.pages()
        self._links.conductor.send(m.Released(rank=self._rank, run=run, pages_free=free, pages_total=total))

    def _step(self) -> None:
        events = self._engine.step()
        if self.parts is not None:
            self.parts.stepped(quiet=not events)
        for event in events:
            match event:
                case Items():
                    self._handle(event)
                case Swapped():
                    self._swapped(event)
                case Stepped() | Forwarded():
                    self._teller.worked(event)
                case LoopDone():
                    self._teller.ended(event)
                    self._handle(_done(event))
                case Done():
                    self._handle(_done(event))

    def _swapped(self, event: Swapped) -> None:
        if event.error is not None:
            self._fail(event.run, event.error)
        elif event.out:
            free, _ = self._engine.pages()
            self._links.conductor.send(m.Suspended(rank=self._rank, run=RunId(event.run), pages_free=free))
        else:
            for kept in self._suspension.end(event.run):
                self._handle(kept)

    def _audit(self) -> None:
        """Once after every spell of work."""
        if self._core.runs:
            self._worked = self._clock()
        elif self._worked is not None and self._clock() - self._worked >= QUIET_SECONDS:
            self._worked = None
            self._engine.audit()


def _done(done: Done | LoopDone) -> CallDone:
    call = done.call
    ref = Ref(call.run, call.step, call.use, call.iteration)
    if isinstance(done, Done):
        return CallDone(ref, done.outputs, done.error, done.busy, done.queued)
    return CallDone(ref, done.outputs, done.error, done.busy, done.queued, done.iterations, done.stopped)
