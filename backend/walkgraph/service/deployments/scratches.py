"""Scratch deployments: what is drawn on a page runs there.

    first run        judge, start processes
    a later one      the processes take up the changed graph; new ones only where its plan has other ranks
    the page ends, or nothing runs for a while
                     its processes end

They count in memory as others do. They are not stored, and lists for clients leave them out.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from walkgraph.errors import Conflict, Overloaded
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.judging import Judged
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deployments.switching import Switching
from walkgraph.service.deployments.versions import Documents
from walkgraph.service.http.problems import Unavailable
from walkgraph.service.shutdown import Shutdown

IDLE_SECONDS = 600.0
"""One on which nothing ran for so long is ended."""
MOST = 4
"""The most at a time; a new one ends the one that was unused for longest."""

Judge = Callable[[Any, Any, list[Plan]], Awaitable[Judged]]
"""Judges a graph and a placement beside reserved plans. Raises Unprocessable."""
Make = Callable[[str, str, Documents, Judged], Managed]
"""Starts a deployment: id, owner, documents."""
End = Callable[[str, float], Awaitable[None]]
"""Ends a deployment: id, grace in seconds."""


@dataclass
class _Scratch:
    managed: Managed
    given: tuple[Any, Any] | None
    """Graph without layout, and placement, as the page gave them; None if they could not be taken up."""
    used: float
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None


class Scratches:
    def __init__(
        self,
        deployments: Deployments,
        switching: Switching,
        shutdown: Shutdown,
        judging: asyncio.Lock,
        judge: Judge,
        make: Make,
        end: End,
    ) -> None:
        self._deployments, self._switching, self._shutdown = deployments, switching, shutdown
        self._judging, self._judge, self._make, self._end = judging, judge, make, end
        self._known: dict[str, _Scratch] = {}
        self._beginning = asyncio.Lock()
        """Held while room is made and taken: two that begin must not find the same."""
        self._ends: set[asyncio.Task[None]] = set()

    async def serve(
        self, id_: str, owner: str, graph_name: str, graph: Any, placement_name: str, placement: Any | None
    ) -> Managed:
        """Has a page's scratch deployment serve these documents. Returns once it does; for new processes, once they
        start. Raises Unprocessable with all problems, Conflict if the id is taken, Unavailable if the graph can't be
        loaded, and the former one goes on."""
        self._shutdown.refuse_new()
        given = _without_layout(graph), placement
        found = self._own(id_, owner)
        if found is None:
            async with self._beginning:
                # The same page may have asked twice.
                found = self._own(id_, owner)
                if found is None:
                    await self._make_room()
                    return await self._first(id_, owner, given, Documents(graph_name, graph, placement_name, {}))
        async with found.changing:
            found.used = time.monotonic()
            if found.given != given or found.managed.state == "failed":
                await self._change(found, given, Documents(graph_name, graph, placement_name, {}))
        return found.managed

    async def close(self) -> None:
        """Cancels the timers, and waits for those that are ending."""
        for scratch in self._known.values():
            if scratch.timer is not None:
                scratch.timer.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)

    async def _first(self, id_: str, owner: str, given: tuple[Any, Any], documents: Documents) -> Managed:
        async with self._switching.changing, self._judging:
            if id_ in self._deployments:
                raise Conflict(f"there is a deployment `{id_}` already")
            judged = await self._judge(documents.graph, given[1], self._deployments.plans())
            managed = self._make(id_, owner, documents.placed(judged.placement_document), judged)
            scratch = self._known[id_] = _Scratch(managed, given, time.monotonic())
            self._look_again(scratch, IDLE_SECONDS)
            return managed

    async def _change(self, scratch: _Scratch, given: tuple[Any, Any], documents: Documents) -> None:
        managed, taken = scratch.managed, None
        async with self._switching.changing, self._judging:
            self._shutdown.refuse_new()
            serving = managed.serving
            reserved = [plan for plan in self._deployments.plans() if plan is not serving.plan]
            judged = await self._judge(documents.graph, given[1], reserved)
            documents = documents.placed(judged.placement_document)
            if serving.taking.can(judged):
                taken = serving.taking.begin(documents, judged)
            else:
                self._switching.renew(managed, documents, judged)
        scratch.given = given
        if taken is None:
            return
        try:
            await asyncio.shield(taken)
        except Unavailable:
            if serving.documents is not documents:
                scratch.given = None
            raise

    async def _make_room(self) -> None:
        there = [one for one in self._known.values() if not one.managed.deleted]
        if len(there) < MOST:
            return
        idle = [one for one in there if not _runs(one.managed)]
        if not idle:
            raise Overloaded(f"{MOST} pages run what they draw; end one of their scratch deployments")
        await self._end(min(idle, key=_used).managed.id, 0.0)

    def _own(self, id_: str, owner: str) -> _Scratch | None:
        """The scratch deployment of this id; None if there is none. Raises Conflict if it is somebody else's."""
        found = self._known.get(id_)
        if found is None or not self._deployments.holds(found.managed):
            return None
        if found.managed.owner != owner:
            raise Conflict(f"the scratch deployment `{id_}` is another caller's")
        if found.managed.deleted:
            raise Conflict(f"the scratch deployment `{id_}` is ending; run again")
        return found

    # ── idle ones ───────────────────────────────────────────────────────────────────────────────

    def _look_again(self, scratch: _Scratch, seconds: float) -> None:
        scratch.timer = asyncio.get_running_loop().call_later(seconds, self._look, scratch)

    def _look(self, scratch: _Scratch) -> None:
        """Ends a scratch deployment that was not used for long; looks again later at one that was."""
        managed = scratch.managed
        if not self._deployments.holds(managed) or managed.deleted:
            self.forget(managed)
            return
        left = IDLE_SECONDS if _runs(managed) else _used(scratch) + IDLE_SECONDS - time.monotonic()
        if left > 0:
            self._look_again(scratch, left)
            return
        self.forget(managed)
        end = asyncio.ensure_future(self._end(managed.id, 0.0))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    def forget(self, managed: Managed) -> None:
        """Forgets a deployment that ends, if it is a scratch one: until its timer ran out it would keep its plans."""
        scratch = self._known.get(managed.id)
        if scratch is None or scratch.managed is not managed:
            return
        del self._known[managed.id]
        if scratch.timer is not None:
            scratch.timer.cancel()


def _runs(managed: Managed) -> bool:
    return len(managed.serving.runs) > 0


def _used(scratch: _Scratch) -> float:
    return max(scratch.used, scratch.managed.used)


def _without_layout(graph: Any) -> Any:
    if not isinstance(graph, dict):
        return graph
    return {key: value for key, value in cast("dict[str, Any]", graph).items() if key != "layout"}
