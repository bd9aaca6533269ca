"""Any JSON value -> the graph made of its well-formed parts, and a problem for each of the other parts.

Broken parts are taken out in the smallest possible piece (an unknown key, an edge, an item, a node), so that the rest
can still be judged. `Draft.broken` names the pieces, so that their absence isn't reported too.
"""

import json
from functools import cached_property
from typing import Any, NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from walkgraph.graph.document import FORMAT, Graph
from walkgraph.graph.problems import Problem, pointer
from walkgraph.graph.reading.guard import arr, faults, obj
from walkgraph.graph.reading.shorthand import expand, locate
from walkgraph.graph.reading.wording import EMPTY, describe, kind_of

Path = tuple[str, ...]
MAX_PROBLEMS = 500
_ROUNDS = 70
_GONE = object()


class Draft:
    """A document read as far as it can be."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.problems: list[Problem] = []
        self.broken: frozenset[Path] = frozenset()
        """Pieces that were taken out, by their path in the normal form of the given document."""
        self.graph = Graph.model_construct(name="graph")
        self._tree: Any = None
        self._kept: dict[int, list[int]] = {}
        self._read(given)

    def place(self, path: Path) -> str:
        """JSON pointer in the given document to a place in `graph`."""
        return pointer(locate(self.given, _original(self._tree, path, self._kept) if self.broken else path))

    def is_broken(self, *path: str) -> bool:
        """True if exactly this piece was taken out."""
        return path in self.broken

    def has_gaps(self, *path: str) -> bool:
        """True if this piece or an entry of it was taken out; fields of its entries don't count."""
        return path in self._gaps

    @cached_property
    def _gaps(self) -> frozenset[Path]:
        return frozenset(
            piece[:depth]
            for piece in self.broken
            for depth in range(len(piece) + 1)
            if len(piece) <= depth + 1 or piece[-1] not in _FIELDS
        )

    def _read(self, given: Any) -> None:
        found = faults(given)
        for fault in found:
            self.problems.append(Problem(fault.code, pointer(fault.path), fault.message))
        if not found and type(given) is not dict:
            self.problems.append(Problem("wrong_type", "", f"a graph is an object, not {kind_of(given)}"))
        if self.problems:
            return
        expanded = expand(given)
        graph, errors = _validate(expanded)
        if graph is None:
            graph = self._mend(expanded, errors)
        self.graph = graph

    def _mend(self, expanded: Any, errors: list[ErrorDetails]) -> Graph:
        self._tree = _copy(expanded)
        self.problems = _problems(errors, expanded, self.given)
        compact, graph = expanded, None
        broken: set[Path] = set()
        taken: set[Path] = set()
        for _ in range(_ROUNDS):
            pieces = {_piece(error, compact) for error in errors}
            self._kept = {}
            found = ((_original(self._tree, piece.path, self._kept), piece.kept) for piece in pieces)
            places = {_untaken(place, taken): kept for place, kept in found}
            if () in places:
                break
            for place in sorted(places, key=len, reverse=True):
                _take_out(self._tree, place)
            taken.update(places)
            broken.update(place for place, kept in places.items() if not kept)
            compact = _compact(self._tree)
            graph, errors = _validate(compact)
            if graph is not None:
                break
        self._kept = {}
        self.broken = frozenset(broken)
        return graph or Graph.model_construct(name="graph")


def _validate(document: Any) -> tuple[Graph | None, list[ErrorDetails]]:
    try:
        return Graph.model_validate_json(json.dumps(document), strict=True), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


# ── places ──────────────────────────────────────────────────────────────────────────────────────


def _resolve(error: ErrorDetails, document: Any) -> tuple[Path, tuple[str, ...]]:
    """An error's place in the document, and the rest of its location that is no place there (a missing key, a type's
    name)."""
    path: list[str | int] = []
    value = document
    location = list(error["loc"])
    tagged = False
    while location:
        part = location[0]
        if not tagged and isinstance(part, str) and _is_tagged(path):
            tagged = True
        elif part in obj(value) if isinstance(part, str) else part < len(arr(value)):
            value, tagged = value[part], False
            path.append(part)
        else:
            break
        location.pop(0)
    return tuple(str(part) for part in path), tuple(str(part) for part in location)


def _is_tagged(path: list[str | int]) -> bool:
    """True if the next part of an error's location names a union's member: a kind of item, step or policy."""
    if len(path) < 3:
        return False
    if path[0] == "streams":
        return path[2:] == ["chunks"]
    if path[0] in ("walks", "blueprints"):
        return path[2] == "body" and isinstance(path[-1], int)
    if path[0] == "tasks" and path[2] == "steps":
        return len(path) == 3 or (isinstance(path[-1], int) and (path[-2] != "first" or path[-3] == "cases"))
    return False


class _Piece(NamedTuple):
    path: Path
    """The piece to take out."""
    kept: bool
    """Nothing is missing without the piece, as its key meant nothing."""


_SECTIONS = ("weights", "states", "nodes", "walks", "streams", "tasks", "blueprints")
_VOID = ("label", "description", "session", "layout")
_FIELDS = ("times", "until", "when", "drop_last", "each", "collect", "width", "capacity", "min", "max", "choices")
"""Fields without which an entry can still be judged."""
_PARTS = {
    "nodes": ("params", "states"),
    "walks": ("inputs", "results", "edges", "body", "merges"),
    "tasks": ("inputs", "params", "steps"),
    "blueprints": ("inputs", "outputs", "params", "weights", "states", "nodes", "edges", "body", "merges"),
}


def _piece(error: ErrorDetails, document: Any) -> _Piece:
    """The smallest piece whose removal fixes this error."""
    path, rest = _resolve(error, document)
    section = next(iter(path), "name")
    if error["type"] == "extra_forbidden":
        return _Piece(path, kept=True)
    if section in ("name", "format"):
        return _Piece((*path, *rest[:1]), kept=True)
    if path[-1] in _VOID and len(path) in (1, 3):
        return _Piece(path, kept=True)
    if error["type"] == "missing" and rest in (("times",), ("body",)):
        return _Piece((*path, rest[0]) if rest == ("times",) or len(path) == 2 else _deepest(path), kept=False)
    field = next((i + 1 for i in _field_places(path) if path[i] in _FIELDS), 0)
    if field:
        return _Piece(path[:field], kept=False)
    if len(path) > 2 and path[2] in _PARTS.get(section, ()):
        return _Piece(_deepest(path), kept=False)
    return _Piece(path[: 2 if section in _SECTIONS else 1], kept=False)


def _field_places(path: tuple[str, ...]) -> range:
    """The positions in a path where names are fields of an entry, not the author's names."""
    if path[:1] == ("states",):
        return range(2, len(path))
    if path[2:3] == ("nodes",):
        return range(0)
    named = path[2:3] in (("inputs",), ("params",), ("results",), ("outputs",), ("states",), ("weights",))
    return range(4 if named else 3, len(path)) if path[:1] in (("walks",), ("tasks",), ("blueprints",)) else range(0)


def _deepest(path: Path) -> Path:
    """The smallest piece of a node, Walk or task around `path`: an entry of a section, an edge, an item, a step."""
    if path[2] in ("body", "steps"):
        return path[: max((i + 1 for i in range(3, len(path)) if path[i].isdigit()), default=3)]
    return path[:4]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in obj(value).items()}
    return [_copy(child) for child in arr(value)] if isinstance(value, list | tuple) else value


def _compact(value: Any) -> Any:
    """The tree without the pieces taken out; required fields are filled in."""
    if isinstance(value, list):
        return [_compact(child) for child in arr(value) if child is not _GONE]
    return {k: _compact(v) for k, v in obj(value).items() if v is not _GONE} if isinstance(value, dict) else value


def _original(tree: Any, path: Path, kept: dict[int, list[int]]) -> Path:
    """The path before anything was taken out of lists; `kept` maps a list's identity to the indices left of it."""
    found: list[str] = []
    for part in path:
        if isinstance(tree, list):
            children = cast(list[Any], tree)
            if id(children) not in kept:
                kept[id(children)] = [i for i, child in enumerate(children) if child is not _GONE]
            index = kept[id(children)][int(part)]
            found.append(str(index))
            tree = children[index]
        else:
            found.append(part)
            tree = obj(tree).get(part)
    return tuple(found)


def _untaken(place: Path, taken: set[Path]) -> Path:
    """`place`, or what is around it if that was taken out before without effect: every round takes something out."""
    while place and place in taken:
        place = place[:-1]
    return place


def _take_out(tree: Any, path: Path) -> None:
    parent = tree
    for part in path[:-1]:
        parent = arr(parent)[int(part)] if isinstance(parent, list) else obj(parent).get(part)
    if isinstance(parent, list):
        cast(list[Any], parent)[int(path[-1])] = _GONE
    elif isinstance(parent, dict):
        cast(dict[str, Any], parent)[path[-1]] = _filled(path)


def _filled(path: Path) -> Any:
    """The value of a required field that was taken out."""
    match path:
        case ("name",):
            return "graph"
        case ("format",):
            return FORMAT
        case ("walks" | "blueprints", _, "body") | ("tasks", _, "steps"):
            return []
        case ("walks" | "blueprints", _, "body", *_, "times") | ("tasks", _, "steps", *_, "times"):
            return "1"
        case _:
            return _GONE


# ── problems ────────────────────────────────────────────────────────────────────────────────────


def _problems(errors: list[ErrorDetails], document: Any, given: Any) -> list[Problem]:
    found: dict[tuple[str, str], Problem] = {}
    for error in errors[:MAX_PROBLEMS]:
        path, rest = _resolve(error, document)
        code, message = describe(error, path, rest, document)
        problem = Problem(code, pointer(locate(given, path)), message)
        distinct = message if code == "missing_key" else ""
        found.setdefault((problem.pointer, distinct), problem)
    if len(errors) > MAX_PROBLEMS:
        message = f"there are more than {MAX_PROBLEMS} problems; fix these first"
        found["", "too_many"] = Problem("too_many", "", message)
    places = [problem.pointer for problem in found.values()]
    # A list whose entries are broken counts as empty too.
    return [p for p in found.values() if p.message != EMPTY or not _holds_one(p.pointer, places)]


def _holds_one(place: str, places: list[str]) -> bool:
    return any(other.startswith(f"{place}/") for other in places)
