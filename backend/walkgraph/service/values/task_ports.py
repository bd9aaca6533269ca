"""The kinds that the ports behind a task give its inputs and outputs: the same for all requests to a graph, so found
once, as it takes a pass over the structure of Walks."""

from collections.abc import Sequence

from walkgraph.components import catalogue
from walkgraph.graph.document import Graph
from walkgraph.placement.request import task_of
from walkgraph.placement.selection import OutputSource, sources_in
from walkgraph.service.values.tensors import Kind, kind_of


class TaskPorts:
    def __init__(self, graph: Graph, name: str) -> None:
        """Raises NotFound if the graph has no such task."""
        self.graph = graph
        self.task = task_of(graph, name)
        self._name = name
        self._kinds: dict[str, Kind | None] = {}
        self._sources: dict[str, Sequence[OutputSource]] = {}

    def kind(self, name: str) -> Kind | None:
        """The kind of numbers that the ports behind an input take; None if they leave it open."""
        if name not in self._kinds:
            self._kinds[name] = kind_of(self.graph, self._name, name)
        return self._kinds[name]

    def sources(self, name: str) -> Sequence[OutputSource]:
        """The sources of an output."""
        if name not in self._sources:
            self._sources[name] = sources_in(self.graph, self.task, catalogue(), name)
        return self._sources[name]
