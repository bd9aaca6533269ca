"""Runs that wait for a person: kept in the store until the person has answered, the time is up, or they are cancelled.

    Waits of a version ──> hold ──> store ──> event `approval`
    decide(approved) ──> Submit to the deployment's version ──> Accepted ──> event `decision`, out of the store
    decide(refused), the time is up, cancelled ──> Finished, out of the store

A run that waits holds nothing but its row and its events. It goes on in any version of its deployment with the same
graph. If the service dies between the start of the rest and the removal of the row, the run waits again.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import structlog

from walkgraph.errors import Conflict, ErrorCode, ErrorInfo, NotFound, Overloaded, Refused, WalkgraphError
from walkgraph.ids import RunId
from walkgraph.placement.tables import Decision
from walkgraph.service.access.callers import Caller
from walkgraph.service.access.keys import Keyring
from walkgraph.service.approvals import waiting_runs
from walkgraph.service.approvals.waiting_runs import Place
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Expired
from walkgraph.service.observe.hub import Hub
from walkgraph.service.runs.runs import LiveRun, Runs, together
from walkgraph.service.shutdown import Shutdown
from walkgraph.store import waiting as queries
from walkgraph.store.session import Store
from walkgraph.wire import messages as m

AGAIN_SECONDS = 30.0
"""After a row could not be removed, it is tried again."""
LOOK_SECONDS = 60.0
"""The longest sleep: the wall clock may have jumped meanwhile."""

_LATE = ErrorInfo(code="expired", message="nobody has approved the run in time; send it again")

_log = structlog.get_logger("walkgraph.approvals")


@dataclass(slots=True)
class _Waiting:
    run: LiveRun
    graph: str
    """Hash of its graph."""
    part: int
    """The number of approvals that a person has answered."""
    nbytes: int
    changing: asyncio.Lock
    """Held while it is answered or ended."""


class Approvals:
    def __init__(
        self,
        store: Store,
        runs: Runs,
        deployments: Deployments,
        keys: Keyring,
        hub: Hub,
        shutdown: Shutdown,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since 1970."""
        self._store, self._runs, self._deployments = store, runs, deployments
        self._keys, self._hub, self._shutdown, self._clock = keys, hub, shutdown, clock
        self._waiting: dict[RunId, _Waiting] = {}
        self._stale: dict[RunId, float] = {}
        """Runs whose row is still to be removed, with the time limit of the approval that is over."""
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes up the runs of the store."""
        for row in await self._store.read(queries.list_waiting):
            run = waiting_runs.restored(row)
            run.caller = self._keys.owner(row.caller)
            decided = sum(isinstance(event, m.Decided) for event in run.log)
            self._add(_Waiting(run, row.graph, decided, row.nbytes, asyncio.Lock()))
            self._runs.add(run)
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Ends the watch of time limits; what is being stored is stored first."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ── asked ───────────────────────────────────────────────────────────────────────────────────

    def refuse_if_full(self, caller: Caller | None) -> None:
        """Raises Overloaded if one more run of this caller must not wait."""
        own = self._own(caller)
        if len(own) >= limits.WAITING_RUNS:
            raise Overloaded(f"{len(own)} runs of this key wait for a person; answer or cancel some of them first")
        nbytes = sum(one.nbytes for one in own)
        if nbytes >= limits.WAITING_BYTES:
            raise Overloaded(f"runs of this key that wait for a person take {nbytes} bytes; answer some of them first")

    def hold(self, run: LiveRun, message: m.Waits, graph: str) -> None:
        """Keeps a run that has come to an approval; its clients are told once it is stored."""
        self._spawn(self._hold(run, message, graph))

    async def _hold(self, run: LiveRun, message: m.Waits, graph: str) -> None:
        now = self._clock()
        asked = m.Asked(run=run.id, approval=message.approval, at=now, expires_at=now + message.approval.within)
        before = message.end if run.before is None else together(run.before, message.end)
        part = sum(isinstance(event, m.Decided) for event in run.log)
        try:
            if run.request is None:
                raise Refused("a run that another one waits for can't ask a person")
            self.refuse_if_full(run.caller)
            row = waiting_runs.row_of(
                run, asked, graph, Place.of(run.request, run.seed, message.rest, before, part), before
            )
            if row.nbytes > limits.WAITING_RUN_BYTES:
                raise Overloaded(f"the run takes {row.nbytes} bytes while it waits, over {limits.WAITING_RUN_BYTES}")
            await self._store.write(queries.keep_waiting, row)
        except WalkgraphError as error:
            run.before = before
            self._over(run, error.info())
            return
        if run.caller is not None:
            run.caller.meter.ended()
        run.counted = False
        run.wait(asked, before)
        self._add(_Waiting(run, graph, part, row.nbytes, asyncio.Lock()))
        self._runs.save(run)
        _publish(self._hub, run)

    # ── answered ────────────────────────────────────────────────────────────────────────────────

    async def decide(self, run: LiveRun, decision: Decision, number: int | None = None) -> None:
        """Takes a person's answer; the same one again is ignored. `number`: the approval that is meant; None for the
        one that waits. Returns once the run goes on or has ended.

        Raises Conflict if it doesn't wait, or its deployment has another graph, Expired if the time is up, Unavailable
        if its deployment doesn't serve; and RunFailed or RateLimited, while the run goes on to wait, if the rest of it
        can't begin now.
        """
        self._shutdown.refuse_new()
        found = self._waiting.get(run.id)
        if found is None:
            self._answered_before(run, decision, number)
            return
        async with found.changing:
            asked = run.waiting
            if asked is None or number not in (None, asked.approval.number):
                self._answered_before(run, decision, number)
            elif self._clock() >= asked.expires_at:
                await self._end(found, _LATE)
                raise Expired("nobody had answered in time, and the run has ended; send the request again")
            elif decision.approved or asked.approval.goes_on:
                await self._go_on(found, asked, decision)
            else:
                await self._end(found, _refused(asked, decision))

    def _answered_before(self, run: LiveRun, decision: Decision, number: int | None) -> None:
        """Accepts an answer that repeats an earlier one. Raises Conflict or Expired."""
        earlier = [event for event in run.log if isinstance(event, m.Decided) and number in (None, event.number)]
        if earlier and (earlier[-1].approved, earlier[-1].note) == (decision.approved, decision.note):
            return
        code: ErrorCode | None = run.finished.error.code if run.finished is not None and run.finished.error else None
        if code == "not_approved" and not decision.approved:
            return
        if code == "expired":
            raise Expired("nobody had answered in time, and the run has ended; send the request again")
        raise Conflict(f"the run doesn't wait for this answer: it is {run.state}; look at it again")

    async def _go_on(self, found: _Waiting, asked: m.Asked, decision: Decision) -> None:
        run = found.run
        try:
            version = self._deployments.get(run.deployment).serving.asking
        except NotFound:
            message = (
                f"the deployment `{run.deployment}` is gone; deploy its graph under this name again, and answer then"
            )
            raise Conflict(message) from None
        if version.graph_hash != found.graph:
            message = (
                f"the deployment `{run.deployment}` has another graph than when the run began; deploy that one again"
            )
            raise Conflict(f"{message}, or refuse and send the request anew")
        if run.caller is not None:
            if not self._keys.holds(run.caller):
                raise Refused("the key of this run has ended; refuse it, and send the request with another key")
            run.caller.meter.admit()
        place = Place.read(await self._store.read(queries.place_of, run.id))
        number = asked.approval.number
        decided = m.Decided(run=run.id, number=number, approved=decision.approved, note=decision.note, at=self._clock())

        def begun() -> None:
            del self._waiting[run.id]
            if run.caller is not None:
                run.caller.meter.begun()
            run.counted = True
            run.request = place.submit
            self._runs.save(run)
            _publish(self._hub, run)

        await version.resume(run, place.behind(run.id, decision), decided, begun)
        await self._forget(run.id, asked.expires_at)

    # ── over ────────────────────────────────────────────────────────────────────────────────────

    def cancel(self, run: LiveRun) -> None:
        self._spawn(self._cancel(run))

    async def _cancel(self, run: LiveRun) -> None:
        found = self._waiting.get(run.id)
        if found is not None:
            async with found.changing:
                if run.waiting is not None:
                    run.abandoned = True
                    await self._end(found, ErrorInfo(code="cancelled", message="the run was cancelled"))

    def leave(self) -> None:
        """Tells the clients that follow a waiting run that the service ends; the run stays in the store."""
        message = "the service is shutting down; the run goes on to wait, follow it again once the service is back"
        error = ErrorInfo(code="shutting_down", message=message, retryable=True)
        for found in self._waiting.values():
            found.run.take(m.Finished(run=found.run.id, error=error))

    async def _end(self, found: _Waiting, error: ErrorInfo) -> None:
        """Ends a run that waits. Raises as the store does, while the run goes on to wait."""
        ends = found.run.waiting.expires_at if found.run.waiting is not None else 0.0
        await self._store.write(queries.end_waiting, {found.run.id: ends})
        del self._waiting[found.run.id]
        self._over(found.run, error)

    def _over(self, run: LiveRun, error: ErrorInfo) -> None:
        run.waiting = None
        run.take(m.Finished(run=run.id, error=error))
        self._runs.ended(run)
        self._deployments.run_ended(run)
        _publish(self._hub, run)

    async def _watch(self) -> None:
        """Ends runs whose time is up."""
        while True:
            now = self._clock()
            for found in [
                one for one in self._waiting.values() if one.run.waiting and one.run.waiting.expires_at <= now
            ]:
                async with found.changing:
                    if found.run.waiting is not None:
                        try:
                            await self._end(found, _LATE)
                        except WalkgraphError as error:
                            _log.error("waiting run not ended", run=found.run.id, reason=str(error))
            await self._remove_stale()
            ends = [one.run.waiting.expires_at for one in self._waiting.values() if one.run.waiting is not None]
            due = max(0.0, min(ends, default=now + 3600.0) - self._clock())
            late = any(end <= self._clock() for end in ends) or self._stale
            self._changed.clear()
            try:
                async with asyncio.timeout(AGAIN_SECONDS if late else min(due, LOOK_SECONDS)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _forget(self, run: RunId, expires_at: float) -> None:
        """Removes the row of an approval that is over. If that fails, it is tried again."""
        self._stale[run] = expires_at
        await self._remove_stale()

    async def _remove_stale(self) -> None:
        stale = dict(self._stale)
        if not stale:
            return
        try:
            await self._store.write(queries.end_waiting, stale)
            self._stale = {run: ends for run, ends in self._stale.items() if stale.get(run) != ends}
        except WalkgraphError as error:
            _log.error("rows of waiting runs not removed", count=len(stale), reason=str(error))
            self._changed.set()

    # ── helpers ─────────────────────────────────────────────────────────────────────────────────

    def _own(self, caller: Caller | None) -> list[_Waiting]:
        key = caller.key if caller is not None else None
        return [one for one in self._waiting.values() if (one.run.caller.key if one.run.caller else None) == key]

    def _add(self, found: _Waiting) -> None:
        run = found.run
        self._waiting[run.id] = found
        run.give_up = lambda: self.cancel(run)
        self._changed.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _refused(asked: m.Asked, decision: Decision) -> ErrorInfo:
    said = f": {decision.note}" if decision.note else ""
    question = f" `{asked.approval.label}`" if asked.approval.label else ""
    return ErrorInfo(code="not_approved", message=f"a person has refused{question}{said}")


def _publish(hub: Hub, run: LiveRun) -> None:
    seconds = run.finished.seconds if run.finished is not None else None
    frame = {"type": "run", "run": run.id, "task": run.task, "state": run.state, "seconds": seconds}
    hub.publish(run.deployment, frame)
