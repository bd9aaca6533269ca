"""Brings ranks that may run on any host (`any`) to another one once theirs is lost.

The conductor says which ranks wait for their host. Once those of a version have done so for `move_after` seconds, the
deployment is planned again over the other hosts, and switched to the new plan:

    room for both versions    the new one starts beside the old one, whose other ranks serve on until it is ready
    no room, and none of the  the old one ends first; its runs may finish for `GRACE` seconds
    replicas is whole
    otherwise                 it stays as it is, says why, and tries again

What is lost may still run behind a cut cable. It can't take part any more: each version has keys, ports and a conductor
of its own, and a rank without its conductor ends.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import structlog

from walkgraph.errors import WalkgraphError
from walkgraph.placement.tables import Plan
from walkgraph.service.access.auditing import own
from walkgraph.service.deployments.judging import NO_SPACE, Judged
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deployments.switching import Switching
from walkgraph.service.deployments.versions import Version, serves
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.shutdown import Shutdown

GRACE = 10.0
"""Seconds that runs may go on in a version that ends before the next one starts, or in one that no longer serves."""
RETRY_SECONDS = 30.0
"""Pause between two attempts for one deployment."""

_log = structlog.get_logger("walkgraph.deployments")


class JudgeElsewhere(Protocol):
    def __call__(
        self, graph: Any, placement: Any, reserved: list[Plan], without: frozenset[str], ended: Plan | None = None
    ) -> Awaitable[Judged]:
        """Judges beside reserved plans. `without`: hosts that are left out. `ended`: a plan whose processes will have
        ended. Raises Unprocessable, HostsUnknown."""
        ...


class Moving:
    def __init__(
        self,
        switching: Switching,
        judging: asyncio.Lock,
        judge: JudgeElsewhere,
        reserved: Callable[[], list[Plan]],
        shutdown: Shutdown,
        seconds: float,
    ) -> None:
        """`reserved`: the plans of all versions that hold memory. `seconds`: how long a host may be lost before."""
        self._switching, self._judging, self._judge, self._reserved = switching, judging, judge, reserved
        self._shutdown, self._seconds = shutdown, seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By deployment: it waits, or moves ranks."""
        self._tried: WeakKeyDictionary[Managed, float] = WeakKeyDictionary()
        """Time of the last attempt, on the monotonic clock."""

    def look(self, managed: Managed) -> None:
        """Handles a change of a deployment. Returns at once."""
        if not lost_hosts(managed) or managed.id in self._tasks or self._shutdown.begun:
            return
        task = asyncio.create_task(self._watch(managed), name=f"moves of {managed.id}")
        self._tasks[managed.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(managed.id, None))

    async def close(self) -> None:
        """Ends all waits."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, managed: Managed) -> None:
        while await self._stay_lost(managed):
            self._tried[managed] = time.monotonic()
            try:
                await self._move(managed)
                managed.unmoved = None
            except WalkgraphError as error:
                managed.unmoved = f"its ranks are not brought to another host: {_reasons(error)}"
                _log.warning("ranks not moved", deployment=managed.id, reason=managed.unmoved)
            managed.announce()
        if managed.unmoved is not None:
            managed.unmoved = None
            managed.announce()

    async def _stay_lost(self, managed: Managed) -> bool:
        """True once hosts have been lost for long enough; False once none is."""
        now = time.monotonic()
        due = max(now + self._seconds, self._tried.get(managed, -RETRY_SECONDS) + RETRY_SECONDS)
        while lost_hosts(managed) and not self._shutdown.begun:
            left = due - time.monotonic()
            if left <= 0:
                return True
            await managed.changed_after(managed.revision, left)
        return False

    async def _move(self, managed: Managed) -> None:
        """Starts a version whose plan does without the lost hosts. Raises WalkgraphError."""
        async with self._switching.changing, self._judging:
            self._shutdown.refuse_new()
            version, lost = newest(managed), lost_hosts(managed)
            if managed.deleted or not lost:
                return
            _log.info("ranks move", deployment=managed.id, without=sorted(lost))
            documents, act = version.documents, managed.changing or own("deployment.move", managed.id)
            judged = await self._beside(managed, version, lost)
            if judged is None:
                reserved = [plan for plan in self._reserved() if plan is not version.plan]
                judged = await self._judge(documents.graph, documents.placement, reserved, lost, version.plan)
                self._switching.renew(managed, documents, judged, GRACE)
            else:
                grace = GRACE if version is managed.serving else managed.grace
                self._switching.prepare(managed, documents, judged, grace, act.of(without=sorted(lost)))

    async def _beside(self, managed: Managed, version: Version, lost: frozenset[str]) -> Judged | None:
        """The next version beside what serves. None if the serving one must end first, and may. Raises
        WalkgraphError."""
        if managed.owner is not None:
            return None
        replaced = managed.next.plan if managed.next is not None else None
        reserved = [plan for plan in self._reserved() if plan is not replaced]
        try:
            return await self._judge(version.documents.graph, version.documents.placement, reserved, lost)
        except Unprocessable as error:
            may_end = version is managed.serving and not serves(version.plan, version.status.ranks)
            if may_end and any(fault.code in NO_SPACE for fault in error.faults):
                return None
            raise


def newest(managed: Managed) -> Version:
    """The version that is to serve: the next one, unless that has failed."""
    coming = managed.next
    return managed.serving if coming is None or coming.state == "failed" else coming


def lost_hosts(managed: Managed) -> frozenset[str]:
    """The hosts that ranks wait for which may run on any."""
    version = newest(managed)
    away = {rank.rank for rank in version.status.ranks if rank.away}
    ranks = version.plan.ranks if version.plan is not None and not managed.deleted else ()
    return frozenset(rank.host for rank in ranks if rank.unpinned and rank.rank in away)


def _reasons(error: WalkgraphError) -> str:
    faults = error.faults if isinstance(error, Unprocessable) else ()
    return "; ".join(fault.message for fault in faults) or str(error)
