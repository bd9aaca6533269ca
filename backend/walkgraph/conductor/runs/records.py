"""Records of unfinished runs, and the queue of those that wait."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from walkgraph.conductor.events import Command, Tell
from walkgraph.conductor.queue_order import exchanged
from walkgraph.conductor.replicas.beginnings import Beginning
from walkgraph.conductor.runs.ordered_outputs import OrderedOutputs
from walkgraph.conductor.runs.page_budget import Demand
from walkgraph.conductor.runs.requests import Request
from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import StepPlan
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m
from walkgraph.wire.questions import QueuedRun

_ADMITTED = ("running", "suspending", "suspended")
_MESSAGES: dict[ErrorCode, str] = {
    "cancelled": "the run was cancelled",
    "deadline_exceeded": "the run's deadline has passed; give it a longer deadline or ask for less",
    "shutting_down": "the deployment is being stopped; send the request again once it is back",
    "worker_lost": "a worker of this deployment was lost; it is being started again, send the request again shortly",
}


@dataclass(slots=True)
class RunRecord:
    submit: m.Submit
    request: Request
    order: int
    """The run's number of arrival; a moved run has that of the run with which it exchanged places."""
    arrived: float
    state: Literal["waiting", "running", "suspending", "suspended", "restarting", "ending"] = "waiting"
    started: float | None = None
    demand: tuple[Demand, Demand] | None = None
    """(own, session's) pages that it may need; None until its ranks have reported their pools."""
    own: Demand = field(default_factory=Demand)
    """Pages promised to the run itself, without its session's."""
    holding: set[Rank] = field(default_factory=set[Rank])
    """Ranks that take part and have not released it."""
    away: set[Rank] = field(default_factory=set[Rank])
    """Ranks that have suspended it."""
    done: set[Rank] = field(default_factory=set[Rank])
    """Ranks that have ended it, or its leg while others follow."""
    calls: set[tuple[int, int, int, tuple[int, ...]]] = field(
        default_factory=set[tuple[int, int, int, tuple[int, ...]]]
    )
    """Calls of tasks that it waits for: rank, step, use, iteration."""
    called: bool = False
    """It has called a task."""
    emitted: Counter[str] = field(default_factory=Counter[str])
    left: set[Rank] = field(default_factory=set[Rank])
    """Ranks that have released it before it started again, and would drop what they get of it."""
    beginnings: tuple[Beginning, ...] | None = None
    """Those of its inputs; None until they are needed."""
    restarts: int = 0
    """The number of times that it has started again."""
    last: dict[str, m.Emit] = field(default_factory=dict[str, m.Emit])
    """The last values so far of outputs of which only that one is sent."""
    times: list[m.NodeTime] = field(default_factory=list[m.NodeTime])
    loops: list[m.LoopEnd] = field(default_factory=list[m.LoopEnd])
    kept: dict[str, m.Value] = field(default_factory=dict[str, m.Value])
    """Results that are kept while a person is asked, by the names of their inputs."""
    read: int = 0
    """Tokens read on the rank that read most; the other ranks read the same tokens, or what that one generated."""
    found: int = 0
    played: m.Played | None = None
    """The playback on the rank where it was latest: ranks before it hand on what that one sends."""
    error: ErrorInfo | None = None
    heard: float = 0.0
    """Time of the last message about it from or to a rank."""
    hold: bool = False
    """It starts paused."""
    finished: bool = False
    """True once the client has been sent `Finished`."""
    ordered: OrderedOutputs = field(init=False)

    def __post_init__(self) -> None:
        self.ordered = OrderedOutputs(self.request.itinerary.send_orders)

    def begin_anew(self) -> None:
        """Back to where it was before its admission."""
        self.state, self.started, self.demand, self.own = "waiting", None, None, Demand()
        self.away, self.done, self.last = set(), set(), {}
        self.times, self.loops, self.read, self.found, self.played = [], [], 0, 0, None
        self.ordered = OrderedOutputs(self.request.itinerary.send_orders)

    def go(self, request: Request) -> None:
        """Takes the request in another alternative of the plan."""
        if request is not self.request:
            self.request, self.demand, self.ordered = request, None, OrderedOutputs(request.itinerary.send_orders)

    @property
    def id(self) -> RunId:
        return self.submit.run

    @property
    def admitted(self) -> bool:
        """True if it was admitted and isn't ending."""
        return self.state in _ADMITTED

    @property
    def may_restart(self) -> bool:
        """True if nobody has seen anything of it, and it hasn't started again yet: a run that ends its workers must not
        end them all."""
        seen = self.emitted or self.called or self.submit.record
        return not (seen or self.restarts or self.session is not None or self.request.legs is not None)

    @property
    def session(self) -> str | None:
        return self.submit.session if self.request.session is not None else None

    @property
    def deadline(self) -> float:
        return float("inf") if self.submit.deadline is None else self.arrived + self.submit.deadline

    def phase(
        self,
        phase: Literal["queued", "started", "first_output", "finished"],
        now: float,
        error: ErrorInfo | None = None,
    ) -> Command:
        code = error.code if error else None
        return Tell(t.RunPhase(run=self.id, task=self.submit.task, phase=phase, at=now, error=code))

    def passes(self, steps: Sequence[StepPlan], now: float) -> list[Command]:
        """Reports the passes of the steps that its ranks get, if some are in loops."""
        found = tuple(step.passes for step in steps)
        return [Tell(t.RunPasses(run=self.id, first=steps[0].index, passes=found, at=now))] if any(found) else []


class RunTable:
    """All unfinished runs."""

    def __init__(self) -> None:
        self._runs: dict[str, RunRecord] = {}
        self._waiting: dict[str, RunRecord] = {}
        """Runs that wait for admission."""
        self._suspended: dict[str, RunRecord] = {}
        self._order = 0
        self.work = Counter[Rank]()
        """Tokens that admitted runs may yet keep, by rank."""

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self._runs.values())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of admitted runs, including suspended and ending ones."""
        return len(self._runs) - self.waiting

    @property
    def active(self) -> int:
        """Number of admitted runs that wait for no task they have called."""
        return self.running - sum(bool(run.calls) for run in self._runs.values())

    def __getitem__(self, run: str) -> RunRecord:
        return self._runs[run]

    def get(self, run: str) -> RunRecord | None:
        return self._runs.get(run)

    def admitted(self, run: str) -> RunRecord | None:
        """The run if it was admitted and isn't ending."""
        found = self._runs.get(run)
        return found if found is not None and found.admitted else None

    def add(self, submit: m.Submit, request: Request, now: float) -> RunRecord:
        self._order += 1
        run = RunRecord(submit, request, self._order, now, hold=submit.hold)
        self._runs[submit.run] = run
        self.queue(run)
        return run

    def queue(self, run: RunRecord) -> None:
        """Has a run wait, for its admission or, if it is suspended, to go on."""
        (self._suspended if run.state == "suspended" else self._waiting)[run.id] = run

    def dequeue(self, run: RunRecord) -> None:
        self._waiting.pop(run.id, None)
        self._suspended.pop(run.id, None)

    def admit(self, run: RunRecord) -> None:
        """A waiting run starts."""
        self.dequeue(run)
        run.state = "running"
        self.work.update(run.request.work)

    def leave(self, run: RunRecord, state: Literal["ending", "restarting"]) -> None:
        """A run waits or goes on no longer."""
        self.dequeue(run)
        if run.admitted:
            self.work.subtract(run.request.work)
        run.state = state

    def remove(self, run: RunRecord) -> None:
        del self._runs[run.id]

    def queued(self) -> list[RunRecord]:
        """Queued runs: higher priorities first, then those that others wait for, the deepest first, then in order of
        arrival."""
        queue = (*self._waiting.values(), *self._suspended.values())
        return sorted(queue, key=lambda run: (-run.submit.priority, -run.submit.depth, run.order))

    def tell_queue(self, asked: m.AskQueue) -> m.QueueTold:
        """Answers a question about the queue; moves a run in it before."""
        pair = exchanged(list(map(_queued, self.queued())), asked.move) if asked.move is not None else None
        if pair is not None:
            run, passed = self[pair[0]], self[pair[1]]
            run.order, passed.order = passed.order, run.order
        runs = tuple(map(_queued, self.queued()))
        return m.QueueTold(number=asked.number, runs=runs, moved=pair is not None)


def later(one: m.Played | None, other: m.Played | None) -> m.Played | None:
    """Returns the playback with more, or longer, interruptions."""
    found = [played for played in (one, other) if played is not None]
    return max(found, key=lambda played: (played.underruns, played.late, played.seconds), default=None)


def _queued(run: RunRecord) -> QueuedRun:
    submit, suspended = run.submit, run.state != "waiting"
    return QueuedRun(run=run.id, priority=submit.priority, depth=submit.depth, session=run.session, suspended=suspended)


def run_error(code: ErrorCode, message: str | None = None, rank: Rank | None = None) -> ErrorInfo:
    retryable = code in ("worker_lost", "shutting_down")
    return ErrorInfo(code=code, message=message or _MESSAGES[code], rank=rank, retryable=retryable)
