"""Live runs: each keeps the log of what it said, so that any number of clients can follow it from the start.

Finished runs stay followable while there is room; their rows in the store stay longer.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self, cast

import msgspec
import structlog

from walkgraph.errors import ErrorInfo, NotFound, WalkgraphError
from walkgraph.ids import RunId
from walkgraph.service.access.callers import Caller
from walkgraph.service.http import limits
from walkgraph.service.runs.kept_requests import KeptRequest, remembered
from walkgraph.service.runs.notifier import Notifier
from walkgraph.service.values import values
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.store.tables import Run
from walkgraph.wire import messages as m
from walkgraph.wire.answers import runs as answers

Event = m.Accepted | m.Output | m.Finished
Sender = Callable[[m.ToConductor], None]
Listener = Callable[["LiveRun", Event | m.Rejected], None]

SAVE_SECONDS = 0.2
"""Between two writes: short runs are written once, when they are over, and not while they are served."""

_log = structlog.get_logger("walkgraph.runs")


def new_run_id() -> RunId:
    return RunId(secrets.token_hex(16))


class LiveRun:
    """One run as this service knows it. Its log ends with `Finished`, always."""

    def __init__(self, submit: m.Submit, deployment: str, send: Sender, heard: Listener | None = None) -> None:
        """`send` reaches its conductor. `heard` is told of what the run takes, before it is."""
        self.id = submit.run
        self.deployment = deployment
        self.task = submit.task
        self.params = submit.params
        self.created_at = time.time()
        self.seed: int | None = None
        self.session = submit.session
        self.recorded = submit.record
        self.paused: m.Paused | None = None
        """As it was last told; None: it goes on."""
        self.first_output_at: float | None = None
        """When its first output came, in seconds since 1970."""
        self.finished: m.Finished | None = None
        self.asked: KeptRequest | None = None
        """What the client sent."""
        self.parent = ""
        """`traceparent` of that, where it had one."""
        self.caller: Caller | None = None
        """Who asked; None: the service itself."""
        self.bytes = 0
        """Kept outputs."""
        self.abandoned = False
        """All clients that it was for have left."""
        self.sufficed = False
        """It was ended because no more of it is wanted."""
        self._clients = 1
        self._send, self._heard = send, heard
        self._log: list[Event] = []
        self._more, self._over = Notifier(), Notifier()
        self._overflown = False

    @property
    def state(self) -> str:
        if self.finished is None:
            return "running"
        if self.finished.error is None:
            return "done"
        return "cancelled" if self.finished.error.code == "cancelled" else "failed"

    def take(self, event: Event | m.Rejected) -> None:
        """Append what the conductor said; nothing follows `Finished`."""
        if self.finished is not None:
            return
        if self._heard is not None:
            self._heard(self, event)
        match event:
            case m.Accepted():
                self.seed = event.seed
            case m.Output():
                self.first_output_at = self.first_output_at or time.time()
                if not self._keeps(event):
                    return
            case m.Rejected():
                event = m.Finished(run=self.id, error=event.error, seconds=time.time() - self.created_at)
            case m.Finished():
                pass
        if isinstance(event, m.Finished):
            event = self.finished = self._ended(event)
            self.paused = None
        self._log.append(event)
        self._more.notify()
        if self.finished is not None:
            self._over.notify()

    def joined(self) -> Self:
        """For one more client: it goes on until that has left too."""
        self._clients += 1
        return self

    def abort(self, reason: str = "cancelled") -> None:
        """Ask for the end; the log ends when it has come. A client that has left (`disconnected`) says so once, and
        ends what nobody else waits for."""
        if reason == "disconnected":
            self._clients -= 1
            if self._clients > 0:
                return
        if self.finished is None:
            self.abandoned = True
            with contextlib.suppress(WalkgraphError):
                self._send(m.Abort(run=self.id, reason="disconnected" if reason == "disconnected" else "cancelled"))

    def suffice(self) -> None:
        """Whoever asked has all that it wants: the rest needn't be made, and what was said stands as the answer."""
        if self.finished is None:
            self.sufficed = True
            with contextlib.suppress(WalkgraphError):
                self._send(m.Abort(run=self.id))

    def steer(self, message: m.Steer) -> None:
        """Raises Overloaded where the conductor has stopped reading."""
        self._send(message)

    async def after(self, position: int, seconds: float | None = None) -> Sequence[Event]:
        """All that was said from that place of the log on, once there is something; nothing after so many seconds."""
        if position >= len(self._log):
            await self._more.wait(seconds)
        return self._log[position:]

    async def follow(self) -> AsyncIterator[Event]:
        """Everything from the start to the end."""
        position = 0
        while True:
            for event in await self.after(position):
                position += 1
                yield event
                if isinstance(event, m.Finished):
                    return

    async def over(self, seconds: float) -> bool:
        """Whether it has ended, after so long at most."""
        return self.finished is not None or await self._over.wait(seconds)

    async def ended(self) -> m.Finished:
        if self.finished is None:
            await self._over.wait()
        if self.finished is None:
            raise RuntimeError("a run's log ends with `Finished`")
        return self.finished

    @property
    def kept(self) -> int:
        """Bytes, of outputs and of what was asked."""
        return self.bytes + (self.asked.bytes if self.asked else 0)

    @property
    def outputs(self) -> list[m.Output]:
        return [event for event in self._log if isinstance(event, m.Output)]

    def _keeps(self, output: m.Output) -> bool:
        self.bytes += values.size_of(output.value)
        if self.bytes <= limits.RUN_OUTPUT_BYTES:
            return True
        if not self._overflown:
            self._overflown = True
            self.abort()
        return False

    def _ended(self, event: m.Finished) -> m.Finished:
        if not self._overflown:
            return event
        message = f"the outputs have more than {limits.RUN_OUTPUT_BYTES} bytes; ask for fewer"
        return msgspec.structs.replace(event, error=ErrorInfo(code="out_of_memory", message=message))


class Runs:
    """The live runs of all deployments, and their way into the store."""

    def __init__(self, store: Store, heard: Listener | None = None) -> None:
        """`heard` is told of what each run takes, before it is."""
        self._store, self._heard = store, heard
        self._runs: dict[RunId, LiveRun] = {}
        self._asked: dict[RunId, int] = {}
        """Bytes of what was asked, where that is remembered; the oldest first."""
        self._asked_bytes = 0
        self._over: dict[RunId, int] = {}
        """Bytes of outputs of those that have ended, in that order."""
        self._over_bytes = 0
        self._unsaved: asyncio.Queue[LiveRun] = asyncio.Queue()
        self._saver: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def start(self) -> None:
        self._saver = asyncio.create_task(self._save())

    async def close(self) -> None:
        """Write what is left. No run may be added afterwards."""
        self._closing.set()
        if self._saver is None:
            return
        written = asyncio.ensure_future(self._unsaved.join())
        # Where all tasks were cancelled, nobody is left who would write.
        await asyncio.wait([written, self._saver], return_when=asyncio.FIRST_COMPLETED)
        for task in (written, self._saver):
            task.cancel()
        await asyncio.gather(written, self._saver, return_exceptions=True)

    def begin(self, submit: m.Submit, deployment: str, send: Sender) -> LiveRun:
        """Hand a run over by `send`, and keep it. Raises what `send` does."""
        run = LiveRun(submit, deployment, send, self._heard)
        send(submit)
        self.add(run)
        return run

    def add(self, run: LiveRun) -> None:
        self._runs[run.id] = run
        self._unsaved.put_nowait(run)

    def remember(self, run: LiveRun, body: dict[str, Any]) -> None:
        """What its client sent."""
        run.asked = remembered(body)
        if run.id not in self._runs:
            return
        self._asked[run.id] = run.asked.bytes
        self._asked_bytes += run.asked.bytes
        while self._asked_bytes > limits.KEPT_ASKED_BYTES and next(iter(self._asked)) != run.id:
            self._forget_asked(self._runs[next(iter(self._asked))])

    def ended(self, run: LiveRun) -> None:
        """To be called once a run's log is complete, and only then."""
        if run.caller is not None:
            run.caller.meter.ended()
        self._unsaved.put_nowait(run)
        if run.id in self._runs:
            self._over[run.id] = run.bytes
            self._over_bytes += run.bytes
            self._forget_oldest()

    def get(self, id_: str) -> LiveRun | None:
        return self._runs.get(RunId(id_))

    def live(self, id_: str) -> LiveRun:
        found = self.get(id_)
        if found is None:
            advice = "it was never here, or is over since long; `/api/v1/runs` lists those that are remembered"
            raise NotFound(f"there is no run `{id_[:64]}` that can be followed: {advice}")
        return found

    def newest(
        self, stored: Sequence[Run], deployment: str | None, state: str | None, before: float, caller: str | None = None
    ) -> list[Run]:
        """Rows of the store with those of live runs over them, newest first: the store is written behind, a run is
        listed from the moment that it is answered. `caller`: those with that key alone."""
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
        return [run for run in self._runs.values() if run.finished is None]

    def _forget_oldest(self) -> None:
        """Of those that have ended, until the rest has room."""
        while self._over and (
            len(self._over) > limits.KEPT_RUNS or self._over_bytes + self._asked_bytes > limits.KEPT_OUTPUT_BYTES
        ):
            oldest = next(iter(self._over))
            self._over_bytes -= self._over.pop(oldest)
            self._forget_asked(self._runs.pop(oldest))

    def _forget_asked(self, run: LiveRun) -> None:
        """Of a run that others may hold for longer: for those who ask again with its key."""
        self._asked_bytes -= self._asked.pop(run.id, 0)
        run.asked = run.asked.forgotten() if run.asked else None

    async def _save(self) -> None:
        """Write-behind, all that has gathered in one transaction: no run waits for the disk."""
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


def row_of(run: LiveRun) -> Run:
    return Run(**_columns(run))


def _columns(run: LiveRun) -> dict[str, Any]:
    """Of its row."""
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


def public(row: Run, live: LiveRun | None) -> answers.Run:
    """`live`: of the run, while it can be followed."""
    error = msgspec.json.decode(row.error) if row.error else None
    return answers.Run(
        **row.model_dump(exclude={"params", "error", "times"}),
        params=msgspec.json.decode(row.params),
        error=error,
        times=msgspec.json.decode(row.times),
        paused=paused_of(live) if live else None,
    )


def paused_of(run: LiveRun) -> answers.Paused | None:
    """What it is paused before."""
    if run.paused is None:
        return None
    held = [cast(answers.Held, _plain(call)) for call in run.paused.held]
    return answers.Paused(held=held, breakpoint=run.paused.breakpoint)


def event_of(event: Event, frames: list[bytes] | None = None) -> tuple[str, dict[str, Any]]:
    """(name, JSON object) of what a follower is told. `frames`: as of `values.write`."""
    match event:
        case m.Accepted():
            return "accepted", {"run": event.run, "seed": event.seed}
        case m.Output():
            value = values.write(event.value, event.modality, frames)
            where = {"run": event.run, "name": event.name, "index": event.index, "iteration": event.iteration}
            return "output", {**where, "value": value}
        case m.Finished():
            times = [_plain(time_) for time_ in event.times]
            figures: dict[str, Any] = {
                "run": event.run,
                "seconds": event.seconds,
                "queued": event.queued,
                "times": times,
            }
            figures["usage"] = usage_of(event)
            if event.error is None:
                return "done", figures
            return "error", {**figures, "error": _plain(event.error)}


def usage_of(end: m.Finished) -> dict[str, Any]:
    """What a run read, what of it was found in caches, and how its loops ended."""
    return {"read": end.read, "found": end.found, "loops": [_plain(loop) for loop in end.loops]}


def result_of(run: LiveRun, frames: list[bytes] | None = None) -> dict[str, Any]:
    """The whole answer of a run that is done: texts and sounds joined, other values in their order. `frames`: as of
    `values.write`."""
    pieces: dict[str, list[m.Output]] = {}
    for output in run.outputs:
        pieces.setdefault(output.name, []).append(output)
    outputs = {
        name: [
            values.write(value, made[0].modality, frames) for value in values.joined([output.value for output in made])
        ]
        for name, made in pieces.items()
    }
    end = run.finished
    return {
        "run": run.id,
        "deployment": run.deployment,
        "task": run.task,
        "seed": run.seed,
        "outputs": outputs,
        "seconds": end.seconds if end else None,
        "queued": end.queued if end else None,
        "times": [_plain(time_) for time_ in end.times] if end else [],
        "usage": usage_of(end) if end else None,
    }


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(record)
    fields.pop("type", None)
    return fields


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
