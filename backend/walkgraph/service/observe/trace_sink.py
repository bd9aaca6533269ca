"""Collects the deployments' telemetry and stores the traces of finished runs.

Slow work is done off the event loop, a few runs at a time: in a burst of short runs, traces wait or are dropped before
requests slow down.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence

import anyio.to_thread
import structlog

from walkgraph.errors import WalkgraphError
from walkgraph.ids import RunId
from walkgraph.service.observe.drafts import SWEEP_SECONDS, UNTOLD_SECONDS, Drafts, VersionDrafts
from walkgraph.service.runs.notifier import Notifier
from walkgraph.store import traces as kept
from walkgraph.store.session import Store
from walkgraph.store.tables import RunTrace
from walkgraph.telemetry import columns
from walkgraph.telemetry.assembling import assemble
from walkgraph.telemetry.events import Packet
from walkgraph.telemetry.keeping import Draft, Keeper
from walkgraph.telemetry.trace import Trace

TICK_SECONDS = 0.1
"""Time between two checks for finished runs."""
BATCH = 16
"""Traces that are made and written together."""
REST = 9.0
"""Pause after a batch, as a multiple of the time it took: traces take at most a tenth of the time."""
MAX_WAITING = 256
"""Finished runs whose traces are not stored yet; beyond it, the oldest are dropped."""
MAX_ENDED = 2 * MAX_WAITING
"""The same, with those whose last events may still come: a bound at every moment, however long a batch takes."""
SETTLE_SECONDS = 3.0
"""How long a request for the trace or recording of a run that has just ended waits for its last events."""

_log = structlog.get_logger("walkgraph.traces")


class TraceSink:
    """A telemetry sink that stores traces."""

    def __init__(self, store: Store, drafts: Drafts, keep: int, made: Callable[[Trace], None] | None = None) -> None:
        """`keep`: number of traces per deployment. `made` is called with each finished trace and must not wait."""
        self.given_up = 0
        """Runs whose trace was dropped because too many were waiting."""
        self._store, self._drafts, self._keep, self._made = store, drafts, keep, made
        self._some_end = asyncio.Event()
        self._told = Notifier()
        self._some_kept = asyncio.Event()
        """Set and replaced whenever traces were stored or dropped."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._tend(), name="traces")

    async def close(self) -> None:
        """Closes all open drafts and stores the remaining traces."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for version in self._drafts:
            for run in version.keeper.open:
                self._drafts.end_lost(version, run, self._drafts.clock())
            over = version.keeper.ending
            for at in range(0, len(over), BATCH):
                await self._store_some(version, over[at : at + BATCH])

    def take(self, packet: Packet, deployment: str, version: str, nbytes: int) -> None:
        keeper = self._drafts.take(packet, deployment, nbytes).keeper
        self._told.notify()
        if keeper.waiting:
            self._some_end.set()
        if keeper.waiting > MAX_ENDED:
            self._drop(keeper, keeper.ending[: keeper.waiting - MAX_ENDED])

    async def settled(self, *runs: RunId) -> None:
        """Waits until the traces of those that have finished are stored, for `SETTLE_SECONDS` at most."""
        while any(map(self._drafts.untold, runs)) and await self._told.wait(UNTOLD_SECONDS):
            pass
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while any(map(self._drafts.waits, runs)):
                    await self._some_kept.wait()

    async def _tend(self) -> None:
        clock = self._drafts.clock
        swept = clock()
        while True:
            try:
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._some_end.wait()
                await asyncio.sleep(TICK_SECONDS)
            except TimeoutError:
                pass
            now = clock()
            if now - swept >= SWEEP_SECONDS:
                swept = now
                self._drafts.sweep(now)
                if any(version.keeper.waiting for version in self._drafts):
                    self._some_end.set()
            began = clock()
            for version in self._drafts:
                await self._keep_some(version)
            await asyncio.sleep(REST * (clock() - began))
            if not any(version.keeper.waiting for version in self._drafts):
                self._some_end.clear()

    async def _keep_some(self, version: VersionDrafts) -> None:
        due = version.keeper.due(self._drafts.clock())
        self._drop(version.keeper, due[: max(0, len(due) - MAX_WAITING)])
        some = due[-MAX_WAITING:][:BATCH]
        if some:
            await self._store_some(version, some)

    def _drop(self, keeper: Keeper, runs: Sequence[RunId]) -> None:
        for run in runs:
            self.given_up += 1
            keeper.forget(run)

    async def _store_some(self, version: VersionDrafts, runs: Sequence[RunId]) -> None:
        drafts = [draft for run in runs if (draft := self._drafts.draft(version, run)) is not None]
        parents = [self._drafts.parent(draft.run) for draft in drafts]
        try:
            found = await anyio.to_thread.run_sync(_finish, drafts, parents, version.deployment)
            if self._made is not None:
                for trace, _ in found:
                    self._made(trace)
            if found:
                await self._store.write(kept.save_traces, [row for _, row in found], self._keep)
        except WalkgraphError as error:
            _log.error("traces not kept", count=len(drafts), reason=str(error))
        finally:
            for run in runs:
                version.keeper.forget(run)
            self._some_kept.set()
            self._some_kept = asyncio.Event()


def _finish(drafts: Sequence[Draft], parents: Sequence[str], deployment: str) -> list[tuple[Trace, RunTrace]]:
    found: list[tuple[Trace, RunTrace]] = []
    for draft, parent in zip(drafts, parents, strict=True):
        try:
            # The thread releases the interpreter between two parts: otherwise the event loop would get it only after
            # the switch interval of 5 ms.
            trace = assemble(draft, deployment, parent, os.sched_yield)
            found.append((trace, _row(trace, draft)))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A rank may have sent anything: a number that doesn't fit a column, rows of unequal length.
            _log.error("trace not made", run=draft.run, exc_info=error)
    return found


def _row(trace: Trace, draft: Draft) -> RunTrace:
    data = columns.encode(trace)
    recording = None
    if draft.recorded:
        recording = columns.encode_recording((one.sample, one.picked) for one in draft.recorded)
    return RunTrace(
        run=trace.run,
        deployment=trace.deployment,
        task=trace.task,
        state=trace.state,
        level=trace.level,
        created_at=trace.wall,
        seconds=trace.seconds,
        blocks=len(trace.blocks.started),
        nbytes=len(data) + len(recording or b""),
        recorded=recording is not None,
        trace=data,
        recording=recording,
    )
