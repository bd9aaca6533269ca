"""A draft read without its blueprints: the checks judge the flat graph, and tell of places in the document."""

from walkgraph.graph.blueprints.flattening import Fault, flatten
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem
from walkgraph.graph.reading.wellformed import Draft, Path


class FlatDraft:
    """The answers of a draft to the checks, with a copy of its blueprint for each node that stands for one."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._flat = draft, flatten(draft.graph)
        self.graph: Graph = self._flat.graph

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Those of the blueprints alone."""
        return tuple(map(self._told, self._flat.faults))

    @property
    def broken(self) -> bool:
        """True if a piece was taken out."""
        return bool(self._draft.broken or self._flat.broken)

    def place(self, path: Path) -> str:
        """JSON pointer in the given document to a place in `graph`."""
        return self._draft.place(self._flat.origin(path))

    def is_broken(self, *path: str) -> bool:
        """True if exactly this piece was taken out."""
        return self._draft.is_broken(*self._flat.origin(path))

    def has_gaps(self, *path: str) -> bool:
        """True if this piece or an entry of it was taken out; fields of its entries don't count."""
        if path[:1] == ("walks",) and (self._flat.broken if len(path) == 1 else path[1] in self._flat.broken):
            return True
        return self._draft.has_gaps(*self._flat.origin(path)) or (
            bool(self._flat.origins) and self._draft.has_gaps("blueprints")
        )

    def unfed(self, walk: str, use: str, port: str) -> tuple[str, str] | None:
        """Pointer and message for a port that nothing feeds, where an input of a blueprint would."""
        found = self._flat.unfed.get((walk, use, port))
        return None if found is None else (self._draft.place(found[0]), found[1])

    def is_offered(self, walk: str, use: str) -> bool:
        """True if a blueprint gives outputs of this use away, so that some may stay unread."""
        return (walk, use) in self._flat.offered

    def _told(self, fault: Fault) -> Problem:
        return Problem(fault.code, self._draft.place(fault.path), fault.message, fault.severity)
