"""The runs of one version of a deployment that wait for a person."""

import asyncio
import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import msgspec

from walkgraph.graph.document import Graph
from walkgraph.graph.steps import approvals_of
from walkgraph.service.deployments.supervisor import Process
from walkgraph.service.deployments.version_runs import Resuming, VersionRuns
from walkgraph.service.runs.runs import LiveRun
from walkgraph.wire import messages as m

Waits = Callable[[LiveRun, m.Waits, str], None]
"""Called with a run that has come to an approval, and the hash of its graph."""


class HasDocuments(Protocol):
    @property
    def graph(self) -> dict[str, Any]: ...


class AskingVersion(Protocol):
    """A version of a deployment, as its waiting runs see it."""

    runs: VersionRuns
    graph: Graph | None

    @property
    def documents(self) -> HasDocuments: ...

    def serving_process(self) -> Process: ...


class Asking:
    def __init__(self, version: AskingVersion, waits: Waits) -> None:
        self._version, self._waits = version, waits
        self._asking: frozenset[str] | None = None

    @cached_property
    def graph_hash(self) -> str:
        """Hash of the graph without its layout: a run that waits for a person goes on only in the same one."""
        document = {key: value for key, value in self._version.documents.graph.items() if key != "layout"}
        return hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()

    def forget(self) -> None:
        """Notes that the version serves other documents."""
        self._asking = None
        self.__dict__.pop("graph_hash", None)

    def asks(self, task: str) -> bool:
        """True if a task waits for a person."""
        if self._asking is None and self._version.graph is not None:
            tasks = self._version.graph.tasks
            self._asking = frozenset(name for name, found in tasks.items() if approvals_of(found))
        return task in (self._asking or ())

    def waits(self, run: LiveRun, message: m.Waits) -> None:
        self._waits(run, message, self.graph_hash)

    def resume(
        self, run: LiveRun, message: m.Submit, decided: m.Decided, begun: Callable[[], None]
    ) -> asyncio.Future[None]:
        """Submits the part of a run behind an approval, as `VersionRuns.resume`. Raises Unavailable if the version
        isn't serving."""
        send = self._version.serving_process().send
        return self._version.runs.resume(message, Resuming(run, send, decided, begun))
