"""Reference implementation of Walks: one thread, plain Python values. Every faster implementation must agree with it.

It reads only the document, not `graph.structure` or the plan's tables: it walks bodies recursively, and looks up the
values of ports in the record of all calls so far.

It also defines: a skipped use counts as a call without outputs; the value that leaves a loop is that of the source's
last call there, so there is none if that call was skipped; collected values are the present ones that `drop_last`
does not drop, in a flat list. The items of a map are worked on one after the other; a `list` collected from a map is
there even if it is empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walkgraph.graph.document import Choose, Collect, Edge, Fork, Item, Loop, Map, Parallel, Result, Use, Walk
from walkgraph.graph.document import Sequence as Items
from walkgraph.graph.language.expressions import evaluate, parse
from walkgraph.placement.tables import BOUND, STOP

Vector = tuple[int, ...]
Function = Callable[[dict[str, Any], Vector], Mapping[str, Any]]
"""(port -> value, iteration) -> (port -> value). Absent values are not in the mapping."""
Out = tuple[Vector, Any]
"""(iteration, value). The iteration is empty except for `each` edges."""


def run_walk(
    walk: Walk,
    functions: Mapping[str, Function],
    params: Mapping[str, Any],
    inputs: Mapping[str, Any],
    fork: Callable[[str, str], None] = lambda source, target: None,
) -> tuple[dict[str, list[Out]], dict[str, Any]]:
    """(outputs by name, in order; results by name). `functions`: by node. Inputs from streams are not supported."""
    run = _walked(walk, functions, params, inputs, fork)
    outs: dict[str, list[Out]] = {}
    for edge in run.edges:
        if edge.to.startswith("@out."):
            outs.setdefault(edge.to.removeprefix("@out."), []).extend(run.leaving(edge))
    # The branches of a merge take turns.
    outs = {name: sorted(found, key=lambda out: out[0]) for name, found in outs.items()}
    results = {name: run.result(result) for name, result in walk.results.items()}
    return outs, {name: value for name, value in results.items() if value is not _NOTHING}


def loop_ends(
    walk: Walk,
    functions: Mapping[str, Function],
    params: Mapping[str, Any],
    inputs: Mapping[str, Any],
    reasons: Mapping[str, Sequence[str]],
) -> dict[str, tuple[int, str]]:
    """Loop with an `until` -> (iterations in which a use that may end it was called, why its last entry ended).
    `reasons`: port that ends loops -> ports that say why."""
    run = _walked(walk, functions, params, inputs, lambda source, target: None)
    found: dict[str, tuple[int, str]] = {}
    for loop, inside in run.passed:
        for use, port in (edge.from_.split(".") for edge in run.sources(loop.until or "")):
            if outputs := run.calls.get(use, {}).get(inside):
                named = next((name for name in reasons.get(port, ()) if outputs.get(name)), STOP)
                found[loop.loop] = found.get(loop.loop, (0, ""))[0] + 1, named if outputs.get(port) else BOUND
    return found


def _walked(
    walk: Walk,
    functions: Mapping[str, Function],
    params: Mapping[str, Any],
    inputs: Mapping[str, Any],
    fork: Callable[[str, str], None],
) -> "_Run":
    run = _Run(walk, functions, params, inputs, fork)
    run.items(walk.body, (), on=True)
    return run


_NOTHING = object()


@dataclass
class _Run:
    walk: Walk
    functions: Mapping[str, Function]
    params: Mapping[str, Any]
    inputs: Mapping[str, Any]
    fork: Callable[[str, str], None]
    calls: dict[str, dict[Vector, Mapping[str, Any]]] = field(
        default_factory=dict[str, dict[Vector, Mapping[str, Any]]]
    )
    """Use -> iteration -> outputs, in the order of the calls."""
    dropped: list[tuple[tuple[str, ...], Vector]] = field(default_factory=list[tuple[tuple[str, ...], Vector]])
    """Loops and indices of the iterations whose `each` and `collect` values are suppressed."""
    passed: list[tuple[Loop, Vector]] = field(default_factory=list[tuple[Loop, Vector]])
    """Iterations of loops with an `until`, in order."""
    mapped: set[tuple[str, Vector]] = field(default_factory=set[tuple[str, Vector]])
    """Maps that were gone through, with the iteration of the loops around them."""
    places: dict[str, tuple[int, tuple[str, ...]]] = field(init=False)
    """Use -> its position in the body and the loops around it."""

    lists: dict[str, set[str]] = field(init=False)
    """Map -> the ports that give its list."""
    edges: list[Edge] = field(init=False)
    """The Walk's edges; for an edge from a merge one from each of its ports."""

    def __post_init__(self) -> None:
        self.edges = [
            edge.model_copy(update={"from_": source.from_})
            for edge in self.walk.edges
            for source in self.sources(edge.from_)
        ]
        self.places, self.lists = {}, {}
        _place(self.walk.body, (), self.places)
        for item in _maps(self.walk.body):
            self.lists[item.loop] = {source.from_ for source in self.sources(item.map)}

    # ── the body ──

    def items(self, items: Sequence[Item], around: tuple[tuple[str, int], ...], *, on: bool) -> None:
        for item in items:
            runs = on and self.holds(item.when, around)
            match item:
                case Use():
                    self.call(item, around, on=runs)
                case Fork() if runs:
                    self.fork(item.fork, item.into)
                case Parallel():
                    self.items(item.parallel, around, on=runs)
                case Items():
                    self.items(item.sequence, around, on=runs)
                case Loop():
                    self.loop(item, around, on=runs)
                case Map():
                    self.map(item, around, on=runs)
                case Choose():
                    self.choose(item, around, on=runs)
                case Fork():
                    pass

    def choose(self, item: Choose, around: tuple[tuple[str, int], ...], *, on: bool) -> None:
        """Run the branch that the value takes. The uses of the others count as called once, without outputs."""
        at = _vector(around)
        value = _text(self.taken(item, item.choose, at)) if on else None
        taken = list(item.cases).index(value) if value in item.cases else len(item.cases)
        for number, branch in enumerate(item.branches):
            if on and number == taken:
                self.items(branch, around, on=True)
            else:
                inside: dict[str, tuple[int, tuple[str, ...]]] = {}
                _place(branch, (), inside)
                for use in inside:
                    self.calls.setdefault(use, {})[at] = {}

    def taken(self, item: Choose | Map, source: str, at: Vector) -> Any:
        """The value that a choice or a map takes."""
        name = _head(item)
        return self.port(name, [edge.model_copy(update={"to": f"{name}.value"}) for edge in self.sources(source)], at)

    def map(self, item: Map, around: tuple[tuple[str, int], ...], *, on: bool) -> None:
        """Go through the items; raises ValueError if there are more than its bound."""
        at = _vector(around)
        found: Any = self.taken(item, item.map, at) if on else _NOTHING
        count = 0 if found is _NOTHING else len(found)
        if count > int(evaluate(parse(item.bound), self.params, _env(around))):
            raise ValueError(f"{count} items are too many")
        if on:
            self.mapped.add((item.loop, at))
        for index in range(count):
            self.items(item.body, (*around, (item.loop, index)), on=True)

    def loop(self, loop: Loop, around: tuple[tuple[str, int], ...], *, on: bool) -> None:
        for index in range(int(evaluate(parse(loop.times), self.params, _env(around)))):
            inside = (*around, (loop.loop, index))
            self.items(loop.body, inside, on=on)
            self.passed += [(loop, _vector(inside))] if loop.until is not None else []
            ports = [edge.from_.split(".") for edge in self.sources(loop.until)] if loop.until is not None else []
            if any(self.calls.get(use, {}).get(_vector(inside), {}).get(port) is True for use, port in ports):
                if loop.drop_last:
                    self.dropped.append((tuple(name for name, _ in inside), _vector(inside)))
                return

    def call(self, use: Use, around: tuple[tuple[str, int], ...], *, on: bool) -> None:
        at = _vector(around)
        outputs: Mapping[str, Any] = {}
        if on:
            ports: dict[str, list[Edge]] = {}
            for edge in self.edges:
                if edge.to.split(".")[0] == use.name:
                    ports.setdefault(edge.to.split(".")[1], []).append(edge)
            found = {port: self.port(use.name, edges, at) for port, edges in ports.items()}
            outputs = self.functions[use.use]({p: v for p, v in found.items() if v is not _NOTHING}, at)
        self.calls.setdefault(use.name, {})[at] = outputs

    def holds(self, when: str | None, around: tuple[tuple[str, int], ...]) -> bool:
        return when is None or evaluate(parse(when), self.params, _env(around)) is True

    # ── values ──

    def sources(self, reference: str) -> list[Edge]:
        """Edges, to nowhere, from what a reference stands for: a port, or those of a merge."""
        merged = self.walk.merges.get(reference.partition(".")[2], ()) if reference.startswith("@merge.") else ()
        return [Edge.model_validate({"from": one, "to": "@out.none"}) for one in merged or (reference,)]

    def port(self, use: str, edges: Sequence[Edge], at: Vector) -> Any:
        """The value of a port: from the carried edges of the innermost loop with a previous iteration, else from the
        plain ones. Of several edges, those of a merge, at most one has a value."""
        carried: dict[int, list[Edge]] = {}
        for edge in edges:
            common = self.carried(edge, use)
            if common == 0 or at[common - 1] > 0:
                carried.setdefault(common, []).append(edge)
        best = max(carried, default=0)
        values = [self.over(edge, use, at, best) for edge in carried.get(best, ())]
        return next((value for value in values if value is not _NOTHING), _NOTHING)

    def over(self, edge: Edge, use: str, at: Vector, carried: int) -> Any:
        """The value of one edge. `carried`: as in `carried`."""
        if carried:
            return self.enter(edge, use, self.of(edge, (*at[: carried - 1], at[carried - 1] - 1)), at, carried)
        owner, name = edge.from_.split(".")
        if owner == "@in":
            return self.enter(edge, use, self.inputs.get(name, _NOTHING), at, 0)
        if owner == "@loop":
            return at[-1] if name == "index" else at[self.places[use][1].index(name)]
        common = self.common(owner, use)
        return self.enter(edge, use, self.of(edge, at[:common]), at, common)

    def common(self, a: str, b: str) -> int:
        pairs = zip(self.places[a][1], self.places[b][1], strict=False)
        return next(
            (i for i, (x, y) in enumerate(pairs) if x != y), min(len(self.places[a][1]), len(self.places[b][1]))
        )

    def carried(self, edge: Edge, use: str) -> int:
        """Number of loops around both ends of a carried edge; 0 for other edges."""
        owner = edge.from_.split(".")[0]
        if owner.startswith("@") or self.places[use][0] > self.places[owner][0]:
            return 0
        return self.common(owner, use)

    def of(self, edge: Edge, prefix: Vector) -> Any:
        """The source's value at these outer indices, as it leaves its other loops."""
        return self.left(edge.from_, prefix, edge.collect)

    def left(self, source: str, prefix: Vector, collect: Collect) -> Any:
        owner, port = source.split(".")
        if owner == "@in":
            return self.inputs.get(port, _NOTHING)
        calls = {at: out for at, out in self.calls.get(owner, {}).items() if at[: len(prefix)] == prefix}
        if not collect or len(self.places[owner][1]) == len(prefix):
            return list(calls.values())[-1].get(port, _NOTHING) if calls else _NOTHING
        values = [out[port] for at, out in calls.items() if port in out and not self.suppressed(owner, at)]
        whole = collect == "list" and (self.places[owner][1][len(prefix)], prefix) in self.mapped
        return values if values or whole else _NOTHING

    def enter(self, edge: Edge, use: str, value: Any, at: Vector, common: int) -> Any:
        if not edge.each or value is _NOTHING or len(at) == common:
            return value
        entered = self.places[use][1][common:]
        own = (i for i, loop in enumerate(entered) if edge.from_ in self.lists.get(loop, ()))
        index = at[common + next(own, 0)]
        return value[index] if index < len(value) else _NOTHING

    def leaving(self, edge: Edge) -> list[Out]:
        owner, _, port = edge.from_.partition(".")
        if not edge.each or owner.startswith("@") or not self.places[owner][1]:
            value = self.left(edge.from_, (), edge.collect)
            return [] if value is _NOTHING else [((), value)]
        calls = self.calls.get(owner, {}).items()
        return [(at, out[port]) for at, out in calls if port in out and not self.suppressed(owner, at)]

    def suppressed(self, use: str, at: Vector) -> bool:
        return (self.places[use][1], at) in self.dropped

    def result(self, result: Result) -> Any:
        values = [self.left(edge.from_, (), result.collect) for edge in self.sources(result.from_)]
        return next((value for value in values if value is not _NOTHING), _NOTHING)


def _place(items: Sequence[Item], loops: tuple[str, ...], found: dict[str, tuple[int, tuple[str, ...]]]) -> None:
    for item in items:
        match item:
            case Use():
                found[item.name] = (len(found), loops)
            case Parallel():
                _place(item.parallel, loops, found)
            case Items():
                _place(item.sequence, loops, found)
            case Loop():
                _place(item.body, (*loops, item.loop), found)
            case Map():
                found[_head(item)] = (len(found), loops)
                _place(item.body, (*loops, item.loop), found)
            case Choose():
                found[_head(item)] = (len(found), loops)
                for branch in item.branches:
                    _place(branch, loops, found)
            case Fork():
                pass


def _maps(items: Sequence[Item]) -> Iterator[Map]:
    for item in items:
        match item:
            case Parallel():
                yield from _maps(item.parallel)
            case Items():
                yield from _maps(item.sequence)
            case Loop():
                yield from _maps(item.body)
            case Map():
                yield item
                yield from _maps(item.body)
            case Choose():
                for branch in item.branches:
                    yield from _maps(branch)
            case Use() | Fork():
                pass


def _head(item: Choose | Map) -> str:
    """A name for a choice or a map that no use has."""
    return f"head {id(item)}"


def _text(value: Any) -> str | None:
    if value is _NOTHING:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _vector(around: tuple[tuple[str, int], ...]) -> Vector:
    return tuple(index for _, index in around)


def _env(around: tuple[tuple[str, int], ...]) -> dict[str, int]:
    env = dict(around)
    return env | {"index": around[-1][1]} if around else env
