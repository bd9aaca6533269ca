"""Versions that take each other's place: the next one starts beside the one that serves, and once it is ready, it is
what is wanted and what serves; the former one's runs may finish before it ends. A next version that fails leaves the
one that serves as it is, and says why.
"""

import asyncio
from collections.abc import Coroutine
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
    def __init__(self, around: Around, folders: Folders, store: Store, shutdown: Shutdown) -> None:
        self.changing = asyncio.Lock()
        """Held by whoever changes what is wanted."""
        self._around, self._folders, self._store, self._shutdown = around, folders, store, shutdown
        self._tasks: set[asyncio.Task[None]] = set()
        """Switches under way, and ends of former versions."""

    def first(self, managed: Managed, documents: Documents, judged: Judged | None) -> None:
        """Start its only version."""
        managed.serving = self._version(managed, documents, judged, [])
        managed.serving.start()

    def prepare(self, managed: Managed, documents: Documents, judged: Judged, grace: float, act: Act) -> None:
        """Begin a next version, in place of the one that there may be, once that one is gone."""
        managed.changing = act
        replaced, managed.next, managed.grace = managed.next, None, grace
        gone = self._end(managed, replaced, 0.0) if replaced else None
        managed.next = self._version(managed, documents, judged, managed.versions)
        managed.next.start(after=gone)
        managed.announce()

    def give_up(self, managed: Managed, version: Version) -> None:
        """End a next version; `managed` knows it no more."""
        managed.announce()
        self._begin(self._end(managed, version, 0.0))

    async def stop(self, managed: Managed, grace: float) -> None:
        """End all of its versions; the runs of the one that serves may finish for `grace` seconds."""
        managed.stop_expiry()
        reason = "the service is shutting down" if self._shutdown.begun else "undeployed"
        ends = [managed.serving.stop(grace, reason), *(former.stop(grace, None) for former in managed.ending)]
        if managed.next is not None:
            ends.append(managed.next.stop(0.0, None))
        await asyncio.gather(*ends)

    async def settled(self) -> None:
        """Returns once no switch is under way, and no former version ends."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _version(self, managed: Managed, documents: Documents, judged: Judged | None, beside: list[Version]) -> Version:
        directory = self._folders.free(managed.id, {version.directory for version in beside})
        changed = partial(self._changed, managed)
        return Version(managed.id, documents, directory, self._around, changed, managed.watched, judged)

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
            managed.announce()

    async def _tell(self, entry: AuditEntry) -> None:
        """Of what was not written into the store."""
        try:
            await self._store.write(add_entries, [entry])
        except WalkgraphError as error:
            _log.error("not recorded", action=entry.action, target=entry.target, reason=str(error))

    async def _promote(self, managed: Managed, version: Version) -> None:
        """The next version is ready: from now on it is what is wanted, and what serves."""
        async with self.changing:
            ready = version.state == "ready" and version.process is not None
            if managed.deleted or self._shutdown.begun or managed.next is not version or not ready:
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
            managed.announce()
            if managed.watched.places and version.places is not None:
                managed.watched.keep_where(version.places)
                managed.rewatch()
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

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
