"""Decides which runs start or resume, and which are suspended for one of higher priority.

    waiting ──admit──> running ──one of higher priority lacks its pages──> suspending ──all suspended──> suspended
                          ^──────────────────────────────admit──────────────────────────────────────────────┘

A suspended run keeps its place in the order of arrival. A run that waits for a task that it has called is suspended for
any run that lacks pages, and doesn't come back before its calls are answered. So runs that wait hold up nobody, and
calls of calls always end: pages are kept only by runs that go on by themselves.
"""

from collections.abc import Callable
from typing import NamedTuple

from walkgraph.conductor.events import Command, ToRank
from walkgraph.conductor.replicas.choice import ReplicaChoice
from walkgraph.conductor.runs.endings import Endings
from walkgraph.conductor.runs.page_budget import Demand, PageBudget
from walkgraph.conductor.runs.priority import Holder, to_suspend
from walkgraph.conductor.runs.records import RunRecord, RunTable, run_error
from walkgraph.conductor.runs.sessions import Sessions
from walkgraph.conductor.runs.stalls import Stalls
from walkgraph.conductor.runs.steering import Steering
from walkgraph.ids import RunId
from walkgraph.placement.tables import Itinerary
from walkgraph.wire import messages as m


class AdmissionRules(NamedTuple):
    """The inputs of admission besides the runs."""

    most_running: int
    steps: Callable[[RunId, Itinerary], bool]
    """True if a run that starts now must be stepped."""


class Admission:
    def __init__(
        self,
        table: RunTable,
        pages: PageBudget,
        sessions: Sessions,
        steering: Steering,
        stalls: Stalls,
        endings: Endings,
        replicas: ReplicaChoice,
        rules: AdmissionRules,
    ) -> None:
        self._table, self._pages, self._sessions, self._steering = table, pages, sessions, steering
        self._stalls, self._endings, self._replicas, self._rules = stalls, endings, replicas, rules

    def admit(self, now: float) -> list[Command]:
        """Starts runs that fit and resumes suspended ones, in the order of `RunTable.queued`. A run
        that waits for pages holds back those behind it, so that it isn't starved, and suspends runs of lower priority;
        one that waits for its session or a rank does neither. Only the next run of a session that already holds all
        the pages it needs is not held back: the missing pages may be that session's."""
        commands: list[Command] = []
        waits = False
        """True once a run waits for pages."""
        for run in self._table.queued():
            if (waits and run.session is None) or not self._can_start(run):
                continue
            if run.state == "waiting" and not (self._has_place(run) and self._choose(run)):
                continue
            own, more, fault = self._needed(run)
            if fault is not None:
                commands.extend(self._endings.end(run, run_error("refused", fault), now))
            elif waits and own + more:
                continue
            elif not self._pages.fits(own + more):
                commands.extend(self._suspend_others(run, own + more))
                waits = True
            elif run.state == "suspended":
                commands.extend(self._resume(run, own, now))
            else:
                commands.extend(self._start(run, own, more, now))
        return commands

    def _has_place(self, run: RunRecord) -> bool:
        """True if one more run may be admitted. Runs that wait for tasks count against clients' runs only: the runs
        that they wait for must get a place."""
        running = self._table.active if run.submit.depth else self._table.running
        return running < self._rules.most_running

    def _choose(self, run: RunRecord) -> bool:
        """Chooses the replicas of a waiting run; False if it waits for ranks."""
        request = self._replicas.chosen(run, self._table.work)
        if request is not None:
            run.go(request)
        return request is not None

    def _can_start(self, run: RunRecord) -> bool:
        """True if a queued run waits for nothing but pages and ranks. False if an earlier run in this pass has ended
        it."""
        if run.state != "waiting":
            return run.state == "suspended" and not run.calls
        return run.session is None or self._sessions.free(run.session)

    def _needed(self, run: RunRecord) -> tuple[Demand, Demand, str | None]:
        """(its own pages, pages that its session needs beyond those it holds, why it can never start or None)."""
        if run.demand is None:
            run.demand = self._pages.demand(run.request.tokens, run.session is not None)
        own, lasting = run.demand
        if run.state == "suspended":
            return own, Demand(), None
        more = self._sessions.missing(run.session, lasting) if run.session is not None else lasting
        return own, more, self._never_fits(run, own, lasting)

    def suspended(self, message: m.Suspended) -> None:
        """Handles a rank's report that it has moved a run's states out of the way."""
        run = self._table.get(message.run)
        if run is not None and run.state == "suspending":
            run.away.add(message.rank)
            if run.holding <= run.away:
                self._pages.give(run.own)
                run.state, run.own = "suspended", Demand()
                self._table.queue(run)

    def _never_fits(self, run: RunRecord, own: Demand, lasting: Demand) -> str | None:
        """Why the run could not start even if nothing else ran; None if it could."""
        pool = self._pages.never_fits(own + lasting)
        if pool is not None:
            return (
                f"the run may need {(own + lasting)[pool]} cache pages on rank {pool[0]}, which has "
                f"{self._pages.size(pool)}; ask for less or give the rank more `memory`"
            )
        policy = run.request.session
        if run.session is None or policy is None or policy.max_bytes is None:
            return None
        kept = self._pages.bytes(self._sessions.held(run.session) | lasting)
        if kept <= policy.max_bytes:
            return None
        return f"the session may keep {kept} bytes and is given {policy.max_bytes}; ask for less or raise `max_bytes`"

    def _suspend_others(self, run: RunRecord, demand: Demand) -> list[Command]:
        """Suspends runs of lower priority, and those that wait for tasks, unless runs that are ending or being
        suspended free enough pages."""
        coming = Demand()
        for other in self._table:
            if other.state in ("restarting", "ending", "suspending"):
                coming.update(other.own)
        lacking = self._pages.lacking(demand, coming)
        holders = [
            Holder(other.id, other.submit.priority, other.started or 0.0, other.order, other.own, bool(other.calls))
            for other in self._table
            if other.state == "running"
        ]
        commands: list[Command] = []
        for name in to_suspend(lacking, run.submit.priority, holders):
            chosen = self._table[name]
            chosen.state, chosen.away = "suspending", set()
            commands += [ToRank(rank, m.Suspend(run=chosen.id)) for rank in sorted(chosen.holding)]
        return commands

    def _resume(self, run: RunRecord, own: Demand, now: float) -> list[Command]:
        self._pages.take(own)
        self._table.dequeue(run)
        run.state, run.own, run.heard = "running", own, now
        self._stalls.begin(now)
        return [ToRank(rank, m.Resume(run=run.id)) for rank in sorted(run.holding)]

    def _start(self, run: RunRecord, own: Demand, more: Demand, now: float) -> list[Command]:
        request = run.request
        self._pages.take(own + more)
        self._table.admit(run)
        run.own, run.started, run.heard = own, now, now
        self._stalls.begin(now)
        run.holding = set(request.itinerary.ranks)
        if run.session is not None:
            self._sessions.enter(run.session, run.id, request, more)
        self._replicas.begins(run)
        stepped = run.submit.record or run.hold or self._rules.steps(run.id, request.itinerary)
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
                    salt=run.submit.salt,
                    selected=run.submit.selected,
                ),
            )
            for rank in request.itinerary.ranks
        ]
        # A task without steps ends at once.
        over = [] if run.holding else self._endings.end(run, None, now)
        if run.hold and run.holding:
            self._steering.begin(run.id, now)
        passes = run.passes(request.itinerary.steps, now) if request.legs is not None else []
        return [*starts, run.phase("started", now), *passes, *over]
