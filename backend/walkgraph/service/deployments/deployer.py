"""The deployer starts the deployments that the store lists, and keeps them running.

create   judge, write to the store, start      (what can't be deployed is neither written nor started)
switch   judge beside the running versions, then hand over to `switching`; it replaces a switch that is under way.
         Sessions end with the version that holds them. `moving` does so by itself when a host is lost.
delete   delete from the store, drain and stop all versions, remove their folders
"""

import asyncio
import contextlib
import time
from typing import Any

import anyio.to_thread

from walkgraph.errors import Conflict, InvalidInput, NotFound, Overloaded, RunFailed
from walkgraph.placement.hardware import released
from walkgraph.placement.tables import Plan
from walkgraph.service.access.auditing import Act, own, recorded
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.folders import Folders
from walkgraph.service.deployments.judging import NO_SPACE, Judged, deployable, judge_anew
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deployments.moving import Moving
from walkgraph.service.deployments.scratches import Scratches
from walkgraph.service.deployments.switching import Switching
from walkgraph.service.deployments.versions import Around, Documents
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.runs.runs import LiveRun
from walkgraph.store import queries
from walkgraph.store.keys import add_entries
from walkgraph.store.session import Store
from walkgraph.store.tables import Deployment
from walkgraph.wire import messages as m


class Deployer:
    def __init__(self, store: Store, deployments: Deployments, around: Around) -> None:
        self._settings, self._store, self._runs, self._hub = around.settings, store, around.runs, around.hub
        self._deployments, self._shutdown, self._graphs = deployments, around.shutdown, around.graphs
        self._folders = Folders(around.settings.home)
        self._judging, self._hosts = around.judging, around.hosts
        self._switching = Switching(around, self._folders, store, around.shutdown, self._look)
        self._moving = Moving(
            self._switching,
            around.judging,
            self._judge,
            deployments.plans,
            around.shutdown,
            around.settings.move_after,
        )
        self.scratches = Scratches(
            deployments, self._switching, around.shutdown, around.judging, self._judge, self._keep_scratch, self.delete
        )

    # ── wanted state ────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Starts every deployment in the store. Returns at once; each deployment's state shows its progress."""
        rows = await self._store.read(queries.list_deployments)
        await anyio.to_thread.run_sync(self._folders.sweep, [row.id for row in rows])
        for row in rows:
            self._keep(row.id, Documents.of(row), row.created_at, None)

    async def create(
        self, id_: str, graph_name: str, graph: Any, placement_name: str, placement: Any | None, act: Act | None = None
    ) -> Managed:
        """Raises Unprocessable with all problems, Conflict if the id is taken. `act`: by default the service's own."""
        async with self._switching.changing, self._judging:
            self._shutdown.refuse_new()
            if id_ in self._deployments:
                raise Conflict(f"there is a deployment `{id_}` already; replace it (`PUT`), or choose another name")
            judged = await self._judge(graph, placement, self._deployments.plans())
            documents = Documents(graph_name, graph, placement_name, judged.placement_document)
            row = documents.row(id_, time.time())
            # In this order: a crash in between leaves an extra version, not a deployment that was never started.
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
        """Makes these documents the next version; returns once it is starting. An earlier next version is stopped. The
        old version's runs may finish for `grace` seconds once the new one serves.

        Raises Unprocessable with all problems; the memory of the serving version counts as taken.
        """
        async with self._switching.changing, self._judging:
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
        """Switches to the same documents in a new process. Raises as `switch` does."""
        async with self._switching.changing, self._judging:
            managed = self._changeable(id_)
            documents = managed.serving.documents
            judged = await self._judge_beside(managed, documents.graph, documents.placement)
            act = _of(act or own("deployment.restart", id_), documents, documents.row(id_, managed.created_at))
            await self._store.write(add_entries, [act.entry("begun")])
            self._switching.prepare(managed, documents, judged, grace, act)
            return managed

    async def forget_next(self, id_: str) -> None:
        """Cancels a switch, or clears one that failed. Raises NotFound if there is none."""
        async with self._switching.changing:
            managed = self._changeable(id_)
            version, managed.next, managed.changing = managed.next, None, None
            if version is None:
                raise NotFound(f"no new version of the deployment `{id_}` is under way")
            self._switching.give_up(managed, version)

    async def delete(self, id_: str, grace: float, act: Act | None = None) -> None:
        """Removes it from the store, lets its runs finish for up to `grace` seconds, and stops it."""
        async with self._switching.changing:
            managed = self._deployments.get(id_)
            if not managed.deleted and managed.owner is None:
                entry = (act or own("deployment.delete", id_)).entry("done")
                await self._store.write(recorded, entry, queries.delete_deployment, id_)
            managed.deleted = True
        await self._switching.stop(managed, grace)
        async with self._switching.changing:
            if self._deployments.holds(managed):
                await anyio.to_thread.run_sync(self._folders.remove, id_)
                self._deployments.remove(managed)
                self.scratches.forget(managed)

    async def close(self, grace: float) -> None:
        """Stops all deployments; they stay in the store."""
        self._shutdown.begin()
        await self._moving.close()
        await self.scratches.close()
        # A change under way may still start a version; later ones are refused.
        async with self._switching.changing:
            managed = self._deployments.listed()
        await asyncio.gather(*(self._switching.stop(found, grace) for found in managed))
        await self.settled()

    async def settled(self) -> None:
        """Returns once no switch is under way and all former versions have ended."""
        await self._switching.settled()

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, managed: Managed, submit: m.Submit) -> LiveRun:
        """Submits a run. Raises Unavailable if the deployment isn't serving, Overloaded if its queue is full."""
        self._shutdown.refuse_new()
        self.refuse_if_full(managed)
        return managed.serving.submit(submit)

    def refuse_if_full(self, managed: Managed) -> None:
        """Raises Overloaded if the deployment's queue is full."""
        unfinished = len(managed.serving.runs)
        if unfinished >= self._settings.queue_limit:
            raise Overloaded(f"the deployment `{managed.id}` has {unfinished} unfinished runs; try again shortly")

    async def drain(self, seconds: float) -> None:
        """Refuses new runs and waits for the unfinished ones. After `seconds` the rest fails with `shutting_down`."""
        self._shutdown.begin()
        self._shutdown.closing.set()
        waits = [asyncio.create_task(_ended(run)) for run in self._runs.unfinished]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for task in late:
                task.cancel()
        # Now, while their clients are still connected and can receive the error.
        for managed in self._deployments.listed():
            for version in managed.versions:
                version.runs.lose(shutting_down=True)
            # Wakes requests that wait for its next change.
            managed.announce()

    # ── helpers ─────────────────────────────────────────────────────────────────────────────────

    def _look(self, managed: Managed) -> None:
        self._moving.look(managed)

    def _keep_scratch(self, id_: str, owner: str, documents: Documents, judged: Judged) -> Managed:
        return self._keep(id_, documents, time.time(), judged, owner)

    def _keep(
        self, id_: str, documents: Documents, created_at: float, judged: Judged | None, owner: str | None = None
    ) -> Managed:
        managed = Managed(id_, created_at, self._settings.telemetry, self._hub, self._shutdown, owner)
        self._switching.first(managed, documents, judged)
        self._deployments.add(managed)
        return managed

    async def _judge(
        self,
        graph: Any,
        placement: Any,
        reserved: list[Plan],
        without: frozenset[str] = frozenset(),
        ended: Plan | None = None,
    ) -> Judged:
        """As in `moving.JudgeElsewhere`."""
        hosts, known = await self._hosts(without), await self._graphs.around(graph)
        if hosts is not None and ended is not None:
            hosts = released(hosts, ended)
        given = graph, placement, reserved, self._settings.checkpoint_roots, hosts, known
        judged = await anyio.to_thread.run_sync(judge_anew, *given)
        deployable(judged)
        return judged

    async def _judge_beside(self, managed: Managed, graph: Any, placement: Any) -> Judged:
        replaced = managed.next.plan if managed.next else None
        reserved = [plan for plan in self._deployments.plans() if plan is not replaced]
        try:
            return await self._judge(graph, placement, reserved)
        except Unprocessable as error:
            if not any(fault.code in NO_SPACE for fault in error.faults):
                raise
            advice = "the version that serves keeps its memory until the new one is ready"
            advice += "; where there is no room for both, undeploy first, then deploy anew"
            raise Unprocessable(f"{error}; {advice}", error.faults) from None

    def _changeable(self, id_: str) -> Managed:
        self._shutdown.refuse_new()
        managed = self._deployments.get(id_)
        if managed.deleted:
            raise Conflict(f"the deployment `{id_}` is being undeployed; deploy it anew once it is gone")
        if managed.owner is not None:
            raise Conflict(f"`{id_}` is the scratch deployment of a page, and changes with what is drawn there")
        return managed


def _of(act: Act, documents: Documents, row: Deployment) -> Act:
    """Adds the documents' names and etag to the audit entry of a change."""
    return act.of(graph=documents.graph_name, placement=documents.placement_name, etag=queries.etag_of(row.graph_text))


async def _ended(run: LiveRun) -> None:
    with contextlib.suppress(RunFailed, InvalidInput):
        await run.ended()
