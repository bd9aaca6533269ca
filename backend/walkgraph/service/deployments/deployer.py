"""What is wanted is in the store; the deployer brings it about and keeps it so.

create   judge, write the wanted state, start            (nothing is started, or written, that can't be deployed)
switch   judge beside what runs, then hand over to `switching`; another switch takes the place of one under way.
         Sessions end with the version that holds them.
delete   forget the wanted state, drain, stop, whatever versions there are, remove their folders
"""

import asyncio
import contextlib
import time
from typing import Any

import anyio.to_thread

from walkgraph.errors import Conflict, InvalidInput, NotFound, Overloaded, RunFailed
from walkgraph.placement.tables import Plan
from walkgraph.service.access.auditing import Act, own, recorded
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.folders import Folders
from walkgraph.service.deployments.judging import Judged, deployable, judge
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deployments.switching import Switching
from walkgraph.service.deployments.versions import Around, Documents, Spawn
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.observe.hub import Hub
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.service.shutdown import Shutdown
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.store.keys import add_entries
from walkgraph.store.session import Store
from walkgraph.store.tables import Deployment
from walkgraph.wire import messages as m

_NO_SPACE = frozenset({"does_not_fit", "device_full"})


class Deployer:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        runs: Runs,
        hub: Hub,
        deployments: Deployments,
        shutdown: Shutdown,
        spawn: Spawn,
        telemetry_address: str | None = None,
    ) -> None:
        """`spawn` starts deployment processes, which tell their telemetry at `telemetry_address`."""
        self._settings, self._store, self._runs, self._hub = settings, store, runs, hub
        self._deployments, self._shutdown = deployments, shutdown
        self._folders = Folders(settings.home)
        around = Around(
            settings, spawn, runs, hub, shutdown, deployments.plans, deployments.run_ended, telemetry_address
        )
        self._switching = Switching(around, self._folders, store, shutdown)

    # ── wanted state ────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Bring back everything that is wanted. Returns at once; each deployment shows how far it is."""
        rows = await self._store.read(queries.list_deployments)
        await anyio.to_thread.run_sync(self._folders.sweep, [row.id for row in rows])
        for row in rows:
            self._keep(row.id, Documents.of(row), row.created_at, None)

    async def create(
        self, id_: str, graph_name: str, graph: Any, placement_name: str, placement: Any | None, act: Act | None = None
    ) -> Managed:
        """Raises Unprocessable with every problem, Conflict for an id that is taken. `act`: None, the service's own."""
        async with self._switching.changing:
            self._shutdown.refuse_new()
            if id_ in self._deployments:
                raise Conflict(f"there is a deployment `{id_}` already; replace it (`PUT`), or choose another name")
            judged = await self._judge(graph, placement, self._deployments.plans())
            documents = Documents(graph_name, graph, placement_name, judged.placement_document)
            row = documents.row(id_, time.time())
            # In this order: what ends in between leaves a version more, not a deployment that nobody started.
            await self._store.write(queries.add_version, "graph", graph_name, row.graph_text, f"deployed as {id_}")
            entry = _of(act or own("deployment.create", id_), documents, row).entry("done")
            await self._store.write(recorded, entry, queries.add_deployment, row)
            return self._keep(id_, documents, row.created_at, judged)

    async def switch(
        self,
        id_: str,
        graph_name: str,
        graph: Any,
        placement_name: str,
        placement: Any | None,
        grace: float,
        act: Act | None = None,
    ) -> Managed:
        """Make these documents the next version; returns once it is starting. A next version that was getting ready is
        stopped. The old one's runs may finish for `grace` seconds once the new one serves.

        Raises Unprocessable with every problem; the memory of the version that serves counts as taken.
        """
        async with self._switching.changing:
            managed = self._changeable(id_)
            judged = await self._judge_beside(managed, graph, placement)
            documents = Documents(graph_name, graph, placement_name, judged.placement_document)
            row = documents.row(id_, managed.created_at)
            act = _of(act or own("deployment.replace", id_), documents, row)
            note = f"deployed as {id_}"
            await self._store.write(
                recorded, act.entry("begun"), queries.add_version, "graph", graph_name, row.graph_text, note
            )
            self._switching.prepare(managed, documents, judged, grace, act)
            return managed

    async def restart(self, id_: str, grace: float, act: Act | None = None) -> Managed:
        """A switch to the documents that serve now. Raises as `switch` does."""
        async with self._switching.changing:
            managed = self._changeable(id_)
            documents = managed.serving.documents
            judged = await self._judge_beside(managed, documents.graph, documents.placement)
            act = _of(act or own("deployment.restart", id_), documents, documents.row(id_, managed.created_at))
            await self._store.write(add_entries, [act.entry("begun")])
            self._switching.prepare(managed, documents, judged, grace, act)
            return managed

    async def forget_next(self, id_: str) -> None:
        """Give a switch up, or take note of why it failed. Raises NotFound where there is none."""
        async with self._switching.changing:
            managed = self._changeable(id_)
            version, managed.next, managed.changing = managed.next, None, None
            if version is None:
                raise NotFound(f"no new version of the deployment `{id_}` is under way")
            self._switching.give_up(managed, version)

    async def delete(self, id_: str, grace: float, act: Act | None = None) -> None:
        """Forget it, let its runs finish for up to `grace` seconds, stop it."""
        async with self._switching.changing:
            managed = self._deployments.get(id_)
            if not managed.deleted:
                entry = (act or own("deployment.delete", id_)).entry("done")
                await self._store.write(recorded, entry, queries.delete_deployment, id_)
            managed.deleted = True
        await self._switching.stop(managed, grace)
        async with self._switching.changing:
            if self._deployments.holds(managed):
                await anyio.to_thread.run_sync(self._folders.remove, id_)
                self._deployments.remove(managed)

    async def close(self, grace: float) -> None:
        """Stop all, still wanted."""
        self._shutdown.begin()
        # What was begun before may still start a version; what comes after is refused.
        async with self._switching.changing:
            managed = self._deployments.listed()
        await asyncio.gather(*(self._switching.stop(found, grace) for found in managed))
        await self.settled()

    async def settled(self) -> None:
        """Returns once no switch is under way, and no former version ends."""
        await self._switching.settled()

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, managed: Managed, submit: m.Submit) -> LiveRun:
        """Hand a run over. Raises Unavailable where it isn't serving, Overloaded where its queue is full."""
        self._shutdown.refuse_new()
        self.refuse_if_full(managed)
        return managed.serving.submit(submit)

    def refuse_if_full(self, managed: Managed) -> None:
        """Raises Overloaded where its queue is."""
        unfinished = len(managed.serving.runs)
        if unfinished >= self._settings.queue_limit:
            raise Overloaded(f"the deployment `{managed.id}` has {unfinished} unfinished runs; try again shortly")

    async def drain(self, seconds: float) -> None:
        """Take nothing new; returns when no run is unfinished. After `seconds` the rest ends with `shutting_down`."""
        self._shutdown.begin()
        self._shutdown.closing.set()
        waits = [asyncio.create_task(_ended(run)) for run in self._runs.unfinished]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for task in late:
                task.cancel()
        # While their clients are still connected: they are told why.
        for managed in self._deployments.listed():
            for version in managed.versions:
                version.runs.lose(shutting_down=True)
            # Who waits for its next change waits no longer.
            managed.announce()

    # ── how ─────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, id_: str, documents: Documents, created_at: float, judged: Judged | None) -> Managed:
        managed = Managed(id_, created_at, self._settings.telemetry, self._hub, self._shutdown)
        self._switching.first(managed, documents, judged)
        self._deployments.add(managed)
        return managed

    async def _judge(self, graph: Any, placement: Any, reserved: list[Plan]) -> Judged:
        judged = await anyio.to_thread.run_sync(judge, graph, placement, reserved, self._settings.checkpoint_roots)
        deployable(judged)
        return judged

    async def _judge_beside(self, managed: Managed, graph: Any, placement: Any) -> Judged:
        replaced = managed.next.plan if managed.next else None
        reserved = [plan for plan in self._deployments.plans() if plan is not replaced]
        try:
            return await self._judge(graph, placement, reserved)
        except Unprocessable as error:
            if not any(fault.code in _NO_SPACE for fault in error.faults):
                raise
            advice = "the version that serves keeps its memory until the new one is ready"
            advice += "; where there is no room for both, undeploy first, then deploy anew"
            raise Unprocessable(f"{error}; {advice}", error.faults) from None

    def _changeable(self, id_: str) -> Managed:
        self._shutdown.refuse_new()
        managed = self._deployments.get(id_)
        if managed.deleted:
            raise Conflict(f"the deployment `{id_}` is being undeployed; deploy it anew once it is gone")
        return managed


def _of(act: Act, documents: Documents, row: Deployment) -> Act:
    """What is told of a deployment that changes."""
    return act.of(graph=documents.graph_name, placement=documents.placement_name, etag=queries.etag_of(row.graph_text))


async def _ended(run: LiveRun) -> None:
    with contextlib.suppress(RunFailed, InvalidInput):
        await run.ended()
