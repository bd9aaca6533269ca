"""What is wanted is in the store; this brings it about and keeps it so.

create   judge, write the wanted state, start            (nothing is started, or written, that can't be deployed)
switch   judge beside what runs, start a next version beside the one that serves; once it is ready it is what is
         wanted and what serves, and the old one's runs may finish before it ends. A next version that fails leaves
         the old one serving and says why; another switch takes its place. Sessions end with the version that holds
         them.
delete   forget the wanted state, drain, stop, whatever versions there are, remove their folders
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import structlog

from walkgraph.errors import Conflict, InvalidInput, NotFound, Overloaded, RunFailed, WalkgraphError
from walkgraph.graph.document import Graph, Task
from walkgraph.placement.tables import Plan
from walkgraph.service.access.auditing import Act, own, recorded
from walkgraph.service.deployments.folders import Folders
from walkgraph.service.deployments.judging import Judged, deployable, judge
from walkgraph.service.deployments.versions import Around, Documents, Spawn, Version
from walkgraph.service.http.problems import Unavailable, Unprocessable
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.watching import Watched
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.store.keys import add_entries
from walkgraph.store.session import Store
from walkgraph.store.tables import AuditEntry, Deployment
from walkgraph.wire import messages as m

_NO_ROOM = frozenset({"does_not_fit", "device_full"})

_log = structlog.get_logger("walkgraph.deployments")


class Managed:
    """One wanted deployment: the version that serves, and maybe one that will."""

    def __init__(self, id_: str, created_at: float, watched: Watched) -> None:
        self.id = id_
        self.created_at = created_at
        self.watched = watched
        self.expiry: asyncio.TimerHandle | None = None
        """When the next tap or breakpoint goes by itself."""
        self.serving: Version
        self.next: Version | None = None
        """Getting ready, or failed."""
        self.grace = 0.0
        """Seconds that the runs of the version before have once `next` serves."""
        self.changing: Act | None = None
        """Whose change `next` is, until it was told how that ended."""
        self.ending: list[Version] = []
        """Former versions that are not gone yet."""
        self.deleted = False
        self.changed = asyncio.Event()
        """Set, and replaced, at every change of what `public` tells."""
        self.revision = 0
        """Counts the changes."""

    @property
    def state(self) -> str:
        return self.serving.state

    @property
    def graph(self) -> Graph | None:
        """None until it was judged on this start."""
        return self.serving.graph

    @property
    def versions(self) -> list[Version]:
        """All that are not gone."""
        return [self.serving, *([self.next] if self.next else []), *self.ending]

    async def changed_after(self, revision: int, seconds: float) -> None:
        """Returns once there was a change after `revision`, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.revision <= revision:
                    await self.changed.wait()

    def judged_graph(self) -> Graph:
        """Raises Unavailable before it was judged on this start."""
        if self.graph is None:
            raise self.serving.not_serving()
        return self.graph

    def tasks(self) -> dict[str, Task]:
        """As `judged_graph`."""
        return self.judged_graph().tasks

    def public(self) -> dict[str, Any]:
        serving = self.serving
        return {
            "id": self.id,
            "graph": serving.documents.graph_name,
            "placement": serving.documents.placement_name,
            "state": self.state,
            "revision": self.revision,
            "reason": serving.status.reason,
            "ranks": serving.ranks(),
            "running": serving.status.running,
            "waiting": serving.status.waiting,
            "restarts": serving.restarts,
            "created_at": self.created_at,
            "tasks": list(self.graph.tasks) if self.graph else [],
            "digest": serving.plan.digest if serving.plan else None,
            "next": self.next.public() if self.next else None,
        }


class Deployments:
    def __init__(
        self, settings: Settings, store: Store, runs: Runs, hub: Hub, spawn: Spawn, telemetry_address: str | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._runs = runs
        self._hub = hub
        self._around = Around(
            settings, spawn, runs, hub, self.plans, lambda: self.draining, self._run_ended, telemetry_address
        )
        self._folders = Folders(settings.home)
        self._managed: dict[str, Managed] = {}
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        """Switches under way, and ends of former versions."""
        self.draining = False
        self.closing = asyncio.Event()
        """Set once nothing new is taken: sockets that wait for requests are to tell their clients, and end."""

    # ── wanted state ────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Bring back everything that is wanted. Returns at once; `get` shows how far it is."""
        rows = await self._store.read(queries.list_deployments)
        await anyio.to_thread.run_sync(self._folders.sweep, [row.id for row in rows])
        for row in rows:
            self._keep(row.id, Documents.of(row), row.created_at, None)

    async def create(
        self, id_: str, graph_name: str, graph: Any, placement_name: str, placement: Any | None, act: Act | None = None
    ) -> Managed:
        """Raises Unprocessable with every problem, Conflict for an id that is taken. `act`: None, the service's own."""
        async with self._changing:
            self._refuse_while_draining()
            if id_ in self._managed:
                raise Conflict(f"there is a deployment `{id_}` already; replace it (`PUT`), or choose another name")
            judged = await self._judge(graph, placement, self.plans())
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
        async with self._changing:
            managed = self._changeable(id_)
            judged = await self._judge_beside(managed, graph, placement)
            documents = Documents(graph_name, graph, placement_name, judged.placement_document)
            row = documents.row(id_, managed.created_at)
            act = _of(act or own("deployment.replace", id_), documents, row)
            note = f"deployed as {id_}"
            await self._store.write(
                recorded, act.entry("begun"), queries.add_version, "graph", graph_name, row.graph_text, note
            )
            return self._prepare(managed, documents, judged, grace, act)

    async def restart(self, id_: str, grace: float, act: Act | None = None) -> Managed:
        """A switch to the documents that serve now. Raises as `switch` does."""
        async with self._changing:
            managed = self._changeable(id_)
            documents = managed.serving.documents
            judged = await self._judge_beside(managed, documents.graph, documents.placement)
            act = _of(act or own("deployment.restart", id_), documents, documents.row(id_, managed.created_at))
            await self._store.write(add_entries, [act.entry("begun")])
            return self._prepare(managed, documents, judged, grace, act)

    async def forget_next(self, id_: str) -> None:
        """Give a switch up, or take note of why it failed. Raises NotFound where there is none."""
        async with self._changing:
            managed = self._changeable(id_)
            version, managed.next, managed.changing = managed.next, None, None
            if version is None:
                raise NotFound(f"no new version of the deployment `{id_}` is under way")
            self._announce(managed)
            self._begin(self._end(managed, version, 0.0))

    async def delete(self, id_: str, grace: float, act: Act | None = None) -> None:
        """Forget it, let its runs finish for up to `grace` seconds, stop it."""
        async with self._changing:
            managed = self.get(id_)
            if not managed.deleted:
                entry = (act or own("deployment.delete", id_)).entry("done")
                await self._store.write(recorded, entry, queries.delete_deployment, id_)
            managed.deleted = True
        await self._stop(managed, grace)
        async with self._changing:
            # Another call may have been quicker, and the id be used again.
            if self._managed.get(id_) is managed:
                await anyio.to_thread.run_sync(self._folders.remove, id_)
                del self._managed[id_]

    async def close(self, grace: float) -> None:
        """Stop all, still wanted."""
        self.draining = True
        # What was begun before may still start a version; what comes after is refused.
        async with self._changing:
            managed = list(self._managed.values())
        await asyncio.gather(*(self._stop(found, grace) for found in managed))
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def listed(self) -> list[Managed]:
        """Oldest first."""
        return sorted(self._managed.values(), key=lambda managed: managed.created_at)

    def get(self, id_: str) -> Managed:
        found = self._managed.get(id_)
        if found is None:
            known = ", ".join(f"`{name}`" for name in self._managed) or "none"
            raise NotFound(f"there is no deployment `{id_[:64]}`; there are: {known}")
        return found

    def plans(self) -> list[Plan]:
        """Of every version that holds memory: what is loading, or grows, does not show in the free memory yet."""
        versions = (version for managed in self._managed.values() for version in managed.versions)
        return [version.plan for version in versions if version.plan and version.holds_memory]

    def telemetry_of(self, label: str) -> tuple[str, str] | None:
        """(deployment, version) of a packet; None for one of a version that doesn't serve yet, or is gone."""
        id_, _, version = label.partition(" ")
        managed = self._managed.get(id_)
        seen = [managed.serving, *managed.ending] if managed else []
        return (id_, version) if any(found.label == label for found in seen) else None

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, managed: Managed, submit: m.Submit) -> LiveRun:
        """Hand a run over. Raises Unavailable where it isn't serving, Overloaded where its queue is full."""
        self._refuse_while_draining()
        if len(managed.serving.runs) >= self._settings.queue_limit:
            unfinished = len(managed.serving.runs)
            raise Overloaded(f"the deployment `{managed.id}` has {unfinished} unfinished runs; try again shortly")
        return managed.serving.submit(submit)

    async def drain(self, seconds: float) -> None:
        """Take nothing new; returns when no run is unfinished. After `seconds` the rest ends with `shutting_down`."""
        self.draining = True
        self.closing.set()
        waits = [asyncio.create_task(_ended(run)) for run in self._runs.unfinished]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for task in late:
                task.cancel()
        # While their clients are still connected: they are told why.
        for managed in self._managed.values():
            for version in managed.versions:
                version.lose_runs()
            # Who waits for its next change waits no longer.
            self._announce(managed)

    # ── what is watched ─────────────────────────────────────────────────────────────────────────

    def rewatch(self, managed: Managed) -> None:
        """What is wanted to be seen has changed: its processes and its followers are told."""
        for version in managed.versions:
            version.tell_watched()
        self._hub.publish(managed.id, {"type": "watch", **managed.watched.public(managed.serving.places)})
        if managed.expiry is not None:
            managed.expiry.cancel()
            managed.expiry = None
        end = managed.watched.next_end
        if end is not None and not managed.deleted and not self.draining:
            wait = max(0.0, end - time.time())
            managed.expiry = asyncio.get_running_loop().call_later(wait, self._expire, managed)

    def _expire(self, managed: Managed) -> None:
        # The two clocks may differ by a little.
        managed.watched.expire(time.time())
        self.rewatch(managed)

    def _run_ended(self, run: LiveRun) -> None:
        managed = self._managed.get(run.deployment)
        if managed is not None and managed.watched.run_ended(run.id):
            self.rewatch(managed)

    # ── versions ────────────────────────────────────────────────────────────────────────────────

    def _keep(self, id_: str, documents: Documents, created_at: float, judged: Judged | None) -> Managed:
        managed = Managed(id_, created_at, Watched(self._settings.telemetry))
        managed.serving = self._version(managed, documents, judged)
        self._managed[id_] = managed
        managed.serving.start()
        return managed

    def _version(self, managed: Managed, documents: Documents, judged: Judged | None) -> Version:
        taken = {version.directory for version in managed.versions} if managed.id in self._managed else set[Path]()
        directory = self._folders.free(managed.id, taken)
        changed = partial(self._changed, managed)
        return Version(managed.id, documents, directory, self._around, changed, managed.watched, judged)

    def _prepare(self, managed: Managed, documents: Documents, judged: Judged, grace: float, act: Act) -> Managed:
        """Begin a next version, in place of the one that there may be, once that one is gone."""
        managed.changing = act
        replaced, managed.next, managed.grace = managed.next, None, grace
        gone = self._end(managed, replaced, 0.0) if replaced else None
        managed.next = self._version(managed, documents, judged)
        managed.next.start(after=gone)
        self._announce(managed)
        return managed

    def _changed(self, managed: Managed, version: Version) -> None:
        if version is managed.next:
            if version.state == "ready":
                self._begin(self._promote(managed, version))
            elif version.state == "failed" and version.process is not None:
                # It won't recover, and holds memory.
                self._begin(version.stop(0, None))
        if version is managed.next and version.state == "failed" and managed.changing is not None:
            self._begin(self._tell(managed.changing.entry("failed", version.status.reason or "")))
            managed.changing = None
        if version in (managed.serving, managed.next):
            self._announce(managed)

    async def _tell(self, entry: AuditEntry) -> None:
        """Of what was not written into the store."""
        try:
            await self._store.write(add_entries, [entry])
        except WalkgraphError as error:
            _log.error("not recorded", action=entry.action, target=entry.target, reason=str(error))

    async def _promote(self, managed: Managed, version: Version) -> None:
        """The next version is ready: from now on it is what is wanted, and what serves."""
        async with self._changing:
            ready = version.state == "ready" and version.process is not None
            if managed.deleted or self.draining or managed.next is not version or not ready:
                return
            former = managed.serving
            try:
                await self._record(managed, version, managed.changing)
                if version.state == "failed":
                    # Meanwhile; the former one goes on.
                    await self._record(managed, former, own("deployment.return", managed.id))
                    return
            except WalkgraphError as error:
                _log.error("switch not recorded", deployment=managed.id, reason=str(error))
                version.fail(f"it was ready, but {error}")
                return
            managed.serving, managed.next, managed.changing = version, None, None
            _log.info("deployment switched", deployment=managed.id)
            self._announce(managed)
            if managed.watched.places and version.places is not None:
                managed.watched.keep_where(version.places)
                self.rewatch(managed)
            self._begin(self._end(managed, former, managed.grace))

    async def _record(self, managed: Managed, version: Version, act: Act | None) -> None:
        """Its documents are what is wanted from now on."""
        row = version.documents.row(managed.id, managed.created_at)
        entry = (act or own("deployment.replace", managed.id)).entry("done")
        await self._store.write(recorded, entry, queries.replace_deployment, row)

    def _end(self, managed: Managed, version: Version, grace: float) -> Coroutine[Any, Any, None]:
        """The end of a version that is neither the serving nor the next one any more, however it comes."""
        managed.ending.append(version)

        async def end() -> None:
            await version.stop(grace, "another version took its place")
            managed.ending.remove(version)

        return end()

    async def _stop(self, managed: Managed, grace: float) -> None:
        if managed.expiry is not None:
            managed.expiry.cancel()
        reason = "the service is shutting down" if self.draining else "undeployed"
        ends = [managed.serving.stop(grace, reason), *(former.stop(grace, None) for former in managed.ending)]
        if managed.next is not None:
            ends.append(managed.next.stop(0.0, None))
        await asyncio.gather(*ends)

    async def _judge(self, graph: Any, placement: Any, reserved: list[Plan]) -> Judged:
        judged = await anyio.to_thread.run_sync(judge, graph, placement, reserved, self._settings.checkpoint_roots)
        deployable(judged)
        return judged

    async def _judge_beside(self, managed: Managed, graph: Any, placement: Any) -> Judged:
        replaced = managed.next.plan if managed.next else None
        try:
            return await self._judge(graph, placement, [plan for plan in self.plans() if plan is not replaced])
        except Unprocessable as error:
            if not any(fault.code in _NO_ROOM for fault in error.faults):
                raise
            advice = "the version that serves keeps its memory until the new one is ready"
            advice += "; where there is no room for both, undeploy first, then deploy anew"
            raise Unprocessable(f"{error}; {advice}", error.faults) from None

    def _changeable(self, id_: str) -> Managed:
        self._refuse_while_draining()
        managed = self.get(id_)
        if managed.deleted:
            raise Conflict(f"the deployment `{id_}` is being undeployed; deploy it anew once it is gone")
        return managed

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise Unavailable("the service is shutting down", "shutting_down")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _announce(self, managed: Managed) -> None:
        managed.revision += 1
        managed.changed.set()
        managed.changed = asyncio.Event()
        self._hub.publish(managed.id, {"type": "deployment", **managed.public()})


def _of(act: Act, documents: Documents, row: Deployment) -> Act:
    """What is told of a deployment that changes."""
    return act.of(graph=documents.graph_name, placement=documents.placement_name, etag=queries.etag_of(row.graph_text))


async def _ended(run: LiveRun) -> None:
    with contextlib.suppress(RunFailed, InvalidInput):
        await run.ended()
