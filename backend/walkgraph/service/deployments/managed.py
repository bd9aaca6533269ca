"""One deployment: the version that serves, a next one, and the taps and breakpoints in them."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from walkgraph.graph.document import Graph, Task
from walkgraph.placement.tables import Plan
from walkgraph.service.access.auditing import Act
from walkgraph.service.deployments.versions import Version
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.watching import Watched
from walkgraph.service.shutdown import Shutdown
from walkgraph.service.values.task_ports import TaskPorts
from walkgraph.wire.answers import deployments as answers
from walkgraph.wire.watching import Level


class Managed:
    def __init__(
        self, id_: str, created_at: float, level: Level, hub: Hub, shutdown: Shutdown, owner: str | None = None
    ) -> None:
        """`level`: of the deployment's telemetry. `owner`: the caller whose scratch deployment it is."""
        self.id, self.owner = id_, owner
        self.used = 0.0
        """Time at which its last run ended."""
        self.created_at = created_at
        self.watched = Watched(level)
        self.serving: Version
        self.next: Version | None = None
        """The version of a switch that is starting, or has failed."""
        self.grace = 0.0
        """Seconds that the old version's runs may go on once `next` serves."""
        self.changing: Act | None = None
        """The act that made `next`, until the audit log has its outcome."""
        self.ending: list[Version] = []
        """Former versions that have not ended yet."""
        self.unmoved: str | None = None
        """The reason that ranks of a lost host could not be brought to another one; None: nothing was tried, or all
        went well."""
        self.deleted = False
        self.changed = asyncio.Event()
        """Set and replaced at every change of what `public` returns."""
        self.revision = 0
        """Counts the changes."""
        self._hub = hub
        self._shutdown = shutdown
        self._ports: dict[str, TaskPorts] = {}
        """By the names of tasks, all of one graph."""
        self._expiry: asyncio.TimerHandle | None = None
        """Removes the next tap or breakpoint that expires."""

    @property
    def state(self) -> str:
        return self.serving.state

    @property
    def graph(self) -> Graph | None:
        """None until the graph is judged after the service's start."""
        return self.serving.graph

    @property
    def plan(self) -> Plan | None:
        """None until the graph is judged after the service's start."""
        return self.serving.plan

    @property
    def versions(self) -> list[Version]:
        """All versions that have not ended."""
        return [self.serving, *([self.next] if self.next else []), *self.ending]

    async def changed_after(self, revision: int, seconds: float) -> None:
        """Returns once the revision is above `revision`, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.revision <= revision:
                    await self.changed.wait()

    def judged_graph(self) -> Graph:
        """The graph. Raises Unavailable until it is judged after the service's start."""
        if self.graph is None:
            raise self.serving.not_serving()
        return self.graph

    def tasks(self) -> dict[str, Task]:
        """The graph's tasks. Raises as `judged_graph`."""
        return self.judged_graph().tasks

    def ports(self, task: str) -> TaskPorts:
        """A task and what its ports say. Raises NotFound, and as `judged_graph`."""
        graph = self.judged_graph()
        if any(known.graph is not graph for known in self._ports.values()):
            self._ports.clear()
        if task not in self._ports:
            self._ports[task] = TaskPorts(graph, task)
        return self._ports[task]

    def public(self) -> answers.Deployment:
        serving = self.serving
        return {
            "id": self.id,
            "graph": serving.documents.graph_name,
            "placement": serving.documents.placement_name,
            "state": self.state,
            "revision": self.revision,
            "reason": "; ".join(filter(None, (serving.status.reason, self.unmoved))) or None,
            "ranks": _ranks(serving),
            "running": serving.status.running,
            "waiting": serving.status.waiting,
            "restarts": serving.restarts,
            "created_at": self.created_at,
            "tasks": list(self.graph.tasks) if self.graph else [],
            "digest": serving.plan.digest if serving.plan else None,
            "next": _next(self.next) if self.next else None,
            "scratch": self.owner is not None,
        }

    def announce(self) -> None:
        """Publishes a change to everyone who follows the deployment."""
        self.revision += 1
        self.changed.set()
        self.changed = asyncio.Event()
        if self._hub.wanted(self.id):
            self._hub.publish(self.id, {"type": "deployment", **self.public()})

    # ── taps and breakpoints─────────────────────────────────────────────────────────────────────

    def rewatch(self) -> None:
        """Sends the taps, breakpoints and level to its processes and followers, and schedules the next expiry."""
        for version in self.versions:
            version.tell_watched()
        self._hub.publish(self.id, {"type": "watch", **self.watched.public(self.serving.places)})
        self.stop_expiry()
        end = self.watched.next_end
        if end is not None and not self.deleted and not self._shutdown.begun:
            self._expiry = asyncio.get_running_loop().call_later(max(0.0, end - time.monotonic()), self._expire)

    def run_ended(self, run: str) -> None:
        """Removes the taps and breakpoints of this run."""
        self.used = time.monotonic()
        if self.watched.run_ended(run):
            self.rewatch()

    def stop_expiry(self) -> None:
        """Cancels the expiry of taps and breakpoints."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        # This clock may be slightly behind the loop's.
        self.watched.expire(time.monotonic())
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
    """Status of a version's ranks, with the devices and hosts that its plan gives them; no host: the service's own."""
    planned = {entry.rank: entry for entry in version.plan.ranks} if version.plan else {}
    found: list[dict[str, Any]] = []
    for rank in version.status.ranks:
        entry = planned.get(rank.rank)
        places = {"device": entry.device if entry else None, "host": (entry.host if entry else "") or None}
        found.append(msgspec.to_builtins(rank) | places)
        found[-1].pop("type", None)
    return found
