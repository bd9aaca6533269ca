"""Ends runs: their ranks release them, their pages are freed, and their clients are notified once.

An ending run keeps its promised pages until every rank that took part has freed its own.
"""

from collections.abc import Iterable

from walkgraph.conductor.events import Command, ToRank, ToService
from walkgraph.conductor.runs.outputs import last_outputs
from walkgraph.conductor.runs.page_budget import PageBudget
from walkgraph.conductor.runs.records import RunRecord, RunTable
from walkgraph.conductor.runs.sessions import KEY, Sessions
from walkgraph.conductor.runs.steering import Steering
from walkgraph.conductor.runs.waiting import waits
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m


class Endings:
    def __init__(self, table: RunTable, pages: PageBudget, sessions: Sessions, steering: Steering) -> None:
        self._table, self._pages, self._sessions, self._steering = table, pages, sessions, steering

    def end(self, run: RunRecord, error: ErrorInfo | None, now: float) -> list[Command]:
        if run.state == "ending":
            return []
        self._table.leave(run, "ending")
        run.error = error
        finished = [] if error else self.finish(run, now)
        cancels: list[Command] = [ToRank(rank, m.Cancel(run=run.id)) for rank in sorted(run.holding)]
        return [*finished, *cancels, *self.settle(run, now)]

    def restart(self, run: RunRecord, now: float) -> list[Command]:
        """Has a run start again on other replicas, once the ranks that still hold it have released it."""
        self._table.leave(run, "restarting")
        run.restarts += 1
        cancels: list[Command] = [ToRank(rank, m.Cancel(run=run.id)) for rank in sorted(run.holding)]
        return [*cancels, *self.settle(run, now)]

    def settle(self, run: RunRecord, now: float) -> list[Command]:
        """Once no rank holds the run, frees its pages and removes it, or has it wait again."""
        if run.holding:
            return []
        self._pages.give(run.own)
        if run.state == "restarting":
            self._steering.forget(run.id)
            run.begin_anew()
            self._table.queue(run)
            return []
        if run.session is not None:
            self._sessions.leave(run.session, run.id, now)
            self.forget_sessions()
        self._table.remove(run)
        self._steering.forget(run.id)
        return self.finish(run, now)

    def finish(self, run: RunRecord, now: float) -> list[Command]:
        """Sends `Finished` to the client, once; `Waits` if the run goes on when a person has decided."""
        if run.finished:
            return []
        run.finished = True
        finished = m.Finished(
            run=run.id,
            error=run.error,
            seconds=now - run.arrived,
            queued=(now if run.started is None else run.started) - run.arrived,
            times=tuple(run.times),
            loops=_loops(run),
            read=run.read,
            found=run.found,
            played=run.played,
        )
        told = (waits(run, finished) if run.error is None else None) or finished
        last = last_outputs(run, now) if run.error is None else []
        return [*last, ToService(told), run.phase("finished", now, run.error)]

    def released(self, message: m.Released, now: float) -> list[Command]:
        """Handles a rank's report that it has freed a run or a session."""
        if message.run.startswith(KEY):
            freed = self._sessions.released(message.run.removeprefix(KEY), message.rank)
            if freed:
                self._pages.give(freed)
            return []
        run = self._table.get(message.run)
        if run is None or run.state not in ("restarting", "ending"):
            return []
        run.holding.discard(message.rank)
        run.left.add(message.rank)
        return self.settle(run, now)

    def free_sessions(self, sessions: Iterable[tuple[str, set[Rank]]]) -> list[Command]:
        """Frees the states of these sessions on these ranks."""
        commands: list[Command] = [
            ToRank(rank, m.Cancel(run=RunId(KEY + name))) for name, ranks in sessions for rank in sorted(ranks)
        ]
        self.forget_sessions()
        return commands

    def forget_sessions(self) -> None:
        for freed in self._sessions.take_gone():
            self._pages.give(freed)


def _loops(run: RunRecord) -> tuple[m.LoopEnd, ...]:
    """The ends of loops in Walks, as the ranks tell them, and of loops of steps."""
    legs = run.request.legs
    if legs is None or run.error is not None:
        return tuple(run.loops)
    steps = (
        m.LoopEnd(walk="", loop=name, iterations=ended.passes, reason=ended.reason)
        for name, ended in legs.ended.items()
    )
    return (*run.loops, *steps)
