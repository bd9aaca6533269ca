"""Live runs. Each keeps a log of its events, so that any number of clients can follow it from the start.

Finished runs can be followed while there is room; their rows in the store stay longer.
"""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import msgspec
import structlog

from walkgraph.errors import ErrorInfo, NotFound, WalkgraphError
from walkgraph.ids import RunId
from walkgraph.service.access.callers import Caller
from walkgraph.service.http import limits
from walkgraph.service.runs.glimpses import shortened, texts_of
from walkgraph.service.runs.kept_requests import KeptRequest, remembered
from walkgraph.service.runs.notifier import Notifier
from walkgraph.service.values import values
from walkgraph.service.values.stops import Cut
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.store.tables import Run
from walkgraph.telemetry.socket_times import ServiceTimes
from walkgraph.wire import messages as m
from walkgraph.wire.totals import joined_ends

Event = m.Accepted | m.Output | m.Asked | m.Decided | m.Finished
Sender = Callable[[m.ToConductor], None]
Listener = Callable[["LiveRun", Event | m.Rejected], None]

FREE_SECONDS = 0.05
"""Memory of a forgotten run is freed so much later. For large outputs that takes as long as to send them, and the
answer of the run that has just ended must not wait for it."""
SAVE_SECONDS = 0.2
"""Time between two writes: short runs are written once, after they have ended, not while they are served."""

_log = structlog.get_logger("walkgraph.runs")


def new_run_id() -> RunId:
    return RunId(secrets.token_hex(16))


def _to_nobody(message: m.ToConductor) -> None:
    """Takes what is sent to a run that is over."""


class LiveRun:
    """One run as the service knows it. Its log always ends with `Finished`."""

    def __init__(self, submit: m.Submit, deployment: str, send: Sender, heard: Listener | None = None) -> None:
        """`send` sends to the run's conductor. `heard` is called with each event before the run takes it."""
        self.id = submit.run
        self.part: RunId = submit.run
        """Its name for the conductor. Behind each approval it goes on under another one."""
        self.deployment = deployment
        self.task = submit.task
        self.params = submit.params
        self.said = shortened(texts_of(submit), " · ")
        """The start of its client's texts."""
        self.created_at = time.time()
        self._began = time.monotonic()
        self.times = ServiceTimes(self._began)
        self.seed: int | None = None
        self.session = submit.session
        self.priority, self.depth, self.salt = submit.priority, submit.depth, submit.salt
        self.calling: RunId | None = None
        """The run that called it; None for a client's."""
        self.recorded = submit.record
        self.paused: m.Paused | None = None
        """The last pause that the conductor reported; None if the run is not paused."""
        self.first_output_after: float | None = None
        """Time of the first output, in seconds since 1970."""
        self.finished: m.Finished | None = None
        self.waiting: m.Asked | None = None
        """The approval that it waits for; None if it doesn't."""
        self.request: m.Submit | None = None
        """The request of a run that will wait for a person."""
        self.asked: KeptRequest | None = None
        """The client's request."""
        self.parent = ""
        """The request's `traceparent`; empty if it had none."""
        self.caller: Caller | None = None
        """Who sent the request, or that of the run that called it; None if the service itself did."""
        self.bytes = 0
        """Bytes of its kept outputs."""
        self.counted = True
        """It counts among its caller's runs that are under way."""
        self.abandoned = False
        """True once the run was cancelled, or all of its clients left, before its end."""
        self.sufficed = False
        """True if it was ended early because its client needs no more of it."""
        self.early = False
        """True once it has a value that an answer may begin with."""
        self.cut: Cut | None = None
        """Cuts its text at the request's stop sequences; None if it has none."""
        self.unknown_words: tuple[str, ...] = ()
        """Words of its texts that a starter has not learned."""
        self.before: m.Finished | None = None
        """Its times up to the latest approval."""
        self.give_up: Callable[[], None] = lambda: None
        """Ends it while it waits for a person."""
        self._clients = 1
        self._send, self._heard = send, heard
        self.log: list[Event] = []
        """Its events so far."""
        self.counts: Counter[str] = Counter()
        """The outputs of each name, of a run that has waited for a person."""
        self._more, self._over, self._rests = Notifier(), Notifier(), Notifier()
        self._overflown = False

    @property
    def state(self) -> str:
        if self.waiting is not None:
            return "waiting"
        if self.finished is None:
            return "running"
        if self.finished.error is None:
            return "done"
        return "cancelled" if self.finished.error.code == "cancelled" else "failed"

    def take(self, event: Event | m.Rejected) -> None:
        """Appends an event from the conductor, or of its approvals. Nothing follows `Finished`."""
        if self.finished is not None:
            return
        event = _behind(self, event)
        if self._heard is not None:
            self._heard(self, event)
        match event:
            case m.Accepted():
                self.seed = event.seed
            case m.Output():
                if self.first_output_after is None:
                    self.first_output_after = self.age
                found = self._within(event)
                if found is None or not self._keeps(found):
                    return
                event = found
            case m.Rejected():
                event = m.Finished(run=self.id, error=event.error, seconds=self.age)
            case m.Finished() | m.Asked() | m.Decided():
                pass
        if isinstance(event, m.Finished):
            rest = self.cut.rest() if self.cut is not None else None
            if rest is not None and self._keeps(rest):
                self.log.append(rest)
            event = self.finished = self._ended(event)
            self.times.end(time.monotonic())
            # It is kept for long, and must not keep its deployment.
            self.paused, self._send = None, _to_nobody
        self.log.append(event)
        self._more.notify()
        if self.finished is not None:
            self._over.notify()
            self._rests.notify()

    def wait(self, asked: m.Asked, before: m.Finished) -> None:
        """Notes that it waits for a person. `before`: its times so far."""
        self.take(asked)
        self.waiting, self.before, self.paused = asked, before, None
        self.counts = Counter(output.name for output in self.outputs)
        self._rests.notify()

    def go_on(self, part: RunId, send: Sender, decided: m.Decided) -> None:
        """Notes that a person has answered, and a conductor has accepted its part behind the approval."""
        self.part, self._send, self.waiting, self._began = part, send, None, time.monotonic()
        self.take(decided)

    @property
    def age(self) -> float:
        """Seconds since its request; the wall clock may jump meanwhile."""
        return time.monotonic() - self._began

    def joined(self) -> Self:
        """Adds a client: the run goes on until this one has left too."""
        self._clients += 1
        return self

    def abort(self, reason: str = "cancelled") -> None:
        """Asks the conductor to end the run; the log ends when it has. `disconnected`, sent once by each client that
        leaves, ends the run only if no other client waits for it."""
        if reason == "disconnected":
            self._clients -= 1
            if self._clients > 0:
                return
            if self.waiting is not None or self.before is not None:
                return
        if self.waiting is not None:
            self.give_up()
        elif self.finished is None:
            self.abandoned = True
            with contextlib.suppress(WalkgraphError):
                self._send(m.Abort(run=self.part, reason="disconnected" if reason == "disconnected" else "cancelled"))

    def suffice(self) -> None:
        """Ends the run early because its client needs no more; the outputs so far are the answer."""
        if self.finished is None:
            self.sufficed = True
            with contextlib.suppress(WalkgraphError):
                self._send(m.Abort(run=self.part))

    def tell(self, message: m.Steer | m.TaskPiece | m.TaskAnswer) -> None:
        """Passes a message on to the conductor. Raises Overloaded if it has stopped reading."""
        self._send(msgspec.structs.replace(message, run=self.part) if isinstance(message, m.Steer) else message)

    async def after(self, position: int, seconds: float | None = None) -> Sequence[Event]:
        """The log from `position` on, once there is something there; empty after `seconds`."""
        if position >= len(self.log):
            await self._more.wait(seconds)
        self.times.answer(time.monotonic())
        return self.log[position:]

    async def follow(self) -> AsyncIterator[Event]:
        """All events from the start to `Finished`."""
        position = 0
        while True:
            for event in await self.after(position):
                position += 1
                yield event
                if isinstance(event, m.Finished):
                    return

    @property
    def resting(self) -> bool:
        """True if it has ended, or waits for a person."""
        return self.finished is not None or self.waiting is not None

    async def rests(self, seconds: float | None = None, *, early: bool = False) -> bool:
        """True once it rests, or with `early` has a value that an answer may begin with; False after `seconds`."""
        while not (self.resting or (early and self.early)):
            if not await self._rests.wait(seconds):
                return False
        self.times.answer(time.monotonic())
        return True

    async def ended(self) -> m.Finished:
        if self.finished is None:
            await self._over.wait()
        if self.finished is None:
            raise RuntimeError("a run's log ends with `Finished`")
        self.times.answer(time.monotonic())
        return self.finished

    @property
    def kept(self) -> int:
        """Bytes of its outputs and its request."""
        return self.bytes + (self.asked.bytes if self.asked else 0)

    @property
    def outputs(self) -> list[m.Output]:
        return [event for event in self.log if isinstance(event, m.Output)]

    def _within(self, output: m.Output) -> m.Output | None:
        """The output up to a stop sequence, which ends the run; None behind it."""
        if self.cut is None:
            return output
        found = self.cut.output(output)
        if self.cut.stopped and not self.sufficed:
            self.suffice()
        return found

    def _keeps(self, output: m.Output) -> bool:
        self.bytes += values.size_of(output.value)
        if self.bytes <= limits.RUN_OUTPUT_BYTES:
            if not self.early and values.is_early(output.value):
                self.early = True
                self._rests.notify()
            return True
        if not self._overflown:
            self._overflown = True
            self.abort()
        return False

    def _ended(self, event: m.Finished) -> m.Finished:
        if self.unknown_words:
            event = msgspec.structs.replace(event, unknown_words=self.unknown_words)
        if not self._overflown:
            return event if self.cut is None else self.cut.end(event)
        message = f"the outputs have more than {limits.RUN_OUTPUT_BYTES} bytes; ask for fewer"
        return msgspec.structs.replace(event, error=ErrorInfo(code="out_of_memory", message=message))


class Runs:
    """The live runs of all deployments. Writes their rows to the store."""

    def __init__(self, store: Store, heard: Listener | None = None) -> None:
        """`heard` is called with each event before its run takes it."""
        self._store, self._heard = store, heard
        self._runs: dict[RunId, LiveRun] = {}
        self._asked: dict[RunId, int] = {}
        """Bytes of each kept request, oldest first."""
        self._asked_bytes = 0
        self._over: dict[RunId, int] = {}
        """Bytes of the outputs of each finished run, in the order in which they ended."""
        self._over_bytes = 0
        self._unsaved: asyncio.Queue[LiveRun] = asyncio.Queue()
        self._saver: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def start(self) -> None:
        self._saver = asyncio.create_task(self._save())

    async def close(self) -> None:
        """Writes the remaining rows. No run may be added afterwards."""
        self._closing.set()
        if self._saver is None:
            return
        written = asyncio.ensure_future(self._unsaved.join())
        # If the saver was cancelled, the queue is never emptied.
        await asyncio.wait([written, self._saver], return_when=asyncio.FIRST_COMPLETED)
        for task in (written, self._saver):
            task.cancel()
        await asyncio.gather(written, self._saver, return_exceptions=True)

    def begin(self, submit: m.Submit, deployment: str, send: Sender) -> LiveRun:
        """Submits a run by `send` and keeps it. Raises whatever `send` raises."""
        run = LiveRun(submit, deployment, send, self._heard)
        send(submit)
        self.add(run)
        return run

    def add(self, run: LiveRun) -> None:
        self._runs[run.id] = run
        self._unsaved.put_nowait(run)

    def remember(self, run: LiveRun, body: dict[str, Any]) -> None:
        """Keeps the client's request, to replay the run."""
        run.asked = remembered(body)
        if run.id not in self._runs:
            return
        self._asked[run.id] = run.asked.bytes
        self._asked_bytes += run.asked.bytes
        while self._asked_bytes > limits.KEPT_ASKED_BYTES and next(iter(self._asked)) != run.id:
            self._forget_asked(self._runs[next(iter(self._asked))])

    def ended(self, run: LiveRun) -> None:
        """Must be called once, when the run's log is complete."""
        if run.caller is not None and not run.depth and run.counted:
            run.caller.meter.ended()
        self._unsaved.put_nowait(run)
        if run.id in self._runs:
            self._over[run.id] = run.bytes
            self._over_bytes += run.bytes
            self._forget_oldest()

    def save(self, run: LiveRun) -> None:
        """Writes its row: its state has changed."""
        self._unsaved.put_nowait(run)

    def get(self, id_: str) -> LiveRun | None:
        return self._runs.get(RunId(id_))

    def live(self, id_: str) -> LiveRun:
        found = self.get(id_)
        if found is None:
            advice = "it is unknown, or ended long ago; `/api/v1/runs` lists those that are remembered"
            raise NotFound(f"there is no run `{id_[:64]}` that can be followed: {advice}")
        return found

    def newest(
        self, stored: Sequence[Run], deployment: str | None, state: str | None, before: float, caller: str | None = None
    ) -> list[Run]:
        """Rows of the store, overridden by those of live runs, newest first: the store is written late, but a run is
        listed from the moment it is accepted. `caller`: only runs with that key."""
        rows = {row.id: row for row in stored}
        rows |= {run.id: row_of(run) for run in self._runs.values() if run.created_at < before}
        wanted = (
            row
            for row in rows.values()
            if deployment in (None, row.deployment) and state in (None, row.state) and caller in (None, row.caller)
        )
        return sorted(wanted, key=lambda row: row.created_at, reverse=True)

    @property
    def unfinished(self) -> list[LiveRun]:
        """Those that are neither over nor wait for a person."""
        return [run for run in self._runs.values() if run.finished is None and run.waiting is None]

    def _forget_oldest(self) -> None:
        """Drops the oldest finished runs until the rest is within the limits."""
        while self._over and (
            len(self._over) > limits.KEPT_RUNS or self._over_bytes + self._asked_bytes > limits.KEPT_OUTPUT_BYTES
        ):
            oldest = next(iter(self._over))
            self._over_bytes -= self._over.pop(oldest)
            forgotten = self._runs.pop(oldest)
            self._forget_asked(forgotten)
            asyncio.get_running_loop().call_later(FREE_SECONDS, _let_go, forgotten)

    def _forget_asked(self, run: LiveRun) -> None:
        """Drops a run's request. The run itself may live on under its Idempotency-Key."""
        self._asked_bytes -= self._asked.pop(run.id, 0)
        run.asked = run.asked.forgotten() if run.asked else None

    async def _save(self) -> None:
        """Writes rows behind the runs, gathered in one transaction: no run waits for the disk."""
        saved = 0
        while True:
            batch = [await self._unsaved.get()]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), SAVE_SECONDS)
            while not self._unsaved.empty():
                batch.append(self._unsaved.get_nowait())
            rows = [_columns(run) for run in {run.id: run for run in batch}.values()]
            try:
                await self._store.write(queries.save_runs, rows)
                saved += len(rows)
                if saved >= 1000:
                    saved = 0
                    await self._store.write(queries.prune_runs)
            except Exception as error:  # noqa: BLE001 (whatever it is, the rows that come next are written)
                _log.error("runs not recorded", count=len(rows), reason=str(error))
            finally:
                for _ in batch:
                    self._unsaved.task_done()


def _let_go(run: LiveRun) -> None:
    """Drops what is most likely the last reference to a run."""


def row_of(run: LiveRun) -> Run:
    return Run(**_columns(run))


def _columns(run: LiveRun) -> dict[str, Any]:
    """The columns of the run's row."""
    end = run.finished
    return {
        "id": run.id,
        "deployment": run.deployment,
        "task": run.task,
        "state": run.state,
        "created_at": run.created_at,
        "seconds": end.seconds if end else None,
        "queued": end.queued if end else None,
        "seed": run.seed,
        "params": _text(run.params),
        "error": _text(end.error) if end and end.error else None,
        "times": _text(end.times) if end else "[]",
        "caller": run.caller.key if run.caller else None,
    }


def _behind(run: LiveRun, event: Event | m.Rejected) -> Event | m.Rejected:
    """An event of a part behind an approval, as one of the whole run."""
    match event:
        case _ if run.before is None:
            return event
        case m.Output():
            run.counts[event.name] += 1
            return msgspec.structs.replace(event, run=run.id, index=run.counts[event.name] - 1)
        case m.Finished():
            return together(run.before, msgspec.structs.replace(event, run=run.id))
        case _:
            return event


def together(before: m.Finished, end: m.Finished) -> m.Finished:
    """The end of a run, with its times before an approval; the time that it waited doesn't count."""
    return msgspec.structs.replace(
        end,
        seconds=before.seconds + end.seconds,
        queued=before.queued + end.queued,
        times=(*before.times, *end.times),
        loops=joined_ends((*before.loops, *end.loops)),
        read=before.read + end.read,
        found=before.found + end.found,
        played=_all_played(before.played, end.played),
    )


def _all_played(before: m.Played | None, then: m.Played | None) -> m.Played | None:
    if before is None or then is None:
        return before or then
    return m.Played(
        seconds=before.seconds + then.seconds,
        underruns=before.underruns + then.underruns,
        late=before.late + then.late,
    )


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
