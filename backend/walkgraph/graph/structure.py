"""Derived facts of a graph, shared by checks, planner, drawings and editor. Pure; total on a well-formed document.

A Walk's body is flattened to *entries* (uses and forks) in program order, each with the loops and parallel branches
around it. Its edges become *routes*, with what happens on the way, outermost loop first:

    common     the loops that hold both ends
    carried    the target is not after the source: the value goes to the next iteration of the innermost common loop
    leave      the source's loops beyond `common`: the last value, each as it comes, or all stacked
    enter      the target's loops beyond `common`: the value is held for all iterations, feeds the first only (because
               the port also has an edge carried at one of them), or slice i feeds iteration i: of the map whose list
               it is, otherwise of the first loop entered

One route may at once leave inner loops, be carried at a common loop and enter other inner loops. An edge from a merge
has one route for each port that it merges. A choice takes its value over a route too: it is an entry, in its place
before the entries of its branches. So does a map, which is a loop besides, with its list's length for a count.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from walkgraph.graph.document import (
    Choose,
    Edge,
    Fork,
    Graph,
    Item,
    Loop,
    Map,
    Parallel,
    Result,
    Sequence,
    Use,
    Walk,
)
from walkgraph.graph.language.expressions import ExpressionError, name_innermost

EndKind = Literal["use", "in", "loop", "stream", "merge", "out", "result", "choice", "map"]
Leave = Literal["none", "last", "each", "collect"]
Enter = Literal["none", "held", "first", "each"]
PARTS = ("text", "image", "audio", "video", "state", "actions")


@dataclass(frozen=True, slots=True)
class LoopAt:
    """A loop and its place in a body."""

    index: int
    """Position in the order in which loops open."""
    item: Loop | Map
    parent: int
    """Index of the loop around it, or -1."""
    loops: tuple[str, ...]
    """Names of the loops around it and its own, outermost first."""
    whens: tuple[str, ...]
    cases: tuple[tuple[int, int], ...]
    """The branches of choices around it, outermost first."""
    pointer: str

    @property
    def name(self) -> str:
        return self.item.loop


Branch = tuple[int, int]
"""A choice by its number in the Walk, and one of its branches: a case by its position, or `otherwise` after them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A use, a fork, a choice or the head of a map, and its place in a body."""

    index: int
    """Program order in the Walk, from 0."""
    item: Use | Fork | Choose | Map
    name: str
    """The use's name in edges; empty for all others."""
    node: str
    """The use's node; empty for all others."""
    loops: tuple[str, ...]
    """Names of the loops around it, outermost first."""
    loop_indices: tuple[int, ...]
    branches: tuple[tuple[int, int], ...]
    """(parallel, branch) pairs around it, outermost first; parallels are numbered in the order in which they open."""
    whens: tuple[str, ...]
    """All conditions around it and its own; all must hold. Those of enclosing items name their loops, never
    `@loop.index`."""
    cases: tuple[Branch, ...]
    """The branches of choices around it, outermost first."""
    pointer: str
    """JSON pointer in the Walk's normal form (`/body/0/body/1`)."""


@dataclass(frozen=True, slots=True)
class ChoiceAt:
    """A choice and its place in a body."""

    index: int
    """Position in the order in which choices open."""
    item: Choose
    entry: Entry
    routes: tuple["Route", ...]
    """The value by which it chooses; several if it is a merge."""

    def branch(self, value: str) -> int:
        """The branch that a value takes."""
        return list(self.item.cases).index(value) if value in self.item.cases else len(self.item.cases)


@dataclass(frozen=True, slots=True)
class MapAt:
    """A map and its place in a body."""

    item: Map
    loop: int
    """Index of its loop."""
    entry: Entry
    """Its head: it takes the list, before the entries of the body."""
    routes: tuple["Route", ...]
    """Its list; several if it is a merge."""


@dataclass(frozen=True, slots=True)
class End:
    kind: EndKind
    name: str
    """Name of the use, Walk input, loop, stream, merge without ports, output, result, choice (its number) or map (its
    loop's number)."""
    port: str = ""
    """Port of a use; otherwise empty."""
    entry: Entry | None = None
    """Entry of a use, a choice or a map; None if the body has no such use."""


@dataclass(frozen=True, slots=True)
class Route:
    """An edge or a result of a Walk, with the loops it crosses."""

    index: int
    """Position in the Walk's edges; -1 for a result, the value of a choice or the list of a map."""
    edge: Edge
    source: End
    target: End
    common: int
    backward: bool
    """The target is not after the source in the body; with `common` 0 no loop can carry the value."""
    leave: Leave
    enter: Enter
    left: tuple[str, ...]
    """The loops left, outermost first."""
    entered: tuple[str, ...]
    pointer: str
    merge: str = ""
    """The merge that the edge comes from, of which this route is one port."""
    skipped: int = 0
    """For `each`: the number of loops that it enters before the one whose iterations get the slices."""

    @property
    def carried(self) -> bool:
        return self.backward and self.common > 0


@dataclass(frozen=True)
class WalkStructure:
    name: str
    walk: Walk
    loops: tuple[LoopAt, ...]
    entries: tuple[Entry, ...]
    """Uses, forks, choices and maps in program order."""
    choices: tuple[ChoiceAt, ...]
    maps: tuple[MapAt, ...]
    routes: tuple[Route, ...]
    """One per edge, in the author's order; one per merged port for an edge from a merge."""
    results: tuple[Route, ...]
    """One per result, or per merged port."""

    @cached_property
    def uses(self) -> Mapping[str, Entry]:
        """Uses by name; the first where two share a name."""
        found: dict[str, Entry] = {}
        for entry in self.entries:
            if entry.name:
                found.setdefault(entry.name, entry)
        return found

    @cached_property
    def named_results(self) -> Mapping[str, Route]:
        """Results by name; by its first port where a merge gives it."""
        return {route.target.name: route for route in reversed(self.results)}

    def ports(self, reference: str) -> tuple[End, ...]:
        """The ends that a reference stands for: the ports behind a merge, otherwise one."""
        return tuple(source for _, source in _Edges(self.walk, self.uses, {}).sources(reference))

    @cached_property
    def taken(self) -> tuple[Route, ...]:
        """Everything that takes a value: edges, results, choices and maps."""
        heads = (*self.choices, *self.maps)
        return (*self.routes, *self.results, *(route for head in heads for route in head.routes))

    @cached_property
    def map_loops(self) -> frozenset[str]:
        """Names of the loops that are maps."""
        return frozenset(at.item.loop for at in self.maps)

    @cached_property
    def feeds(self) -> Mapping[tuple[str, str], tuple[Route, ...]]:
        """(use, port) -> the routes into it."""
        found: dict[tuple[str, str], list[Route]] = {}
        for route in self.routes:
            if route.target.kind == "use":
                found.setdefault((route.target.name, route.target.port), []).append(route)
        return {port: tuple(routes) for port, routes in found.items()}


def structure(walk: Walk, name: str = "") -> WalkStructure:
    """Derive the facts of one Walk. Ends with an unknown name have no entry and stand in no loop."""
    body = _Body()
    for position, item in enumerate(walk.body):
        body.add(item, _Around(), f"/body/{position}")
    uses: dict[str, Entry] = {}
    for entry in body.entries:
        if entry.name:
            uses.setdefault(entry.name, entry)
    edges = _Edges(walk, uses, {item.loop: item.map for _, _, item in body.maps})
    routes = [route for i, edge in enumerate(walk.edges) for route in edges.routes(i, edge, f"/edges/{i}")]
    results = tuple(route for key, result in walk.results.items() for route in edges.result(key, result))
    choices = tuple(edges.choice(i, entry, item) for i, (entry, item) in enumerate(body.choices))
    maps = tuple(edges.map(loop, entry, item) for loop, entry, item in body.maps)
    found = tuple(body.loops), tuple(body.entries), choices, maps, _with_first(routes), results
    return WalkStructure(name, walk, *found)


def structures(graph: Graph) -> dict[str, WalkStructure]:
    return {name: structure(walk, name) for name, walk in graph.walks.items()}


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops, branches and conditions around an item."""

    cases: tuple[Branch, ...] = ()

    loops: tuple[str, ...] = ()
    loop_indices: tuple[int, ...] = ()
    branches: tuple[tuple[int, int], ...] = ()
    whens: tuple[str, ...] = ()


class _Body:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.loops: list[LoopAt] = []
        self.choices: list[tuple[Entry, Choose]] = []
        self.maps: list[tuple[int, Entry, Map]] = []
        self.parallels = 0

    def add(self, item: Item, around: _Around, at: str) -> None:
        match item:
            case Use() | Fork():
                whens = around.whens if item.when is None else (*around.whens, item.when)
                self.add_entry(item, replace(around, whens=whens), at)
            case Choose():
                self.add_choice(item, _guarded(around, item.when), at)
            case Parallel():
                self.add_parallel(item, _guarded(around, item.when), at)
            case Sequence():
                inside = _guarded(around, item.when)
                for position, child in enumerate(item.sequence):
                    self.add(child, inside, f"{at}/sequence/{position}")
            case Loop():
                self.add_loop(item, _guarded(around, item.when), at)
            case Map():
                inside = _guarded(around, item.when)
                self.maps.append((len(self.loops), self.add_entry(item, inside, at), item))
                self.add_loop(item, inside, at)

    def add_entry(self, item: Use | Fork | Choose | Map, around: _Around, at: str) -> Entry:
        name, node = (item.name, item.use) if isinstance(item, Use) else ("", "")
        place = (around.loops, around.loop_indices, around.branches, around.whens, around.cases, at)
        self.entries.append(Entry(len(self.entries), item, name, node, *place))
        return self.entries[-1]

    def add_parallel(self, item: Parallel, around: _Around, at: str) -> None:
        number = self.parallels
        self.parallels += 1
        for branch, child in enumerate(item.parallel):
            inside = replace(around, branches=(*around.branches, (number, branch)))
            self.add(child, inside, f"{at}/parallel/{branch}")

    def add_loop(self, item: Loop | Map, around: _Around, at: str) -> None:
        index = len(self.loops)
        parent = around.loop_indices[-1] if around.loop_indices else -1
        inside = replace(around, loops=(*around.loops, item.loop), loop_indices=(*around.loop_indices, index))
        self.loops.append(LoopAt(index, item, parent, inside.loops, around.whens, around.cases, at))
        for position, child in enumerate(item.body):
            self.add(child, inside, f"{at}/body/{position}")

    def add_choice(self, item: Choose, around: _Around, at: str) -> None:
        number = len(self.choices)
        self.choices.append((self.add_entry(item, around, at), item))
        places = [*(f"{at}/cases/{segment(value)}" for value in item.cases), f"{at}/otherwise"]
        for branch, (items, place) in enumerate(zip(item.branches, places, strict=True)):
            inside = replace(around, cases=(*around.cases, (number, branch)))
            for position, child in enumerate(items):
                self.add(child, inside, f"{place}/{position}")


def segment(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def segments(pointer: str) -> tuple[str, ...]:
    """The names in a JSON pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _guarded(around: _Around, when: str | None) -> _Around:
    if when is None:
        return around
    if around.loops:
        with suppress(ExpressionError):  # a check reports it at the expression
            when = name_innermost(when, around.loops[-1])
    return replace(around, whens=(*around.whens, when))


# ── edges ───────────────────────────────────────────────────────────────────────────────────────


class _Edges:
    """Makes the routes of a Walk: of edges, results, choices and maps, each through a merge if it comes from one."""

    def __init__(self, walk: Walk, uses: Mapping[str, Entry], lists: Mapping[str, str]) -> None:
        """`lists`: map -> the reference to its list."""
        self.walk, self.uses, self.lists = walk, uses, lists

    def routes(self, index: int, edge: Edge, at: str) -> Iterator[Route]:
        target = end(edge.to, self.uses, target=True)
        for merge, source in self.sources(edge.from_):
            route = _route(index, edge, source, target, at, merge)
            own = [at for at, loop in enumerate(route.entered) if self.lists.get(loop) == edge.from_]
            yield replace(route, skipped=own[0]) if own and route.enter == "each" else route

    def result(self, name: str, result: Result) -> Iterator[Route]:
        edge = Edge.model_validate({"from": result.from_, "to": f"@result.{name}", "collect": result.collect})
        for merge, source in self.sources(result.from_):
            left = source.entry.loops if source.entry else ()
            leave: Leave = "none" if not left else "collect" if result.collect else "last"
            pointer = f"/results/{name}"
            target = End("result", name)
            yield Route(-1, edge, source, target, 0, False, leave, "none", left, (), pointer, merge)

    def choice(self, index: int, entry: Entry, item: Choose) -> ChoiceAt:
        return ChoiceAt(index, item, entry, self.head("choice", index, entry, item.choose, "choose"))

    def map(self, loop: int, entry: Entry, item: Map) -> MapAt:
        return MapAt(item, loop, entry, self.head("map", loop, entry, item.map, "map"))

    def head(self, kind: EndKind, number: int, entry: Entry, source: str, key: str) -> tuple[Route, ...]:
        """The routes into a choice or a map. `key`: that of the source in the item."""
        edge = Edge.model_validate({"from": source, "to": f"@{kind}.n{number}"})
        target, at = End(kind, str(number), "", entry), f"{entry.pointer}/{key}"
        return tuple(_route(-1, edge, found, target, at, merge) for merge, found in self.sources(source))

    def sources(self, reference: str) -> Iterator[tuple[str, End]]:
        """(merge, port) for each port behind a reference; one, without a merge, if it names none."""
        found = end(reference, self.uses, target=False)
        if found.kind != "merge" or found.name not in self.walk.merges:
            yield "", found
            return
        for merged in dict.fromkeys(self.walk.merges[found.name]):
            port = end(merged, self.uses, target=False)
            if port.kind == "use":
                yield found.name, port


def _route(index: int, edge: Edge, source: End, target: End, at: str, merge: str) -> Route:
    there = target.entry.loops if target.entry else ()
    here = _source_loops(source, there)
    common = _common(here, there)
    backward = source.entry is not None and target.entry is not None and target.entry.index <= source.entry.index
    left, entered = here[common:], there[common:]
    leave: Leave = "none"
    if left:
        leave = "collect" if edge.collect else "each" if edge.each and target.kind == "out" else "last"
    enter: Enter = "none"
    if entered:
        enter = "each" if edge.each else "held"
    return Route(index, edge, source, target, common, backward, leave, enter, left, entered, at, merge)


def end(reference: str, uses: Mapping[str, Entry], *, target: bool) -> End:
    """Resolve a reference. An `@` word without a meaning here reads as an unknown use."""
    owner, _, name = reference.partition(".")
    words: dict[str, EndKind] = (
        {"@out": "out"}
        if target
        else {
            "@in": "in",
            "@loop": "loop",
            "@stream": "stream",
            "@merge": "merge",
        }
    )
    if owner in words:
        return End(words[owner], name)
    return End("use", owner, name, uses.get(owner))


def _source_loops(source: End, target_loops: tuple[str, ...]) -> tuple[str, ...]:
    if source.kind == "use":
        return source.entry.loops if source.entry else ()
    if source.kind == "loop" and source.name == "index":
        return target_loops
    if source.kind == "loop" and source.name in target_loops:
        return target_loops[: target_loops.index(source.name) + 1]
    return ()


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    if a == b:
        return len(a)
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _with_first(routes: list[Route]) -> tuple[Route, ...]:
    """Turn held values into first values where the port also has an edge carried at one of the loops they enter."""
    carried: dict[tuple[str, str], int] = {}
    for route in routes:
        if route.carried:
            key = (route.target.name, route.target.port)
            carried[key] = max(carried.get(key, 0), route.common)
    return tuple(
        replace(r, enter="first")
        if r.enter == "held" and carried.get((r.target.name, r.target.port), 0) > r.common
        else r
        for r in routes
    )


# ── partitions ────────────────────────────────────────────────────────────────────────


def partitions(graph: Graph) -> tuple[frozenset[str], ...]:
    """Groups of nodes that share Walks, directly or through others; streams join none. In the order of their first
    nodes."""
    parent = {name: name for name in graph.nodes}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for walk in graph.walks.values():
        nodes = [name for name in nodes_of(walk) if name in parent]
        for name in nodes[1:]:
            parent[root(name)] = root(nodes[0])
    groups: dict[str, list[str]] = {}
    for name in graph.nodes:
        groups.setdefault(root(name), []).append(name)
    return tuple(frozenset(group) for group in groups.values())


def nodes_of(walk: Walk) -> tuple[str, ...]:
    """Nodes that a Walk uses, each once, in order."""
    found: dict[str, None] = {}
    items = list(reversed(walk.body))
    while items:
        match items.pop():
            case Use(use=node):
                found[node] = None
            case Parallel(parallel=inside) | Sequence(sequence=inside) | Loop(body=inside) | Map(body=inside):
                items.extend(reversed(inside))
            case Choose() as choose:
                items.extend(child for branch in reversed(choose.branches) for child in reversed(branch))
            case Fork():
                pass
    return tuple(found)


def apart(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> int | None:
    """The choice that keeps two places apart, as they are in different branches of it; None if both may be reached."""
    for a, b in zip(one, other, strict=False):
        if a != b:
            return a[0] if a[0] == b[0] else None
    return None
