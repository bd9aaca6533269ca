"""Traces of runs: made from what their deployments tell, kept once they are over.

Everything that takes long is done off the event loop, a few runs at a time: a burst of short runs waits, or loses
traces, before it slows down what answers clients.
"""

import asyncio
import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio.to_thread
import structlog

from walkgraph.errors import NotFound, WalkgraphError
from walkgraph.ids import RunId
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.versions import Version
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.store import traces as kept
from walkgraph.store.session import Store
from walkgraph.store.tables import RunTrace
from walkgraph.telemetry import columns, statistics
from walkgraph.telemetry.assembling import assemble
from walkgraph.telemetry.critical import Why, why
from walkgraph.telemetry.events import Packet, Sample
from walkgraph.telemetry.keeping import Draft, Keeper
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import Trace

TICK_SECONDS = 0.1
"""Between two looks at runs that are over."""
SWEEP_SECONDS = 1.0
"""Between two looks at runs that may be over without their conductor's word."""
BATCH = 16
"""Traces made and written in one go."""
REST = 9.0
"""How much longer than making a batch took nothing is made: traces get a tenth of the time, whatever comes."""
MAX_WAITING = 256
"""Runs that are over and not kept; the oldest of more are given up."""
SETTLE_SECONDS = 3.0
"""What a recording that is asked for right after its run's end waits for the values that are still on their way."""
PARTIALS = 400
"""Traces whose figures are remembered, so that they need not be read again."""
IDLE_SECONDS = 60.0
"""A version that is gone, and has told nothing for so long, is forgotten."""

_log = structlog.get_logger("walkgraph.traces")


@dataclass(slots=True)
class _Version:
    deployment: str
    keeper: Keeper
    heard: float
    """When it told something last."""
    suspects: dict[RunId, float] = field(default_factory=dict[RunId, float])
    """Runs that the service has seen the end of, and since when; their conductor has not told it."""


class Traces:
    """A sink of telemetry."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        deployments: Deployments,
        keep: int,
        made: Callable[[Trace], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keep`: traces of one deployment. `made` is called with that of each run that is over, and must not wait."""
        self.given_up = 0
        """Runs whose trace was not kept, as there were too many at once."""
        self._store, self._runs, self._deployments, self._keep, self._clock = store, runs, deployments, keep, clock
        self._made = made
        self._versions: dict[str, _Version] = {}
        self._partials: OrderedDict[str, statistics.Partial] = OrderedDict()
        """Of kept traces that were asked for."""
        self._some_end = asyncio.Event()
        self._some_kept = asyncio.Event()
        """Set, and replaced, whenever traces were kept, or given up."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._tend(), name="traces")

    async def close(self) -> None:
        """Keep the traces of the runs that are over, by now all."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for version in self._versions.values():
            for run in version.keeper.open:
                self._end_lost(version, run, self._clock())
            over = version.keeper.ending
            for at in range(0, len(over), BATCH):
                await self._store_some(version, over[at : at + BATCH])

    def take(self, packet: Packet, deployment: str, version: str, nbytes: int) -> None:
        now = self._clock()
        found = self._versions.get(packet.deployment)
        if found is None:
            plans = [known.plan for known in self._versions_of(deployment) if known.label == packet.deployment]
            keeper = Keeper(Places.of(plans[0]) if plans and plans[0] else Places())
            found = self._versions[packet.deployment] = _Version(deployment, keeper, now)
        found.heard = now
        found.keeper.take(packet, nbytes, now)
        if found.keeper.ending:
            self._some_end.set()

    # ── what is asked ───────────────────────────────────────────────────────────────────────────

    async def trace(self, run: str) -> Trace:
        """Of a run that goes on, or is over, then whole. Raises NotFound."""
        await self._settled(RunId(run))
        found = self._draft(RunId(run))
        if found is not None:
            draft, deployment = found
            return await anyio.to_thread.run_sync(assemble, draft, deployment, self._parent(draft.run), os.sched_yield)
        stored = await self._kept(run)
        if stored is not None:
            return stored
        live = self._runs.get(run)
        if live is None:
            raise NotFound(
                f"no trace of the run `{run}` is kept: telemetry was off while it ran, or newer traces took its place; "
                f"the deployment's `/traces` lists those that there are"
            )
        return _untold(live)

    async def recording(self, run: str) -> tuple[Sample, ...] | None:
        """The values of a run that was recorded, in the order they were told: all of them once it is over. None for
        one that was not, or whose recording is not kept any more."""
        await self._settled(RunId(run))
        found = self._draft(RunId(run))
        if found is not None:
            return await anyio.to_thread.run_sync(_whole, found[0]) or None
        data = await self._store.read(kept.get_recording, run)
        try:
            return None if data is None else await anyio.to_thread.run_sync(columns.decode_recording, data)
        except columns.Unreadable:
            return None

    async def listed(self, deployment: str, task: str | None, limit: int) -> Sequence[RunTrace]:
        """Kept ones, newest first; without their bytes."""
        return await self._store.read(kept.list_traces, deployment, task, limit)

    async def why(self, run: str) -> Why:
        """Raises NotFound as `trace` does."""
        trace = await self.trace(run)
        return await anyio.to_thread.run_sync(why, trace, await self._places(trace))

    async def statistics(self, deployment: str, task: str | None, runs: int) -> statistics.Statistics:
        """Over the newest traces that are kept."""
        names = [row.run for row in await self.listed(deployment, task, runs)]
        for name in names:
            if name in self._partials:
                self._partials.move_to_end(name)
                continue
            trace = await self._kept(name)
            if trace is not None:
                self._partials[name] = await anyio.to_thread.run_sync(_partial, trace, await self._places(trace))
        found = [self._partials[name] for name in names if name in self._partials]
        while len(self._partials) > PARTIALS:
            self._partials.popitem(last=False)
        return await anyio.to_thread.run_sync(statistics.over, found)

    async def _kept(self, run: str) -> Trace | None:
        try:
            data = await self._store.read(kept.get_trace, run)
            return await anyio.to_thread.run_sync(columns.decode, data)
        except (NotFound, columns.Unreadable):
            return None

    async def _places(self, trace: Trace) -> Places | None:
        """Of the version that has them all; its own may be gone."""
        plans = [version.plan for version in self._versions_of(trace.deployment) if version.plan is not None]
        return await anyio.to_thread.run_sync(_fitting, trace, plans)

    def _versions_of(self, deployment: str) -> list[Version]:
        return [
            version
            for managed in self._deployments.listed()
            if managed.id == deployment
            for version in managed.versions
        ]

    def _draft(self, run: RunId) -> tuple[Draft, str] | None:
        for version in self._versions.values():
            draft = self._drafted(version, run)
            if draft is not None:
                return draft, version.deployment
        return None

    def _drafted(self, version: _Version, run: RunId) -> Draft | None:
        draft, live = version.keeper.draft(run, self._clock()), self._runs.get(run)
        if draft is None or live is None:
            return draft
        # Where telemetry is off, a recorded run has told its values, and nothing else.
        seen = self._seen(live)
        began = draft.began if draft.phases.keys() - {"finished"} else min(draft.began, *seen.values())
        return replace(draft, task=live.task, began=began, seen=seen)

    def _seen(self, live: LiveRun) -> dict[str, float]:
        """The phases of a run that is over as this service has seen them, by the clock of events."""
        end, queued = live.finished, live.created_at - (time.time() - self._clock())
        if end is None:
            return {}
        seen = {"queued": queued, "finished": queued + end.seconds}
        if end.queued < end.seconds:
            seen["started"] = queued + end.queued
        if live.first_output_at is not None:
            seen["first_output"] = queued + min(live.first_output_at - live.created_at, end.seconds)
        return seen

    # ── keeping ─────────────────────────────────────────────────────────────────────────────────

    async def _tend(self) -> None:
        swept = self._clock()
        while True:
            try:
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._some_end.wait()
                await asyncio.sleep(TICK_SECONDS)
            except TimeoutError:
                pass
            now = self._clock()
            if now - swept >= SWEEP_SECONDS:
                swept = now
                self._sweep(now)
            began = self._clock()
            for version in list(self._versions.values()):
                await self._keep_some(version)
            await asyncio.sleep(REST * (self._clock() - began))
            if not any(version.keeper.ending for version in self._versions.values()):
                self._some_end.clear()

    async def _keep_some(self, version: _Version) -> None:
        due = version.keeper.due(self._clock())
        for run in due[: max(0, len(due) - MAX_WAITING)]:
            self.given_up += 1
            version.keeper.forget(run)
        some = due[-MAX_WAITING:][:BATCH]
        if some:
            await self._store_some(version, some)

    async def _store_some(self, version: _Version, runs: Sequence[RunId]) -> None:
        drafts = [draft for run in runs if (draft := self._drafted(version, run)) is not None]
        parents = [self._parent(draft.run) for draft in drafts]
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

    async def _settled(self, run: RunId) -> None:
        """Wait until the trace of a run that is over is kept."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while self._over(run):
                    await self._some_kept.wait()

    def _over(self, run: RunId) -> bool:
        """And not kept yet."""
        live = self._runs.get(run)
        ended = live is not None and live.finished is not None
        keepers = [version.keeper for version in self._versions.values() if run in version.keeper]
        return any(ended or run in keeper.ending for keeper in keepers)

    def _parent(self, run: RunId) -> str:
        live = self._runs.get(run)
        return live.parent if live else ""

    def _sweep(self, now: float) -> None:
        """A conductor that died has told no end of its runs: the service has seen it."""
        for label, version in list(self._versions.items()):
            gone = all(known.label != label for known in self._versions_of(version.deployment))
            suspects: dict[RunId, float] = {}
            for run in version.keeper.open:
                live = self._runs.get(run)
                if live is None or live.finished is not None:
                    suspects[run] = version.suspects.get(run, now)
                    if now - suspects[run] >= SWEEP_SECONDS:
                        self._end_lost(version, run, suspects.pop(run))
            version.suspects = suspects
            idle = now - version.heard > IDLE_SECONDS and not version.keeper.open and not version.keeper.ending
            if gone and idle:
                del self._versions[label]

    def _end_lost(self, version: _Version, run: RunId, at: float) -> None:
        live = self._runs.get(run)
        error = live.finished.error if live and live.finished else None
        ended_well = live is not None and live.finished is not None and error is None
        if live is not None:
            at = self._seen(live).get("finished", at)
        version.keeper.close(run, at, None if ended_well else error.code if error else "worker_lost")
        self._some_end.set()


def _finish(drafts: Sequence[Draft], parents: Sequence[str], deployment: str) -> list[tuple[Trace, RunTrace]]:
    found: list[tuple[Trace, RunTrace]] = []
    for draft, parent in zip(drafts, parents, strict=True):
        try:
            # Between two of its parts a thread lets go of the interpreter: the event loop would get it only after the
            # 5 ms for which a thread may keep it.
            trace = assemble(draft, deployment, parent, os.sched_yield)
            found.append((trace, _row(trace, draft)))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A rank may have told anything: a number without a place in a column, rows of unequal length.
            _log.error("trace not made", run=draft.run, exc_info=error)
    return found


def _whole(draft: Draft) -> tuple[Sample, ...]:
    return tuple(recorded.whole() for recorded in draft.recorded)


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


def _fitting(trace: Trace, plans: Sequence[Plan]) -> Places | None:
    nodes = {node for lane in trace.lanes for node in lane.nodes}
    return next((places for places in map(Places.of, plans) if nodes <= places.nodes), None)


def _partial(trace: Trace, places: Places | None) -> statistics.Partial:
    return statistics.partial(trace, why(trace, places))


def _untold(live: LiveRun) -> Trace:
    """Of a run that nothing was told of: telemetry is off, or it has only just come."""
    seconds = live.finished.seconds if live.finished else time.time() - live.created_at
    return Trace(
        run=live.id,
        deployment=live.deployment,
        task=live.task,
        state=live.state,
        level="off",
        wall=live.created_at,
        seconds=seconds,
        phases={},
        error=live.finished.error.code if live.finished and live.finished.error else None,
        parent=live.parent,
    )
