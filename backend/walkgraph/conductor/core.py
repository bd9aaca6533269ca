"""A conductor's core: events in, commands out. It knows topology, admission and failure, but no tensors and no steps of
loops.

service ──> Submit ──> Admission.admit ──> Start ──> ranks
ranks ──> Emit, Sent, LegResult, LegDone, RankDone, RankFailed, Suspended, Released, Probed ──> Runs
Runs ──> Output, Waits, Finished ──> service;  Extend ──> ranks
ranks' lives, Ready, Connected ──> Ranks ──> Spawn, Load, Peers, Ping, Kill
service ──> TakeUp ──> TakingUp ──> Load ──> ranks
"""

from collections.abc import Callable, Iterable
from typing import Literal

from walkgraph.conductor.events import (
    Command,
    Died,
    Event,
    Exit,
    FromRank,
    FromService,
    Parted,
    Spawned,
    Tell,
    Tick,
    ToRank,
    ToService,
)
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.ranks import Ranks
from walkgraph.conductor.runs.page_budget import PageBudget
from walkgraph.conductor.runs.requests import closed, judge
from walkgraph.conductor.runs.runs import Runs
from walkgraph.conductor.taking_up import ServedPlan, TakingUp, itineraries_of
from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

STOP_SECONDS = 2.0
"""Time that workers have to exit before they are killed."""
GAUGE_SECONDS = 1.0

State = Literal["starting", "ready", "degraded", "draining", "failed", "stopped"]


class Conductor:
    def __init__(
        self,
        itineraries: ItineraryCache,
        limits: Limits,
        draw_seed: Callable[[], int],
        name: str = "",
        read: Callable[[m.TakeUp], ItineraryCache] = itineraries_of,
    ) -> None:
        """`itineraries`: those of the graph and plan that are served first. `name`: the plan's name in telemetry;
        empty: the spec's. `read`: makes the itineraries of those that are taken up later."""
        self._limits, self._draw_seed = limits, draw_seed
        self.ranks = Ranks(itineraries.plan, limits, name)
        first = ServedPlan(itineraries, self.ranks, limits.running, name)
        self._taking = TakingUp(first, self.ranks, limits.running, read)
        self._draining = False
        self._failed: str | None = None
        self._stop_at: float | None = None
        self._status: m.Status | None = None
        self._gauged = 0.0
        self._runs_due = float("inf")
        self._gone = False

    @property
    def pages(self) -> PageBudget:
        return self._taking.served.pages

    @property
    def runs(self) -> Runs:
        return self._taking.served.runs

    def begin(self, now: float) -> list[Command]:
        return self._with_status(self.ranks.begin(now))

    def handle(self, event: Event, now: float) -> list[Command]:
        return self.handle_all((event,), now)

    def handle_all(self, events: Iterable[Event], now: float) -> list[Command]:
        """Handles several events; checks admission and status only once after them."""
        commands: list[Command] = []
        changes = False
        for event in events:
            if self._gone:
                continue
            commands += self._follow(event, now)
            # Neither an output nor an answer to a ping frees pages or changes the status.
            changes = changes or not (isinstance(event, FromRank) and isinstance(event.message, m.Emit | m.Pong))
        if not changes:
            return commands
        commands += self._taking.go_on()
        commands += self.runs.admission.admit(now)
        self._runs_due = self.runs.due()
        return self._with_status(commands)

    def _follow(self, event: Event, now: float) -> list[Command]:
        match event:
            case FromService(message=message):
                return self._from_service(message, now)
            case FromRank(message=m.Emit() as emit):
                return self._emitted(event, emit, now)
            case FromRank():
                return self._from_rank(event, now)
            case Spawned():
                self.ranks.spawned(event.rank, event.start, event.pid, now)
                return []
            case Parted():
                return self._parted(event.rank, event.start, now)
            case Died():
                return self._died(event, now)
            case Tick():
                return self._tick(now)

    def due(self) -> float:
        """Time of the next `Tick`, if no event comes before."""
        return min(self.ranks.due(), self._runs_due) if self._stop_at is None else self._stop_at

    # ── service ──

    def _from_service(self, message: m.ToConductor, now: float) -> list[Command]:
        match message:
            case m.Submit():
                return self._submit(message, now)
            case m.Abort():
                return self.runs.abort(message.run, message.reason, now)
            case m.TaskPiece():
                return self.runs.calls.piece(message)
            case m.TaskAnswer():
                return self.runs.calls.answer(message, now)
            case m.Steer():
                return self.runs.steer(message, now)
            case m.AskSessions():
                return self.runs.ask_sessions(message, now)
            case m.AskQueue():
                return [ToService(self.runs.table.tell_queue(message))]
            case m.Watch():
                served = self._taking.served
                served.watching.watch = message
                return [ToRank(rank.rank, message) for rank in served.plan.ranks if self.ranks.loaded(rank.rank)]
            case m.TakeUp():
                stopped = self._stop_at is not None or self._draining
                refused = "the deployment is being stopped" if stopped else self._failed
                return self._taking.begin(message, refused, now)
            case m.Drain():
                self._draining = True
                return []
            case m.Stop():
                return self._stop(now)

    def _submit(self, submit: m.Submit, now: float) -> list[Command]:
        if submit.run in self.runs.table:
            return []
        # A run that another waits for belongs to those that may finish, and is bounded by them.
        stopped = self._stop_at is not None or self._taking.ending
        draining = stopped or (self._draining and not submit.depth)
        judged = closed(submit.run, draining, self._failed)
        if judged is None:
            served = self._taking.served
            room = 1 if submit.depth else self._limits.queue - self.runs.table.waiting
            judged = judge(served.itineraries, submit, self._draw_seed(), room)
        if isinstance(judged, m.Rejected):
            return [ToService(judged)]
        return self.runs.accept(submit, judged, now)

    def _stop(self, now: float) -> list[Command]:
        if self._stop_at is not None:
            return []
        self._stop_at = now + STOP_SECONDS
        self.ranks.give_up()
        commands: list[Command] = [ToRank(rank, m.Stop()) for rank in self.ranks.alive]
        return [*self.runs.end_all("shutting_down", now), *commands, *self._leave_if_gone(now)]

    # ── ranks ──

    def _from_rank(self, event: FromRank, now: float) -> list[Command]:
        if not self.ranks.current(event.rank, event.start):
            return []
        commands = self.ranks.heard(event.rank, event.message, now)
        match event.message:
            case m.Ready() | m.LoadFailed():
                commands.extend(self._taking.loaded(event.rank, event.message, now))
            case m.Parted(peer=peer, start=start):
                commands.extend(self._parted(peer, start, now))
            case m.CallTask():
                commands.extend(self.runs.calls.ask(event.message, now))
            case m.Halted():
                commands.extend(self.runs.halted(event.message, now))
            case m.Sent():
                commands.extend(self.runs.outputs.sent(event.message, now))
            case m.LegResult() | m.LegDone() | m.RankDone():
                commands.extend(self.runs.rank_done(event.message, now))
            case m.RankFailed():
                commands.extend(self.runs.rank_failed(event.message, now))
            case m.Suspended():
                self.runs.admission.suspended(event.message)
            case m.Released():
                commands.extend(self.runs.endings.released(event.message, now))
            case m.Probed():
                commands.extend(self.runs.probed(event.message, now))
            case _:
                pass
        return commands

    def _emitted(self, event: FromRank, emit: m.Emit, now: float) -> list[Command]:
        if not self.ranks.current(event.rank, event.start):
            return []
        return [*self.ranks.heard(event.rank, emit, now), *self.runs.outputs.emit(emit, now)]

    def _parted(self, rank: Rank, start: int, now: float) -> list[Command]:
        """Handles the loss of the connection with a rank: its runs end now, whenever its process does."""
        killed = self.ranks.parted(rank, start)
        return [] if killed is None else [*killed, *self._rank_lost(rank, now)]

    def _rank_lost(self, rank: Rank, now: float) -> list[Command]:
        return [*self.runs.rank_lost(rank, now), *self._taking.rank_lost(rank, now)]

    def _died(self, event: Died, now: float) -> list[Command]:
        here = self.ranks.current(event.rank, event.start)
        killed = self.ranks.died(event, now)
        if killed is None:
            return []
        # One that was cut off is lost already.
        commands = [*killed, *(self._rank_lost(event.rank, now) if here else ())]
        reason = self.ranks.failure
        if reason is not None and self._failed is None:
            self._failed = reason
            commands.extend(self._taking.failed(reason))
            self.ranks.give_up()
            commands.extend(self.runs.end_all("refused", now, f"the deployment has failed: {reason}"))
            commands.extend(self.ranks.kill_all())
        return [*commands, *self._leave_if_gone(now)]

    def _leave_if_gone(self, now: float) -> list[Command]:
        if self._stop_at is None or self.ranks.alive:
            return []
        self._gone = True
        last = m.Status(state="stopped", ranks=self.ranks.status(), reason=self._failed)
        return [*self.runs.end_all("shutting_down", now), ToService(last), Exit()]

    # ── time ──

    def _tick(self, now: float) -> list[Command]:
        if self._stop_at is not None:
            if now < self._stop_at:
                return []
            self._stop_at = float("inf")
            return self.ranks.kill_all()
        commands = [*self.ranks.tick(now), *self.runs.tick(now)]
        if now - self._gauged >= GAUGE_SECONDS:
            self._gauged = now
            commands.append(Tell(self.runs.gauge(now)))
        return commands

    # ── status ──

    def _state(self, ranks: Iterable[m.RankStatus]) -> State:
        if self._failed is not None:
            return "failed"
        if self._draining or self._stop_at is not None:
            return "draining"
        if all(rank.state == "ready" for rank in ranks):
            return "ready"
        return "degraded" if self.ranks.were_ready else "starting"

    def _with_status(self, commands: list[Command]) -> list[Command]:
        """Puts a changed status before the other commands, so that a rank is reported ready before its runs start."""
        if any(isinstance(command, Exit) for command in commands):
            return commands
        ranks, table = self.ranks.status(), self.runs.table
        reason = self._failed or next((rank.reason for rank in ranks if rank.state != "ready" and rank.reason), None)
        waiting = table.waiting
        status = m.Status(
            state=self._state(ranks), ranks=ranks, running=len(table) - waiting, waiting=waiting, reason=reason
        )
        if status == self._status:
            return commands
        self._status = status
        return [ToService(status), *commands]
