"""Runs from admission to their end. Knows which ranks take part, not what they compute.

    waiting ──admit──> running ──all ranks done──> ending ──all released──> finished
       │                  └──failed, aborted, late, a rank lost──^
       └──aborted, late, shut down──> finished

    running ──one of higher priority lacks its pages──> suspending ──all suspended──> suspended ──admit──> running

A run that is suspended keeps its place in the order of arrival, and ends like one that runs.

A run that ends keeps its promise of pages until every rank that took part has freed its own; its client is told then,
or at once when it ended well or a worker was lost. Whatever comes for a run that is over is dropped.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from walkgraph.conductor.events import Command, Tell, ToRank, ToService
from walkgraph.conductor.runs.pages import Demand, Pages
from walkgraph.conductor.runs.priority import Holder, to_suspend
from walkgraph.conductor.runs.requests import Request
from walkgraph.conductor.runs.sessions import KEY, Sessions
from walkgraph.conductor.runs.stalls import Quiet, Stalls
from walkgraph.conductor.runs.steering import Steering
from walkgraph.conductor.runs.turns import InTurn
from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Itinerary
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m

_ABORTED: dict[str, ErrorCode] = {
    "cancelled": "cancelled",
    "disconnected": "cancelled",
    "deadline_exceeded": "deadline_exceeded",
}
_ADMITTED = ("running", "suspending", "suspended")
_MESSAGES: dict[ErrorCode, str] = {
    "cancelled": "the run was cancelled",
    "deadline_exceeded": "the run's time was over; give it a longer deadline or ask for less",
    "shutting_down": "the deployment is being stopped; send the request again once it is back",
    "worker_lost": "a worker of this deployment was lost; it is being started again, send the request again shortly",
}


@dataclass(slots=True)
class _Run:
    submit: m.Submit
    request: Request
    order: int
    arrived: float
    state: Literal["waiting", "running", "suspending", "suspended", "ending"] = "waiting"
    started: float | None = None
    demand: tuple[Demand, Demand] | None = None
    """Pages it may need for itself and for its session, once its ranks have told what they have."""
    own: Demand = field(default_factory=Demand)
    """Pages promised to it alone."""
    holding: set[Rank] = field(default_factory=set[Rank])
    """Ranks that took part and haven't released it."""
    away: set[Rank] = field(default_factory=set[Rank])
    """Ranks that have suspended it."""
    done: set[Rank] = field(default_factory=set[Rank])
    emitted: Counter[str] = field(default_factory=Counter[str])
    times: list[m.NodeTime] = field(default_factory=list[m.NodeTime])
    loops: list[m.LoopEnd] = field(default_factory=list[m.LoopEnd])
    read: int = 0
    """By the rank that read most: the others read the same, or what it made."""
    found: int = 0
    error: ErrorInfo | None = None
    heard: float = 0.0
    """When a rank told something of it last, or was told."""
    hold: bool = False
    """It starts paused."""
    told: bool = False
    """The client has its `Finished`."""
    in_turn: InTurn = field(init=False)

    def __post_init__(self) -> None:
        self.in_turn = InTurn(self.request.itinerary.turns)

    @property
    def id(self) -> RunId:
        return self.submit.run

    @property
    def session(self) -> str | None:
        return self.submit.session if self.request.session is not None else None

    @property
    def deadline(self) -> float:
        return float("inf") if self.submit.deadline is None else self.arrived + self.submit.deadline


class Runs:
    def __init__(
        self,
        pages: Pages,
        ready: Callable[[Rank], bool],
        most_running: int,
        steps: Callable[[RunId, Itinerary], bool],
    ) -> None:
        """`steps`: whether a run that starts now must be stepped."""
        self._pages, self._ready, self._most, self._steps = pages, ready, most_running, steps
        self.steering = Steering()
        self.sessions = Sessions()
        self._stalls = Stalls()
        self._runs: dict[str, _Run] = {}
        self._queue: dict[str, _Run] = {}
        """Of these, those that wait, for the first time or suspended."""
        self._order = 0

    @property
    def waiting(self) -> int:
        return sum(run.state == "waiting" for run in self._queue.values())

    @property
    def running(self) -> int:
        """Those that were admitted, suspended and ending ones included."""
        return len(self._runs) - self.waiting

    def knows(self, run: str) -> bool:
        return run in self._runs

    def due(self) -> float:
        deadlines = (self._deadline(run) for run in self._runs.values() if run.state != "ending")
        return min(self.sessions.due(), self._stalls.due, min(deadlines, default=float("inf")))

    def gauge(self, now: float) -> t.QueueGauge:
        promised, budget = self._pages.by_rank()
        return t.QueueGauge(at=now, running=self.running, waiting=self.waiting, reserved=promised, budget=budget)

    # ── from the client ──

    def accept(self, submit: m.Submit, request: Request, now: float) -> list[Command]:
        commands = self._supersede(submit, request, now)
        self._order += 1
        run = _Run(submit, request, self._order, now, hold=submit.hold)
        self._runs[submit.run] = self._queue[submit.run] = run
        seed = int(request.params["seed"])
        paused = [ToService(m.Paused(run=run.id, held=()))] if run.hold else []
        return [*commands, ToService(m.Accepted(run=submit.run, seed=seed)), *paused, _phase(run, "queued", now)]

    def abort(self, name: str, reason: str, now: float) -> list[Command]:
        run = self._runs.get(name)
        return self._end(run, _error(_ABORTED[reason]), now) if run else []

    def end_all(self, code: ErrorCode, now: float, reason: str | None = None) -> list[Command]:
        error = _error(code, reason)
        return [command for run in list(self._runs.values()) for command in self._end(run, error, now)]

    def steer(self, message: m.Steer, now: float) -> list[Command]:
        run = self._runs.get(message.run)
        if run is None or run.state == "ending":
            return []
        if run.state != "waiting":
            run.heard = now
            self._stalls.begin(now)
            return self.steering.steer(message, run.holding, now)
        if message.action == "pause" and not run.hold:
            run.hold = True
            return [ToService(m.Paused(run=run.id, held=()))]
        if message.action == "resume" and run.hold:
            run.hold = False
            return [ToService(m.Resumed(run=run.id))]
        return []

    def ask_sessions(self, message: m.AskSessions, now: float) -> list[Command]:
        known = message.end is None or self.sessions.end(message.end)
        waiting = Counter(run.session for run in self._runs.values() if run.session and run.state == "waiting")
        told = self.sessions.told(waiting, self._pages.bytes, now)
        return [ToService(m.SessionsTold(number=message.number, sessions=told, known=known))]

    # ── from the ranks ──

    def halted(self, message: m.Halted, now: float) -> list[Command]:
        run = self._runs.get(message.run)
        if run is None or run.state not in _ADMITTED or message.rank not in run.holding:
            return []
        run.heard = now
        return self.steering.halted(message, run.holding, now)

    def emit(self, message: m.Emit, now: float) -> list[Command]:
        run = self._runs.get(message.run)
        if run is None or run.state not in _ADMITTED or message.name not in run.request.itinerary.outputs:
            return []
        run.heard = now
        return [command for one in run.in_turn.emit(message) for command in self._output(run, one, now)]

    def sent(self, message: m.Sent, now: float) -> list[Command]:
        run = self._runs.get(message.run)
        if run is None or run.state not in _ADMITTED:
            return []
        run.heard = now
        return [command for one in run.in_turn.sent(message.step) for command in self._output(run, one, now)]

    def _output(self, run: _Run, message: m.Emit, now: float) -> list[Command]:
        index = run.emitted[message.name]
        run.emitted[message.name] += 1
        output = m.Output(
            run=message.run,
            name=message.name,
            index=index,
            value=message.value,
            iteration=message.iteration,
            modality=message.modality,
        )
        first = [_phase(run, "first_output", now)] if run.emitted.total() == 1 else []
        return [ToService(output), *first]

    def rank_done(self, message: m.RankDone, now: float) -> list[Command]:
        run = self._runs.get(message.run)
        if run is None or run.state not in _ADMITTED or message.rank not in run.holding - run.done:
            return []
        run.heard = now
        run.done.add(message.rank)
        run.times.extend(message.times)
        run.loops.extend(message.loops)
        run.read, run.found = max((run.read, run.found), (message.read, message.found))
        return self._end(run, None, now) if run.done == run.holding else []

    def suspended(self, message: m.Suspended) -> None:
        run = self._runs.get(message.run)
        if run is not None and run.state == "suspending":
            run.away.add(message.rank)
            if run.holding <= run.away:
                self._pages.give(run.own)
                run.state, run.own = "suspended", Demand()
                self._queue[run.id] = run

    def probed(self, message: m.Probed, now: float) -> list[Command]:
        commands: list[Command] = []
        for stalled, error in self._stalls.probed(message, now):
            run = self._runs.get(stalled.run)
            if run is not None and self._quiet(run) == stalled:
                commands += self._end(run, error, now)
        return commands

    def rank_failed(self, message: m.RankFailed, now: float) -> list[Command]:
        run = self._runs.get(message.run)
        return self._end(run, message.error, now) if run is not None and message.rank in run.holding else []

    def released(self, message: m.Released, now: float) -> list[Command]:
        if message.run.startswith(KEY):
            freed = self.sessions.released(message.run.removeprefix(KEY), message.rank)
            if freed:
                self._pages.give(freed)
            return []
        run = self._runs.get(message.run)
        if run is None or run.state != "ending":
            return []
        run.holding.discard(message.rank)
        return self._settle(run, now)

    def rank_lost(self, rank: Rank, now: float) -> list[Command]:
        """All that it held is gone: runs that were not over end, and their clients know at once."""
        commands: list[Command] = []
        self._stalls.rank_lost(rank, now)
        for run in [run for run in self._runs.values() if rank in run.holding]:
            run.holding.discard(rank)
            if run.state in _ADMITTED:
                commands.extend(self._end(run, _error("worker_lost", rank=rank), now))
                commands.extend(self._tell(run, now))
            else:
                commands.extend(self._settle(run, now))
        for session, ranks in self.sessions.rank_lost(rank):
            commands.extend(_free_session(session, ranks))
        self._forget_sessions()
        return commands

    # ── time ──

    def tick(self, now: float) -> list[Command]:
        late = [run for run in self._runs.values() if run.state != "ending" and now >= self._deadline(run)]
        commands = [command for run in late for command in self._end(run, self._too_late(run), now)]
        for session, ranks in self.sessions.expired(now):
            commands.extend(_free_session(session, ranks))
        self._forget_sessions()
        quiet = (self._quiet(run) for run in self._runs.values())
        return [*commands, *self._stalls.tick((run for run in quiet if run is not None), now)]

    def admit(self, now: float) -> list[Command]:
        """Start what fits, and go on with what was suspended: higher priorities first, then in order of arrival. One
        that waits for pages holds back those behind it, so that it isn't starved, and lets those of lower priority be
        suspended; one that waits for its session or a rank doesn't."""
        commands: list[Command] = []
        for run in sorted(self._queue.values(), key=lambda run: (-run.submit.priority, run.order)):
            if run.state == "suspended" and run.demand is not None:
                if not self._pages.fits(run.demand[0]):
                    commands.extend(self._make_room(run, run.demand[0]))
                    break
                commands.extend(self._resume(run, run.demand[0], now))
                continue
            if run.state != "waiting":
                continue  # ended by one before it
            if not all(map(self._ready, run.request.itinerary.ranks)):
                continue
            if run.session is not None and not self.sessions.free(run.session):
                continue
            if self.running >= self._most:
                break
            if run.demand is None:
                session = run.session is not None
                run.demand = self._pages.demand(run.request.tokens, run.request.params, session)
            own, lasting = run.demand
            fault = self._never_fits(run, own, lasting)
            if fault is not None:
                commands.extend(self._end(run, _error("refused", fault), now))
                continue
            more = self.sessions.missing(run.session, lasting) if run.session is not None else lasting
            if not self._pages.fits(own + more):
                commands.extend(self._make_room(run, own + more))
                break
            commands.extend(self._start(run, own, more, now))
        return commands

    # ── inside ──

    def _quiet(self, run: _Run) -> Quiet | None:
        """None for one that isn't to make progress: it waits for its turn, for room or for who has paused it."""
        if run.state != "running" or self.steering.paused(run.id):
            return None
        return Quiet(run.id, frozenset(run.holding), run.heard)

    def _deadline(self, run: _Run) -> float:
        return self.steering.deadline(run.id, run.deadline)

    def _too_late(self, run: _Run) -> ErrorInfo:
        if not self.steering.paused(run.id):
            return _error("deadline_exceeded")
        return _error("deadline_exceeded", "the run was paused, and nobody stepped it for an hour; replay it")

    def _never_fits(self, run: _Run, own: Demand, lasting: Demand) -> str | None:
        """Why the run could not start even if nothing else ran."""
        pool = self._pages.never_fits(own + lasting)
        if pool is not None:
            return (
                f"the run may need {(own + lasting)[pool]} cache pages on rank {pool[0]}, which has "
                f"{self._pages.size(pool)}; ask for less or give the rank more `memory`"
            )
        policy = run.request.session
        if run.session is None or policy is None or policy.max_bytes is None:
            return None
        kept = self._pages.bytes(self.sessions.held(run.session) | lasting)
        if kept <= policy.max_bytes:
            return None
        return f"the session may keep {kept} bytes and is given {policy.max_bytes}; ask for less or raise `max_bytes`"

    def _make_room(self, run: _Run, demand: Demand) -> list[Command]:
        """Suspend runs of lower priority, unless what ends or is being suspended already gives enough."""
        coming = Demand()
        for other in self._runs.values():
            if other.state in ("ending", "suspending"):
                coming.update(other.own)
        lacking = self._pages.lacking(demand, coming)
        holders = [
            Holder(other.id, other.submit.priority, other.started or 0.0, other.order, other.own)
            for other in self._runs.values()
            if other.state == "running"
        ]
        commands: list[Command] = []
        for name in to_suspend(lacking, run.submit.priority, holders):
            chosen = self._runs[name]
            chosen.state, chosen.away = "suspending", set()
            commands += [ToRank(rank, m.Suspend(run=chosen.id)) for rank in sorted(chosen.holding)]
        return commands

    def _resume(self, run: _Run, own: Demand, now: float) -> list[Command]:
        self._pages.take(own)
        del self._queue[run.id]
        run.state, run.own, run.heard = "running", own, now
        self._stalls.begin(now)
        return [ToRank(rank, m.Resume(run=run.id)) for rank in sorted(run.holding)]

    def _start(self, run: _Run, own: Demand, more: Demand, now: float) -> list[Command]:
        request = run.request
        self._pages.take(own + more)
        del self._queue[run.id]
        run.own, run.state, run.started, run.heard = own, "running", now, now
        self._stalls.begin(now)
        run.holding = set(request.itinerary.ranks)
        if run.session is not None and request.session is not None:
            self.sessions.enter(run.session, request.session, run.id, more, request.itinerary.ranks)
        stepped = run.submit.record or run.hold or self._steps(run.id, request.itinerary)
        starts: list[Command] = [
            ToRank(
                rank,
                m.Start(
                    run=run.id,
                    itinerary=request.itinerary,
                    params=request.params,
                    inputs=request.inputs.get(rank, {}),
                    session=run.session,
                    priority=run.submit.priority,
                    stepped=stepped,
                    record=run.submit.record,
                    hold=run.hold,
                ),
            )
            for rank in request.itinerary.ranks
        ]
        # A task without a step has nothing to wait for.
        over = [] if run.holding else self._end(run, None, now)
        if run.hold and run.holding:
            self.steering.begin(run.id, now)
        return [*starts, _phase(run, "started", now), *over]

    def _end(self, run: _Run, error: ErrorInfo | None, now: float) -> list[Command]:
        if run.state == "ending":
            return []
        self._queue.pop(run.id, None)
        run.state, run.error = "ending", error
        told = [] if error else self._tell(run, now)
        cancels: list[Command] = [ToRank(rank, m.Cancel(run=run.id)) for rank in sorted(run.holding)]
        return [*told, *cancels, *self._settle(run, now)]

    def _settle(self, run: _Run, now: float) -> list[Command]:
        """When no rank holds anything of it, its pages are free and it is over."""
        if run.holding:
            return []
        self._pages.give(run.own)
        if run.session is not None:
            self.sessions.leave(run.session, run.id, now)
            self._forget_sessions()
        del self._runs[run.id]
        self.steering.forget(run.id)
        return self._tell(run, now)

    def _tell(self, run: _Run, now: float) -> list[Command]:
        if run.told:
            return []
        run.told = True
        finished = m.Finished(
            run=run.id,
            error=run.error,
            seconds=now - run.arrived,
            queued=(now if run.started is None else run.started) - run.arrived,
            times=tuple(run.times),
            loops=tuple(run.loops),
            read=run.read,
            found=run.found,
        )
        return [ToService(finished), _phase(run, "finished", now, run.error)]

    def _supersede(self, submit: m.Submit, request: Request, now: float) -> list[Command]:
        """Where a session takes the latest only, what still waits in it is ended."""
        if request.session is None or request.session.queue != "latest":
            return []
        message = "a newer request of the session took its place"
        return [
            command
            for run in list(self._runs.values())
            if run.state == "waiting" and run.session == submit.session
            for command in self._end(run, _error("cancelled", message), now)
        ]

    def _forget_sessions(self) -> None:
        for freed in self.sessions.take_gone():
            self._pages.give(freed)


def _free_session(name: str, ranks: Iterable[Rank]) -> list[Command]:
    return [ToRank(rank, m.Cancel(run=RunId(KEY + name))) for rank in sorted(ranks)]


def _error(code: ErrorCode, message: str | None = None, rank: Rank | None = None) -> ErrorInfo:
    retryable = code in ("worker_lost", "shutting_down")
    return ErrorInfo(code=code, message=message or _MESSAGES[code], rank=rank, retryable=retryable)


def _phase(
    run: _Run,
    phase: Literal["queued", "started", "first_output", "finished"],
    now: float,
    error: ErrorInfo | None = None,
) -> Command:
    code = error.code if error else None
    return Tell(t.RunPhase(run=run.id, task=run.submit.task, phase=phase, at=now, error=code))
