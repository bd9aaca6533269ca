"""Derived facts of a graph, shared by checks, planner, drawings and editor. Pure; total on a well-formed document.

A Walk's body is flattened to *entries* (uses and forks) in program order, each with the loops and parallel branches
around it. Its edges become *routes*, with what happens on the way, outermost loop first:

    common     the loops that hold both ends
    carried    the target is not after the source: the value goes to the next iteration of the innermost common loop
    leave      the source's loops beyond `common`: the last value, each as it comes, or all stacked
    enter      the target's loops beyond `common`: the value is held for all iterations, feeds the first only (because
               the port also has an edge carried at one of them), or slice i feeds iteration i

One route may at once leave inner loops, be carried at a common loop and enter other inner loops.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Literal, NamedTuple

from walkgraph.graph.document import (
    Edge,
    FirstStep,
    Fork,
    ForStep,
    Graph,
    Item,
    Loop,
    Parallel,
    Result,
    Sequence,
    Step,
    Task,
    Use,
    Walk,
    WalkStep,
)
from walkgraph.graph.language.expressions import ExpressionError, name_innermost

EndKind = Literal["use", "in", "loop", "stream", "out", "result"]
Leave = Literal["none", "last", "each", "collect"]
Enter = Literal["none", "held", "first", "each"]
PARTS = ("text", "image", "audio", "state", "actions")


@dataclass(frozen=True, slots=True)
class LoopAt:
    """A loop and its place in a body."""

    index: int
    """Position in the order in which loops open."""
    item: Loop
    parent: int
    """Index of the loop around it, or -1."""
    loops: tuple[str, ...]
    """Names of the loops around it and its own, outermost first."""
    whens: tuple[str, ...]
    pointer: str

    @property
    def name(self) -> str:
        return self.item.loop


@dataclass(frozen=True, slots=True)
class Entry:
    """A use or a fork and its place in a body."""

    index: int
    """Program order in the Walk, from 0."""
    item: Use | Fork
    name: str
    """The use's name in edges; empty for a fork."""
    node: str
    """The use's node; empty for a fork."""
    loops: tuple[str, ...]
    """Names of the loops around it, outermost first."""
    loop_indices: tuple[int, ...]
    branches: tuple[tuple[int, int], ...]
    """(parallel, branch) pairs around it, outermost first; parallels are numbered in the order in which they open."""
    whens: tuple[str, ...]
    """All conditions around it and its own; all must hold. Those of enclosing items name their loops, never
    `@loop.index`."""
    pointer: str
    """JSON pointer in the Walk's normal form (`/body/0/body/1`)."""


@dataclass(frozen=True, slots=True)
class End:
    kind: EndKind
    name: str
    """Name of the use, Walk input, loop, stream, output or result."""
    port: str = ""
    """Port of a use; otherwise empty."""
    entry: Entry | None = None
    """Entry of a use; None if the body has no such use."""


@dataclass(frozen=True, slots=True)
class Route:
    """An edge or a result of a Walk, with the loops it crosses."""

    index: int
    """Position in the Walk's edges; -1 for a result."""
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

    @property
    def carried(self) -> bool:
        return self.backward and self.common > 0


@dataclass(frozen=True)
class WalkStructure:
    name: str
    walk: Walk
    loops: tuple[LoopAt, ...]
    entries: tuple[Entry, ...]
    """Uses and forks in program order."""
    routes: tuple[Route, ...]
    """One per edge, in the author's order."""
    results: tuple[Route, ...]

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
        return {route.target.name: route for route in self.results}

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
    plain = [_route(i, edge, uses, f"/edges/{i}") for i, edge in enumerate(walk.edges)]
    results = tuple(_result(key, result, uses) for key, result in walk.results.items())
    return WalkStructure(name, walk, tuple(body.loops), tuple(body.entries), _with_first(plain), results)


def structures(graph: Graph) -> dict[str, WalkStructure]:
    return {name: structure(walk, name) for name, walk in graph.walks.items()}


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops, branches and conditions around an item."""

    loops: tuple[str, ...] = ()
    loop_indices: tuple[int, ...] = ()
    branches: tuple[tuple[int, int], ...] = ()
    whens: tuple[str, ...] = ()


class _Body:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.loops: list[LoopAt] = []
        self.parallels = 0

    def add(self, item: Item, around: _Around, at: str) -> None:
        match item:
            case Use() | Fork():
                whens = around.whens if item.when is None else (*around.whens, item.when)
                name, node = (item.name, item.use) if isinstance(item, Use) else ("", "")
                place = (around.loops, around.loop_indices, around.branches, whens, at)
                entry = Entry(len(self.entries), item, name, node, *place)
                self.entries.append(entry)
            case Parallel():
                self.add_parallel(item, _guarded(around, item.when), at)
            case Sequence():
                inside = _guarded(around, item.when)
                for position, child in enumerate(item.sequence):
                    self.add(child, inside, f"{at}/sequence/{position}")
            case Loop():
                self.add_loop(item, _guarded(around, item.when), at)

    def add_parallel(self, item: Parallel, around: _Around, at: str) -> None:
        number = self.parallels
        self.parallels += 1
        for branch, child in enumerate(item.parallel):
            inside = replace(around, branches=(*around.branches, (number, branch)))
            self.add(child, inside, f"{at}/parallel/{branch}")

    def add_loop(self, item: Loop, around: _Around, at: str) -> None:
        index = len(self.loops)
        parent = around.loop_indices[-1] if around.loop_indices else -1
        inside = replace(around, loops=(*around.loops, item.loop), loop_indices=(*around.loop_indices, index))
        self.loops.append(LoopAt(index, item, parent, inside.loops, around.whens, at))
        for position, child in enumerate(item.body):
            self.add(child, inside, f"{at}/body/{position}")


def _guarded(around: _Around, when: str | None) -> _Around:
    if when is None:
        return around
    if around.loops:
        with suppress(ExpressionError):  # a check reports it at the expression
            when = name_innermost(when, around.loops[-1])
    return replace(around, whens=(*around.whens, when))


# ── edges ───────────────────────────────────────────────────────────────────────────────────────


def _route(index: int, edge: Edge, uses: Mapping[str, Entry], at: str) -> Route:
    source, target = end(edge.from_, uses, target=False), end(edge.to, uses, target=True)
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
    return Route(index, edge, source, target, common, backward, leave, enter, left, entered, at)


def _result(name: str, result: Result, uses: Mapping[str, Entry]) -> Route:
    edge = Edge.model_validate({"from": result.from_, "to": f"@result.{name}", "collect": result.collect})
    source = end(result.from_, uses, target=False)
    left = source.entry.loops if source.entry else ()
    leave: Leave = "none" if not left else "collect" if result.collect else "last"
    pointer = f"/results/{name}"
    return Route(-1, edge, source, End("result", name), 0, False, leave, "none", left, (), pointer)


def end(reference: str, uses: Mapping[str, Entry], *, target: bool) -> End:
    """Resolve a reference. An `@` word without a meaning here reads as an unknown use."""
    owner, _, name = reference.partition(".")
    words: dict[str, EndKind] = {"@out": "out"} if target else {"@in": "in", "@loop": "loop", "@stream": "stream"}
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


# ── partitions and steps ────────────────────────────────────────────────────────────────────────


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
            case Parallel(parallel=inside) | Sequence(sequence=inside) | Loop(body=inside):
                items.extend(reversed(inside))
            case Fork():
                pass
    return tuple(found)


@dataclass(frozen=True, slots=True)
class StepAt:
    """A Walk's step and its place in a task."""

    index: int
    """Position in the task, list by list."""
    step: WalkStep
    lane: str
    """The partition's list; empty where the task has a single list."""
    part: str | None
    """Inside `for parts`: the modality of the part."""
    choice: int | None
    """Inside `first`: its number in the task; the steps of one `first` exclude each other."""
    pointer: str

    @property
    def name(self) -> str:
        """The name that later bindings use."""
        return self.step.as_ or self.step.walk


def lanes(task: Task) -> Mapping[str, tuple[Step, ...]]:
    """The lists of steps, each run in order; a single list has the empty name."""
    return task.steps if isinstance(task.steps, dict) else {"": task.steps}


def steps_of(task: Task) -> tuple[StepAt, ...]:
    """Every Walk's step, lane by lane in order. Pointers are relative to the task."""
    found: list[StepAt] = []
    numbers = count(), count()
    for lane, steps in lanes(task).items():
        found.extend(_steps(steps, lane, None, numbers, f"/steps/{lane}" if lane else "/steps"))
    return tuple(found)


class Handing(NamedTuple):
    """A Walk's result that a later step takes as an input."""

    at: StepAt
    """The step that takes it."""
    input: str
    walk: str
    """The Walk whose result it is."""
    result: str


def handings(task: Task) -> Iterator[Handing]:
    """Every result that a task's steps take from other steps, binding by binding; one per Walk that a name may mean."""
    steps = steps_of(task)
    walks: dict[str, dict[str, None]] = {}
    for at in steps:
        for name in (at.name, at.step.walk):
            walks.setdefault(name, {})[at.step.walk] = None
    for at in steps:
        for name, binding in at.step.with_.items():
            owner, _, result = str(binding).partition(".")
            yield from (Handing(at, name, walk, result) for walk in walks.get(owner, ()) if result)


Numbers = tuple["count[int]", "count[int]"]
"""Counters of steps and of choices."""


def _steps(steps: tuple[Step, ...], lane: str, part: str | None, numbers: Numbers, at: str) -> Iterator[StepAt]:
    indices, choices = numbers
    for position, step in enumerate(steps):
        here = f"{at}/{position}"
        match step:
            case WalkStep():
                yield StepAt(next(indices), step, lane, part, None, here)
            case FirstStep():
                choice = next(choices)
                for i, option in enumerate(step.first):
                    yield StepAt(next(indices), option, lane, part, choice, f"{here}/first/{i}")
            case ForStep():
                for kind, inner in for_parts(step).items():
                    yield from _steps(inner, lane, kind, numbers, f"{here}/{kind}")


def for_parts(step: ForStep) -> dict[str, tuple[Step, ...]]:
    """Modality of a part -> its steps."""
    parts = {"text": step.text, "image": step.image, "audio": step.audio, "state": step.state, "actions": step.actions}
    return {kind: steps for kind, steps in parts.items() if steps is not None}
