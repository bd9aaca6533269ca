"""One wanted deployment: the version that serves, the one that may follow it, and what is watched in them."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from walkgraph.graph.document import Graph, Task
from walkgraph.service.access.auditing import Act
from walkgraph.service.deployments.versions import Version
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.watching import Watched
from walkgraph.service.shutdown import Shutdown
from walkgraph.wire.answers import deployments as answers
from walkgraph.wire.watching import Level


class Managed:
    def __init__(self, id_: str, created_at: float, level: Level, hub: Hub, shutdown: Shutdown) -> None:
        """`level`: of its telemetry."""
        self.id = id_
        self.created_at = created_at
        self.watched = Watched(level)
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
        self._hub = hub
        self._shutdown = shutdown
        self._expiry: asyncio.TimerHandle | None = None
        """When the next tap or breakpoint goes by itself."""

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

    def public(self) -> answers.Deployment:
        serving = self.serving
        return {
            "id": self.id,
            "graph": serving.documents.graph_name,
            "placement": serving.documents.placement_name,
            "state": self.state,
            "revision": self.revision,
            "reason": serving.status.reason,
            "ranks": _ranks(serving),
            "running": serving.status.running,
            "waiting": serving.status.waiting,
            "restarts": serving.restarts,
            "created_at": self.created_at,
            "tasks": list(self.graph.tasks) if self.graph else [],
            "digest": serving.plan.digest if serving.plan else None,
            "next": _next(self.next) if self.next else None,
        }

    def announce(self) -> None:
        """Tell everybody who follows it that it has changed."""
        self.revision += 1
        self.changed.set()
        self.changed = asyncio.Event()
        self._hub.publish(self.id, {"type": "deployment", **self.public()})

    # ── what is watched ─────────────────────────────────────────────────────────────────────────

    def rewatch(self) -> None:
        """Tell its processes and its followers that what is watched has changed."""
        for version in self.versions:
            version.tell_watched()
        self._hub.publish(self.id, {"type": "watch", **self.watched.public(self.serving.places)})
        self.stop_expiry()
        end = self.watched.next_end
        if end is not None and not self.deleted and not self._shutdown.begun:
            self._expiry = asyncio.get_running_loop().call_later(max(0.0, end - time.time()), self._expire)

    def run_ended(self, run: str) -> None:
        """Watch no more what was watched of this run alone."""
        if self.watched.run_ended(run):
            self.rewatch()

    def stop_expiry(self) -> None:
        """Nothing that is watched goes by itself any more."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        # The two clocks may differ by a little.
        self.watched.expire(time.time())
        self.rewatch()


def _next(version: Version) -> answers.Next:
    return {
        "state": version.state,
        "reason": version.status.reason,
        "ranks": _ranks(version),
        "graph": version.documents.graph_name,
        "placement": version.documents.placement_name,
        "restarts": version.restarts,
        "digest": version.plan.digest if version.plan else None,
    }


def _ranks(version: Version) -> list[dict[str, Any]]:
    """How the ranks of a version are, with the devices that its plan gives them."""
    devices = {entry.rank: entry.device for entry in version.plan.ranks} if version.plan else {}
    found = [msgspec.to_builtins(rank) | {"device": devices.get(rank.rank)} for rank in version.status.ranks]
    for rank in found:
        rank.pop("type", None)
    return found
