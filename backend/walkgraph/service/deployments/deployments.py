"""The deployments by id, for code that looks them up and need not know how they are made."""

from collections.abc import Iterator
from typing import Any

from walkgraph.errors import NotFound
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deployments.versions import Version
from walkgraph.service.runs.runs import LiveRun


class Deployments:
    def __init__(self) -> None:
        self._managed: dict[str, Managed] = {}

    def __contains__(self, id_: str) -> bool:
        return id_ in self._managed

    def listed(self) -> list[Managed]:
        """All deployments, oldest first."""
        return sorted(self._managed.values(), key=lambda managed: managed.created_at)

    def offered(self) -> list[Managed]:
        """Those that were deployed for clients, oldest first: all but the scratch deployments of pages."""
        return [managed for managed in self.listed() if managed.owner is None]

    def get(self, id_: str) -> Managed:
        """The deployment of this id. Raises NotFound."""
        found = self._managed.get(id_)
        if found is None:
            known = ", ".join(f"`{managed.id}`" for managed in self.offered()) or "none"
            raise NotFound(f"there is no deployment `{id_[:64]}`; there are: {known}")
        return found

    def serving(self, graph: str) -> Version:
        """The version that serves the tasks of a graph to other graphs: of the deployment with its name, or else the
        oldest one. Raises NotFound."""
        offered = [one for one in self.offered() if not one.deleted]
        wanted = [*(one for one in offered if one.id == graph), *offered]
        found = next((one for one in wanted if one.serving.documents.graph_name == graph), None)
        if found is None:
            raise NotFound(f"no deployment serves the graph `{graph[:64]}`; deploy it")
        return found.serving

    def graphs(self) -> Iterator[tuple[str, Any]]:
        """(name, document) of the graph of every deployment; what `serving` finds comes last."""
        for managed in self.offered():
            yield managed.serving.documents.graph_name, managed.serving.documents.graph
        yield from [
            (name, self.serving(name).documents.graph)
            for name in {one.serving.documents.graph_name for one in self.offered() if not one.deleted}
        ]

    def versions(self) -> Iterator[Version]:
        """All living versions of all deployments."""
        return (version for managed in self._managed.values() for version in managed.versions)

    def plans(self) -> list[Plan]:
        """Plans of all versions that hold memory: free memory does not show yet what a loading version will take."""
        return [version.plan for version in self.versions() if version.plan and version.holds_memory]

    def telemetry_of(self, label: str) -> tuple[str, str] | None:
        """(deployment, version) of a telemetry packet; None if the version doesn't serve yet, or is gone."""
        id_, _, version = label.partition(" ")
        managed = self._managed.get(id_)
        seen = [managed.serving, *managed.ending] if managed else []
        return (id_, version) if any(found.taking.knows(label) for found in seen) else None

    def run_ended(self, run: LiveRun) -> None:
        """Notifies the run's deployment that the run has ended."""
        managed = self._managed.get(run.deployment)
        if managed is not None:
            managed.run_ended(run.id)

    def add(self, managed: Managed) -> None:
        self._managed[managed.id] = managed

    def holds(self, managed: Managed) -> bool:
        """True if its id still names this object: it may be gone, and the id in use again."""
        return self._managed.get(managed.id) is managed

    def remove(self, managed: Managed) -> None:
        del self._managed[managed.id]
