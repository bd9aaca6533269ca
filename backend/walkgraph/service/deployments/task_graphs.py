"""The graphs whose tasks nodes may call: those that are deployed, as deployed, and those that are stored."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from walkgraph.components import catalogue
from walkgraph.graph.catalogue import Catalogue, Component, is_task
from walkgraph.graph.checks.called import WithTasks, called_graphs
from walkgraph.store import queries
from walkgraph.store.session import Store


@dataclass(frozen=True)
class KnownGraphs:
    """Graphs by name, and which of them are deployed."""

    documents: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deployed: frozenset[str] | None = None
    """None: nobody knows."""

    @property
    def catalogue(self) -> Catalogue:
        """The components as they are now; with the tasks of these graphs, as they were at the first look."""
        return self._with_tasks if self.documents else catalogue()

    @cached_property
    def _with_tasks(self) -> Catalogue:
        return WithTasks(catalogue(), self.documents)

    def listed(self) -> list[Component]:
        """All of the catalogue; tasks that no deployment serves come last."""
        served = self.deployed if self.deployed is not None else self.documents.keys()
        return sorted(
            self.catalogue.values(),
            key=lambda found: is_task(found.name) and found.name.partition("/")[0] not in served,
        )


NO_GRAPHS = KnownGraphs()


class _Kept(NamedTuple):
    etag: str
    document: Any


class TaskGraphs:
    def __init__(self, store: Store, deployed: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """`deployed`: (name, document) of the graph of every deployment."""
        self._store, self._deployed = store, deployed
        self._kept: dict[str, _Kept] = {}

    async def around(self, document: Any) -> KnownGraphs:
        """The graphs that a document may refer to; none if none of its nodes calls a task."""
        return await self.all() if called_graphs(document) else NO_GRAPHS

    async def all(self) -> KnownGraphs:
        rows = await self._store.read(queries.list_documents, "graph")
        self._kept = {row.name: self._document(row.name, row.etag, row.text) for row in rows}
        deployed = dict(self._deployed())
        documents = {name: kept.document for name, kept in self._kept.items()} | deployed
        return KnownGraphs(documents, frozenset(deployed))

    def _document(self, name: str, etag: str, text: str) -> _Kept:
        kept = self._kept.get(name)
        return kept if kept is not None and kept.etag == etag else _Kept(etag, msgspec.json.decode(text))
