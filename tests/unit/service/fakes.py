"""Deployments without processes, and the interface that they fake."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from walkgraph.conductor.queue_order import exchanged
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire.questions import QueuedRun, SessionState
from walkgraph.wire.spec import DeploymentSpec

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAADAAAAAgCAAAAABxv6TAAAAAHElEQVR42mM8wUAaYGIY1TCqYVTDqIZRDSNAAwCSowEIJ/dxvQAAAABJRU5ErkJggg=="
)
"""Grey, 48 pixels wide and 32 high."""
TIMES = (m.NodeTime(node="llm", rank=Rank(0), calls=3, busy=0.02, queued=0.001),)
LOOPS = (m.LoopEnd(walk="decode", loop="tokens", iterations=5, reason="bound"),)


class FakeDeployment:
    """Answers a run at once with a preview, a picture and two pieces of text; with seed 13 it waits for its end,
    with 14 it fails, with 15 it says what it read, and that its count ended it."""

    def __init__(
        self, spec: DeploymentSpec, take: Callable[[m.FromConductor], None], end: Callable[[int], None]
    ) -> None:
        self.spec = spec
        self.pid = 4711
        self.alive = True
        self.sent: list[m.ToConductor] = []
        self.some = asyncio.Event()
        """Set once something was sent."""
        self.takes_up = True
        """False: it leaves an order to take up another graph unanswered."""
        self.graces: list[float] = []
        self._take, self._end = take, end
        self._loop = asyncio.get_running_loop()
        self.waiting: asyncio.Queue[m.RunId] = asyncio.Queue()
        """Runs that wait, as they come."""
        self._waiting: dict[str, m.Submit] = {}
        self.sessions: set[str] = set()
        self._idle = asyncio.Event()
        self.gone = asyncio.Event()

    def ready(self) -> None:
        ranks = tuple(m.RankStatus(rank=r.rank, state="ready", fraction=1.0, pid=1) for r in self.spec.plan.ranks)
        self._take(m.Status(state="ready", ranks=ranks))

    def send(self, message: m.ToConductor) -> None:
        self.sent.append(message)
        self.some.set()
        self._loop.call_soon(self._answer, message)

    def take_up(self, message: m.TakeUp) -> None:
        """As it is asked to; with the description `bad` it can't."""
        for run in list(self._waiting):
            self._answer(m.Abort(run=m.RunId(run)))
        bad = message.graph.get("description") == "bad"
        error = ErrorInfo(code="invalid_input", message="a tensor is missing") if bad else None
        self._take(m.TakenUp(number=message.number, error=error))

    def failed(self, reason: str) -> None:
        self._take(m.Status(state="failed", ranks=(), reason=reason))

    def say(self, message: m.FromConductor) -> None:
        self._take(message)

    def finish(self, run: m.RunId) -> None:
        """End one that waits."""
        del self._waiting[run]
        self._take(m.Finished(run=run, seconds=0.5, loops=LOOPS))
        if not self._waiting:
            self._idle.set()

    async def stop(self, grace: float) -> None:
        self.graces.append(grace)
        if grace > 0 and self._waiting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)
        if self.alive:
            self.die(0)

    def die(self, code: int) -> None:
        self.alive = False
        self.gone.set()
        self._idle.set()
        self._end(code)

    def _answer(self, message: m.ToConductor) -> None:
        match message:
            case m.Submit():
                self._begin(message)
            case m.AskSessions():
                self._take(self._told(message))
            case m.AskQueue():
                self._take(self._queue_told(message))
            case m.TakeUp() if self.takes_up:
                self.take_up(message)
            case m.Abort():
                if self._waiting.pop(message.run, None):
                    error = ErrorInfo(code="cancelled", message="cancelled")
                    self._take(m.Finished(run=message.run, error=error))
            case _:
                pass

    def _told(self, asked: m.AskSessions) -> m.SessionsTold:
        """Every session that a run has named, and that was not ended since."""
        known = asked.end is None or asked.end in self.sessions
        self.sessions.discard(asked.end or "")
        busy = {run.session: id_ for id_, run in self._waiting.items()}
        told = tuple(
            SessionState(name=n, run=busy.get(n), waiting=0, bytes=4096, idle=1.5, ttl=600.0, ending=False)  # type: ignore[arg-type]
            for n in sorted(self.sessions)
        )
        return m.SessionsTold(number=asked.number, sessions=told, known=known)

    def _queue_told(self, asked: m.AskQueue) -> m.QueueTold:
        """All runs that wait are in the queue, except for the first."""

        def queue() -> tuple[QueuedRun, ...]:
            return tuple(QueuedRun(run=one.run, session=one.session) for one in list(self._waiting.values())[1:])

        pair = exchanged(queue(), asked.move) if asked.move is not None else None
        if pair is not None:
            names = list(self._waiting)
            first, second = map(names.index, pair)
            names[first], names[second] = names[second], names[first]
            self._waiting = {name: self._waiting[name] for name in names}
        return m.QueueTold(number=asked.number, runs=queue(), moved=pair is not None)

    def _begin(self, run: m.Submit) -> None:
        self.sessions.update({run.session} if run.session else ())
        seed = run.params.get("seed", 7)
        self._take(m.Accepted(run=run.run, seed=int(seed)))
        if seed == 13:
            self._waiting[run.run] = run
            self.waiting.put_nowait(run.run)
            return
        if seed == 14:
            error = ErrorInfo(code="numeric_error", message="`llm.velocity` is not finite", node="llm", port="velocity")
            self._take(m.Finished(run=run.run, error=error))
            return
        for name, index, value, modality in (
            ("preview", 0, m.Blob(data=PNG), "image"),
            ("image", 0, m.Blob(data=PNG), "image"),
            ("text", 0, m.Small(value="a red "), "text"),
            ("text", 1, m.Small(value="circle"), "text"),
        ):
            self._take(m.Output(run=run.run, name=name, index=index, value=value, modality=modality))
        ended = m.Finished(run=run.run, seconds=0.5, queued=0.1, times=TIMES)
        if seed == 15:
            played = m.Played(seconds=30.0, underruns=2, late=0.25)
            ended = msgspec.structs.replace(ended, loops=LOOPS, read=12, found=4, played=played)
        self._take(ended)


@dataclass
class FakeFleet:
    """Starts fake deployments; each is ready at once unless told otherwise."""

    ready: bool = True
    started: list[FakeDeployment] = field(default_factory=list)
    some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once one was started."""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever one is started."""
    directories: list[Path] = field(default_factory=list[Path])

    async def until(self, count: int) -> FakeDeployment:
        """The last one, once so many were started."""
        while len(self.started) < count:
            await self.more.wait()
        return self.started[count - 1]

    async def __call__(
        self,
        directory: Path,
        spec: DeploymentSpec,
        on_message: Callable[[m.FromConductor], None],
        on_exit: Callable[[int], None],
    ) -> FakeDeployment:
        found = FakeDeployment(spec, on_message, on_exit)
        self.started.append(found)
        self.directories.append(directory)
        self.some.set()
        self.more.set()
        self.more = asyncio.Event()
        if self.ready:
            found.ready()
        return found
