"""Switches a deployment to its next version. That starts beside the serving one. Once it is ready, it is stored and
serves, and the former version's runs may finish before it ends. If the next version fails, the serving one goes on,
and the failure is shown.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from walkgraph.errors import WalkgraphError
from walkgraph.service.access.auditing import Act, own, recorded
from walkgraph.service.deployments.folders import Folders
from walkgraph.service.deployments.judging import Judged
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deployments.versions import Around, Documents, Version
from walkgraph.service.shutdown import Shutdown
from walkgraph.store import queries
from walkgraph.store.keys import add_entries
from walkgraph.store.session import Store
from walkgraph.store.tables import AuditEntry

_log = structlog.get_logger("walkgraph.deployments")


class Switching:
    def __init__(
        self, around: Around, folders: Folders, store: Store, shutdown: Shutdown, look: Callable[[Managed], None]
    ) -> None:
        """`look` is called after every change of a version that serves or is to serve."""
        self._look = look
        self.changing = asyncio.Lock()
        """Held while the stored deployments change."""
        self._around, self._folders, self._store, self._shutdown = around, folders, store, shutdown
        self._tasks: set[asyncio.Task[None]] = set()
        """Switches under way, and shutdowns of former versions."""

    def first(self, managed: Managed, documents: Documents, judged: Judged | None) -> None:
        """Starts a deployment's first version."""
        managed.serving = self._version(managed, documents, judged, [])
        managed.serving.start()

    def prepare(self, managed: Managed, documents: Documents, judged: Judged, grace: float, act: Act) -> None:
        """Starts a next version. If there is one already, it is ended first."""
        managed.changing = act
        replaced, managed.next, managed.grace = managed.next, None, grace
        gone = self._end(managed, replaced, 0.0) if replaced else None
        managed.next = self._version(managed, documents, judged, managed.versions)
        managed.next.start(after=gone)
        managed.announce()

    def renew(self, managed: Managed, documents: Documents, judged: Judged, grace: float = 0.0) -> None:
        """Replaces the serving version by one in new processes; the former one ends first, after `grace` seconds at
        most, in which its runs may finish."""
        gone = self._end(managed, managed.serving, grace)
        managed.serving = self._version(managed, documents, judged, managed.ending)
        managed.serving.start(after=gone)
        managed.announce()

    def give_up(self, managed: Managed, version: Version) -> None:
        """Ends a former next version, which `managed` no longer names."""
        managed.announce()
        self._begin(self._end(managed, version, 0.0))

    async def stop(self, managed: Managed, grace: float) -> None:
        """Ends all versions. The serving and former versions' runs may finish for `grace` seconds."""
        managed.stop_expiry()
        reason = "the service is shutting down" if self._shutdown.begun else "undeployed"
        ends = [managed.serving.stop(grace, reason), *(former.stop(grace, None) for former in managed.ending)]
        if managed.next is not None:
            ends.append(managed.next.stop(0.0, None))
        await asyncio.gather(*ends)

    async def settled(self) -> None:
        """Returns once no switch is under way and all former versions have ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _version(self, managed: Managed, documents: Documents, judged: Judged | None, beside: list[Version]) -> Version:
        directory = self._folders.free(managed.id, {version.directory for version in beside})
        changed = partial(self._changed, managed)
        scratch = managed.owner is not None
        given = documents, directory, self._around, changed, managed.watched, judged
        return Version(managed.id, *given, scratch=scratch)

    def _changed(self, managed: Managed, version: Version) -> None:
        if version is managed.next:
            if version.state == "ready":
                self._begin(self._promote(managed, version))
            elif version.state == "failed" and version.process is not None:
                # It won't recover, and it holds memory.
                self._begin(version.stop(0, None))
        if version is managed.next and version.state == "failed" and managed.changing is not None:
            self._begin(self._tell(managed.changing.entry("failed", version.status.reason or "")))
            managed.changing = None
        if version in (managed.serving, managed.next):
            managed.announce()
            self._look(managed)

    async def _tell(self, entry: AuditEntry) -> None:
        """Writes the audit entry of a failed switch, which has no other write."""
        try:
            await self._store.write(add_entries, [entry])
        except WalkgraphError as error:
            _log.error("not recorded", action=entry.action, target=entry.target, reason=str(error))

    async def _promote(self, managed: Managed, version: Version) -> None:
        """Makes the next version, which is ready, the stored and serving one."""
        async with self.changing:
            ready = version.state == "ready" and version.process is not None
            if managed.deleted or self._shutdown.begun or managed.next is not version or not ready:
                return
            former = managed.serving
            try:
                await self._record(managed, version, managed.changing)
                if version.state == "failed":
                    # It failed during the write; the former version goes on.
                    await self._record(managed, former, own("deployment.return", managed.id))
                    return
            except WalkgraphError as error:
                _log.error("switch not recorded", deployment=managed.id, reason=str(error))
                version.fail(f"it was ready, but {error}")
                return
            managed.serving, managed.next, managed.changing = version, None, None
            _log.info("deployment switched", deployment=managed.id)
            managed.announce()
            if managed.watched.places and version.places is not None:
                managed.watched.keep_where(version.places)
                managed.rewatch()
            self._begin(self._end(managed, former, managed.grace))

    async def _record(self, managed: Managed, version: Version, act: Act | None) -> None:
        """Stores the version's documents as the deployment's."""
        row = version.documents.row(managed.id, managed.created_at)
        entry = (act or own("deployment.replace", managed.id)).entry("done")
        await self._store.write(recorded, entry, queries.replace_deployment, row)

    def _end(self, managed: Managed, version: Version, grace: float) -> Coroutine[Any, Any, None]:
        """The shutdown of a version that is no longer the serving or the next one."""
        managed.ending.append(version)

        async def end() -> None:
            await version.stop(grace, "another version took its place")
            managed.ending.remove(version)

        return end()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
