"""Traces of running and finished runs, and the analyses and statistics made from them."""

import os
from collections import OrderedDict
from collections.abc import Sequence

import anyio.to_thread
import msgspec

from walkgraph.errors import NotFound
from walkgraph.ids import RunId
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.observe.drafts import Drafts
from walkgraph.service.observe.trace_sink import TraceSink
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.store import traces as kept
from walkgraph.store.session import Store
from walkgraph.store.tables import RunTrace
from walkgraph.telemetry import columns, statistics
from walkgraph.telemetry.assembling import assemble
from walkgraph.telemetry.critical import Why, why
from walkgraph.telemetry.events import Sample
from walkgraph.telemetry.keeping import Draft
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import Trace

PARTIALS = 400
"""Traces whose statistics are cached."""


class Traces:
    def __init__(self, store: Store, runs: Runs, deployments: Deployments, drafts: Drafts, sink: TraceSink) -> None:
        self._store, self._runs, self._deployments, self._drafts, self._sink = store, runs, deployments, drafts, sink
        self._partials: OrderedDict[str, statistics.Partial] = OrderedDict()
        """Statistics of stored traces, by run, least recently used first."""

    async def trace(self, run: str) -> Trace:
        """The trace of a run: complete if the run has ended, else so far. Raises NotFound."""
        await self._sink.settled(RunId(run))
        found = self._drafts.find(RunId(run))
        if found is not None:
            draft, deployment = found
            return await anyio.to_thread.run_sync(
                assemble, draft, deployment, self._drafts.parent(draft.run), os.sched_yield
            )
        stored = await self._kept(run)
        live = self._runs.get(run)
        if stored is not None:
            return _served(stored, live)
        if live is None:
            raise NotFound(
                f"no trace of the run `{run}` is kept: telemetry was off while it ran, or newer traces replaced it; "
                f"the deployment's `/traces` lists those that there are"
            )
        return _untold(live)

    async def recording(self, run: str) -> tuple[Sample, ...] | None:
        """The recorded values of a run in the order in which they were reported; all of them once it has ended. None if
        it was not recorded, or its recording is no longer stored."""
        await self._sink.settled(RunId(run))
        found = self._drafts.find(RunId(run))
        if found is not None:
            return await anyio.to_thread.run_sync(_whole, found[0]) or None
        data = await self._store.read(kept.get_recording, run)
        try:
            return None if data is None else await anyio.to_thread.run_sync(columns.decode_recording, data)
        except columns.Unreadable:
            return None

    async def listed(self, deployment: str, task: str | None, limit: int) -> Sequence[RunTrace]:
        """Stored traces, newest first, without their data. Those of runs that have just ended are waited for."""
        await self._sink.settled(*self._drafts.ended(deployment))
        return await self._store.read(kept.list_traces, deployment, task, limit)

    async def why(self, run: str) -> Why:
        """Analyses where the run's time went. Raises NotFound as `trace` does."""
        trace = await self.trace(run)
        return await anyio.to_thread.run_sync(why, trace, await self._places(trace))

    async def statistics(self, deployment: str, task: str | None, runs: int) -> statistics.Statistics:
        """Statistics over the newest stored traces."""
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
        """Places of a living version that has all of the trace's nodes; the run's own version may be gone."""
        versions = [version for version in self._deployments.versions() if version.id == trace.deployment]
        plans = [version.plan for version in versions if version.plan is not None]
        return await anyio.to_thread.run_sync(_fitting, trace, plans)


def _whole(draft: Draft) -> tuple[Sample, ...]:
    return tuple(recorded.whole() for recorded in draft.recorded)


def _fitting(trace: Trace, plans: Sequence[Plan]) -> Places | None:
    nodes = {node for lane in trace.lanes for node in lane.nodes}
    return next((places for places in map(Places.of, plans) if nodes <= places.nodes), None)


def _partial(trace: Trace, places: Places | None) -> statistics.Partial:
    return statistics.partial(trace, why(trace, places))


def _served(trace: Trace, live: LiveRun | None) -> Trace:
    """A stored trace with the answer's times by now: a slow client takes it later than the trace is stored."""
    if live is None or trace.served is None:
        return trace
    began = live.times.submitted - trace.served.submitted / 1e6
    return msgspec.structs.replace(trace, served=live.times.told(began))


def _untold(live: LiveRun) -> Trace:
    """An empty trace for a run without telemetry: it is off, or the run has just arrived."""
    seconds = live.finished.seconds if live.finished else live.age
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
        served=live.times.told(live.times.submitted),
    )
