"""Runs from admission to their end. Independent of what the ranks compute.

    waiting ──admit──> running ──all ranks done──> ending ──all released──> finished
       │  ^               ├──failed, aborted, late, a rank lost──^
       │  └──all released─┴─ restarting: a rank lost, nothing seen yet, other replicas ready
       └──aborted, late, shut down──> finished

A suspended run ends like a running one. Its client is notified when all ranks have released the run, or at once if it
succeeded or a worker was lost. Later messages about the run are dropped.
"""

from collections import Counter

from walkgraph.conductor.events import Command, ToRank, ToService
from walkgraph.conductor.replicas.choice import ReplicaChoice
from walkgraph.conductor.runs.admission import Admission, AdmissionRules
from walkgraph.conductor.runs.endings import Endings
from walkgraph.conductor.runs.ordered_outputs import OrderedOutputs
from walkgraph.conductor.runs.outputs import Outputs
from walkgraph.conductor.runs.page_budget import PageBudget
from walkgraph.conductor.runs.passed_calls import PassedCalls
from walkgraph.conductor.runs.records import RunRecord, RunTable, later, run_error
from walkgraph.conductor.runs.requests import Request
from walkgraph.conductor.runs.sessions import Sessions
from walkgraph.conductor.runs.stalls import QuietRun, Stalls
from walkgraph.conductor.runs.steering import Steering
from walkgraph.errors import ErrorCode, ErrorInfo, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m

_ABORTED: dict[str, ErrorCode] = {
    "cancelled": "cancelled",
    "disconnected": "cancelled",
    "deadline_exceeded": "deadline_exceeded",
}


class Runs:
    def __init__(self, pages: PageBudget, sessions: Sessions, replicas: ReplicaChoice, rules: AdmissionRules) -> None:
        self._pages, self._stalls, self.steering = pages, Stalls(), Steering()
        self.sessions, self._replicas, self.table = sessions, replicas, RunTable()
        self.outputs = Outputs(self.table)
        self.calls = PassedCalls(self.table, self._deadline, self._goes_on)
        self.endings = Endings(self.table, pages, self.sessions, self.steering)
        self.admission = Admission(
            self.table, pages, sessions, self.steering, self._stalls, self.endings, replicas, rules
        )

    def due(self) -> float:
        deadlines = [self._deadline(run) for run in self.table if self._is_timed(run)]
        return min(self.sessions.due(), self._stalls.due, *deadlines)

    def gauge(self, now: float) -> t.QueueGauge:
        promised, budget = self._pages.by_rank()
        table = self.table
        return t.QueueGauge(at=now, running=table.running, waiting=table.waiting, reserved=promised, budget=budget)

    # ── from the client ──

    def accept(self, submit: m.Submit, request: Request, now: float) -> list[Command]:
        commands = self._supersede(submit, request, now)
        run = self.table.add(submit, request, now)
        seed = int(request.params["seed"])
        paused = [ToService(m.Paused(run=run.id, held=()))] if run.hold else []
        return [*commands, ToService(m.Accepted(run=submit.run, seed=seed)), *paused, run.phase("queued", now)]

    def abort(self, name: str, reason: str, now: float) -> list[Command]:
        run = self.table.get(name)
        return self.endings.end(run, run_error(_ABORTED[reason]), now) if run else []

    def end_all(self, code: ErrorCode, now: float, reason: str | None = None) -> list[Command]:
        error = run_error(code, reason)
        return [command for run in list(self.table) for command in self.endings.end(run, error, now)]

    def steer(self, message: m.Steer, now: float) -> list[Command]:
        run = self.table.get(message.run)
        if run is None or run.state == "ending":
            return []
        if run.admitted:
            self._goes_on(run, now)
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
        waiting = Counter(run.session for run in self.table if run.session and run.state == "waiting")
        states = self.sessions.states(waiting, self._pages.bytes, now)
        return [ToService(m.SessionsTold(number=message.number, sessions=states, known=known))]

    # ── from the ranks ──

    def halted(self, message: m.Halted, now: float) -> list[Command]:
        run = self.table.admitted(message.run)
        if run is None or message.rank not in run.holding:
            return []
        run.heard = now
        return self.steering.halted(message, run.holding, now)

    def rank_done(self, message: m.LegResult | m.LegDone | m.RankDone, now: float) -> list[Command]:
        if isinstance(message, m.LegDone):
            return self._leg_done(message, now)
        run = self.table.admitted(message.run)
        if run is None or message.rank not in run.holding - run.done:
            return []
        run.heard = now
        if isinstance(message, m.LegResult):
            run.kept[message.name] = message.value
            return []
        run.done.add(message.rank)
        run.times.extend(message.times)
        run.loops.extend(message.loops)
        run.read, run.found = max((run.read, run.found), (message.read, message.found))
        run.played = later(run.played, message.played)
        return self.endings.end(run, None, now) if run.done == run.holding else []

    def _leg_done(self, message: m.LegDone, now: float) -> list[Command]:
        """Handles a rank's report that it has ended a leg. Once all have, the next leg begins: its pages are promised
        already."""
        run = self.table.admitted(message.run)
        if run is None or run.request.legs is None or message.rank not in run.holding - run.done:
            return []
        run.heard = now
        run.done.add(message.rank)
        if run.done != run.holding:
            return []
        if run.request.legs.approval is not None:
            return self.endings.end(run, None, now)
        run.done.clear()
        try:
            leg = run.request.legs.next(message.verdict)
        except WalkgraphError as error:
            return self.endings.end(run, error.info(), now)
        run.ordered = OrderedOutputs(leg.send_orders)
        extended = [ToRank(rank, m.Extend(run=run.id, leg=leg)) for rank in sorted(run.holding)]
        return [*extended, *run.passes(leg.steps, now)]

    def probed(self, message: m.Probed, now: float) -> list[Command]:
        commands: list[Command] = []
        for stalled, error in self._stalls.probed(message, now):
            run = self.table.get(stalled.run)
            if run is not None and self._quiet(run) == stalled:
                commands += self.endings.end(run, error, now)
        return commands

    def rank_failed(self, message: m.RankFailed, now: float) -> list[Command]:
        run = self.table.get(message.run)
        return self.endings.end(run, message.error, now) if run is not None and message.rank in run.holding else []

    def rank_lost(self, rank: Rank, now: float) -> list[Command]:
        """Handles the loss of a rank and its states: unfinished runs on it fail, and their clients are notified at
        once, unless they can start again."""
        commands: list[Command] = []
        self._stalls.rank_lost(rank, now)
        self._replicas.lost(rank)
        for run in [run for run in self.table if rank in run.holding]:
            run.holding.discard(rank)
            if not run.admitted:
                commands.extend(self.endings.settle(run, now))
            elif run.may_restart and not self.steering.paused(run.id) and self._replicas.has_another(run, rank):
                commands.extend(self.endings.restart(run, now))
            else:
                commands.extend(self.endings.end(run, run_error("worker_lost", rank=rank), now))
                commands.extend(self.endings.finish(run, now))
        for run in self.table:
            run.left.discard(rank)
        return [*commands, *self.endings.free_sessions(self.sessions.rank_lost(rank))]

    # ── time ──

    def tick(self, now: float) -> list[Command]:
        late = [run for run in self.table if self._is_timed(run) and now >= self._deadline(run)]
        commands = [
            command
            for run in late
            for command in self.endings.end(run, _too_late(paused=self.steering.paused(run.id)), now)
        ]
        commands += self.endings.free_sessions(self.sessions.expired(now))
        quiet = (self._quiet(run) for run in self.table)
        return [*commands, *self._stalls.tick((run for run in quiet if run is not None), now)]

    # ── inside ──

    def _quiet(self, run: RunRecord) -> QuietRun | None:
        """The run as one that should make progress; None if it is queued, suspended, paused or ending, or waits for a
        task."""
        if run.state != "running" or run.calls or self.steering.paused(run.id):
            return None
        return QuietRun(run.id, frozenset(run.holding), run.heard)

    def _goes_on(self, run: RunRecord, now: float) -> None:
        run.heard = now
        self._stalls.begin(now)

    def _is_timed(self, run: RunRecord) -> bool:
        """True if it has a deadline: of its own, or as it is paused."""
        timed = run.submit.deadline is not None or self.steering.paused(run.id)
        return timed and run.state != "ending"

    def _deadline(self, run: RunRecord) -> float:
        return self.steering.deadline(run.id, run.deadline)

    def _supersede(self, submit: m.Submit, request: Request, now: float) -> list[Command]:
        """Ends the waiting runs of a session that takes only the latest request."""
        if request.session is None or request.session.queue != "latest":
            return []
        message = "a newer request of the session replaced it"
        return [
            command
            for run in list(self.table)
            if run.state == "waiting" and run.session == submit.session
            for command in self.endings.end(run, run_error("cancelled", message), now)
        ]


def _too_late(*, paused: bool) -> ErrorInfo:
    if not paused:
        return run_error("deadline_exceeded")
    return run_error("deadline_exceeded", "the run was paused and not stepped for an hour; replay it")
