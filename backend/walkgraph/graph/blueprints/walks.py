"""One Walk with the copies of blueprints in the place of the nodes that stand for them.

An edge to such a node continues over the edges from that input inside; one from it begins where the blueprint's output
does. Two edges that become one have one set of flags, so what they cross on both sides must be expressible by it:

    out of a loop inside, then out of one outside       last values only
    into a loop outside, then into one inside           slices of the outer loop only
    around a loop outside, from the copy back to it     from a use to itself or to one before it, with no loop inside
                                                        around both
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from walkgraph.graph.blueprints.boxes import Box, Unsuited, items_in
from walkgraph.graph.document import (
    Choose,
    Collect,
    Edge,
    Fork,
    Item,
    Loop,
    Map,
    Parallel,
    Result,
    Sequence,
    Use,
    Walk,
)
from walkgraph.graph.language.expressions import ExpressionError
from walkgraph.graph.problems import nearest
from walkgraph.graph.structure import Entry, Route, WalkStructure, structure

Path = tuple[str, ...]
Tell = Callable[[str, Path, str], None]
"""Called with code, path and message of a fault."""
Spend = Callable[[str, int], None]
"""Called with what is added to the graph, and how many; raises TooLarge."""
NOWHERE = "@merge.lost--"
"""Stands for a value that is missing; the check is silent about it, as a piece of the Walk is broken."""


@dataclass(frozen=True)
class Standing:
    """A use of a node that stands for a blueprint."""

    name: str
    box: Box
    entry: Entry
    loops: Mapping[str, str]
    """Loop of the blueprint -> its flat name."""

    def joined(self, name: str) -> str:
        """The flat name of a use or a merge."""
        return self.box.naming.joined(self.name, name)

    def reference(self, inner: str) -> str:
        """The flat form of a reference of the blueprint."""
        owner, _, port = inner.partition(".")
        match owner:
            case "@loop":
                return f"@loop.{self.loops.get(port, port)}"
            case "@merge":
                return f"@merge.{self.joined(port)}"
            case _:
                return inner if owner.startswith("@") else f"{self.joined(owner)}.{port}"


@dataclass(frozen=True)
class _Source:
    """The ends in the flat Walk at which an edge begins."""

    reference: str
    left: int = 0
    """Loops of the blueprint that it leaves."""
    collect: Collect = False


@dataclass(frozen=True)
class _Target:
    """The ends in the flat Walk at which an edge ends."""

    reference: str
    entered: int = 0
    """Loops of the blueprint that it enters."""
    each: bool = False
    mapped: bool = False
    """A map that it enters takes its list from the same place, so `each` means that map's items."""


class OpenedWalk:
    def __init__(self, name: str, walk: Walk, boxes: Mapping[str, Box], tell: Tell, spend: Spend) -> None:
        self.name, self.walk, self._tell, self._spend = name, walk, tell, spend
        self.facts: WalkStructure = structure(walk, name)
        self.uses = {
            use: Standing(use, box, entry, {at.name: box.naming.loop(use, at.name) for at in box.inside.loops})
            for use, entry in self.facts.uses.items()
            if (box := boxes.get(entry.node)) is not None
        }
        self.origins: dict[Path, Path] = {}
        """Path in the flat graph -> path in the graph."""
        self.unfed: dict[tuple[str, str], tuple[Path, str]] = {}
        """(use, port) in the flat Walk that an input would feed if it had an edge -> place and message."""
        self.broken = False
        """A piece is missing."""

    def flat(self) -> Walk:
        """The Walk with copies."""
        body = self._list(self.walk.body, ("walks", self.name, "body"), ("walks", self.name, "body"))
        return self.walk.model_copy(
            update={"body": body, "merges": self._merges(), "edges": self._edges(), "results": self._results()}
        )

    def offered(self) -> frozenset[str]:
        """The flat uses whose outputs a blueprint gives away."""
        return frozenset(
            one.joined(route.source.name) for one in self.uses.values() for route in one.box.inside.results
        )

    def reference(self, outer: str, path: Path) -> str:
        """The flat form of a reference that takes one value, such as that of `until`."""
        source = self._source(outer, path)
        if source is None:
            return NOWHERE
        if source.collect:
            return self._refuse(path, f"`{outer}` collects the values of a loop inside, which only an edge takes")
        return source.reference

    def _refuse(self, path: Path, reason: str) -> str:
        self.broken = True
        advice = "let a node of the blueprint or of the Walk take the value there, and go on from its output"
        self._tell("blueprint_route", path, f"{reason}; {advice}")
        return NOWHERE

    # ── bodies ──

    def _list(self, items: tuple[Item, ...], new: Path, old: Path) -> tuple[Item, ...]:
        found: list[Item] = []
        for index, item in enumerate(items):
            here = (*old, str(index))
            there = (*new, str(len(found)))
            standing = _standing(self.uses, item)
            if standing is None:
                self.origins[there] = here
                found.append(self._outer(item, there, here))
            elif item.when is not None:
                found.append(self._sequence(standing, item, there, here))
            else:
                for number, copy in enumerate(self._copies(standing)):
                    self.origins[(*new, str(len(found)))] = _item_of(standing, number)
                    found.append(copy)
        return tuple(found)

    def _branch(self, item: Item, new: Path, old: Path) -> Item:
        """An item that must stay one item: a branch of `parallel`."""
        standing = _standing(self.uses, item)
        self.origins[new] = old
        if standing is None:
            return self._outer(item, new, old)
        if len(standing.box.blueprint.body) > 1 or item.when is not None:
            return self._sequence(standing, item, new, old)
        self.origins[new] = _item_of(standing, 0)
        return self._copies(standing)[0]

    def _sequence(self, standing: Standing, item: Item, new: Path, old: Path) -> Item:
        copies = self._copies(standing)
        self.origins[new] = old
        for number in range(len(copies)):
            self.origins[(*new, "sequence", str(number))] = _item_of(standing, number)
        return Sequence.model_construct(sequence=tuple(copies), when=item.when)

    def _copies(self, standing: Standing) -> list[Item]:
        self._spend("items", items_in(standing.box.blueprint.body))
        return [self._inner(standing, one) for one in standing.box.blueprint.body]

    def _outer(self, item: Item, new: Path, old: Path) -> Item:
        """An item of the Walk itself, with copies inside."""
        match item:
            case Parallel():
                inside = enumerate(item.parallel)
                branches = [
                    self._branch(one, (*new, "parallel", str(i)), (*old, "parallel", str(i))) for i, one in inside
                ]
                return item.model_copy(update={"parallel": tuple(branches)})
            case Sequence():
                inside = self._list(item.sequence, (*new, "sequence"), (*old, "sequence"))
                return item.model_copy(update={"sequence": inside})
            case Loop():
                until = self.reference(item.until, (*old, "until")) if item.until is not None else None
                return item.model_copy(
                    update={"until": until, "body": self._list(item.body, (*new, "body"), (*old, "body"))}
                )
            case Map():
                head = self.reference(item.map, (*old, "map"))
                return item.model_copy(
                    update={"map": head, "body": self._list(item.body, (*new, "body"), (*old, "body"))}
                )
            case Choose():
                head = self.reference(item.choose, (*old, "choose"))
                cases = {
                    value: self._list(items, (*new, "cases", value), (*old, "cases", value))
                    for value, items in item.cases.items()
                }
                otherwise = self._list(item.otherwise, (*new, "otherwise"), (*old, "otherwise"))
                return item.model_copy(update={"choose": head, "cases": cases, "otherwise": otherwise})
            case _:
                return item

    def _inner(self, at: Standing, item: Item) -> Item:
        """An item of a blueprint, under its flat names."""

        def text(expression: str | None) -> str | None:
            return None if expression is None else self._expression(at, expression)

        def several(items: tuple[Item, ...]) -> tuple[Item, ...]:
            return tuple(self._inner(at, one) for one in items)

        match item:
            case Use():
                name, node = at.joined(item.name), at.box.joined(item.use)
                changes: Mapping[str, object] = {"use": node, "as_": name if name != node else None}
            case Fork():
                changes = {"fork": at.box.state(item.fork), "into": at.box.state(item.into)}
            case Parallel():
                changes = {"parallel": several(item.parallel)}
            case Sequence():
                changes = {"sequence": several(item.sequence)}
            case Loop():
                until = at.reference(item.until) if item.until is not None else None
                changes = {"loop": at.loops[item.loop], "times": text(item.times), "until": until}
                changes = {**changes, "body": several(item.body)}
            case Map():
                changes = {"map": self._head(at, item.map), "as_": at.loops[item.loop], "bound": text(item.bound)}
                changes = {**changes, "width": text(item.width), "body": several(item.body)}
            case Choose():
                cases = {value: several(items) for value, items in item.cases.items()}
                changes = {"choose": self._head(at, item.choose), "cases": cases, "otherwise": several(item.otherwise)}
        return item.model_copy(update={**changes, "when": text(item.when)})

    def _expression(self, at: Standing, text: str) -> str:
        try:
            return at.box.expression(text, at.loops)
        except Unsuited as error:
            self._tell("bad_param", ("nodes", at.box.name, "params"), str(error))
        except ExpressionError:
            pass  # reported at the expression itself
        return text

    def _head(self, at: Standing, reference: str) -> str:
        """The value of a choice, or the list of a map: the outer source, where it is an input of the blueprint."""
        owner, _, port = reference.partition(".")
        if owner != "@in":
            return at.reference(reference)
        fed = self._into.get((at.name, port), [])
        path = ("walks", self.name, *at.entry.pointer.split("/")[1:])
        if not fed:
            self.broken = True
            self._tell("unconnected_input", path, _nothing_feeds(at, port))
            return NOWHERE
        edge = self.walk.edges[fed[0]]
        place = ("walks", self.name, "edges", str(fed[0]))
        if len(fed) > 1 or edge.each or edge.collect:
            return self._refuse(place, f"`{at.name}.{port}` decides what runs inside, and takes one plain edge")
        return self.reference(edge.from_, (*place, "from"))

    @cached_property
    def _into(self) -> Mapping[tuple[str, str], list[int]]:
        """(use, port) of a node that stands for a blueprint -> the edges into it."""
        found: dict[tuple[str, str], list[int]] = {}
        for index, edge in enumerate(self.walk.edges):
            owner, _, port = edge.to.partition(".")
            if owner in self.uses:
                found.setdefault((owner, port), []).append(index)
        return found

    # ── edges ──

    def _merges(self) -> dict[str, tuple[str, ...]]:
        at = ("walks", self.name, "merges")
        found = {
            name: tuple(self.reference(one, (*at, name, str(i))) for i, one in enumerate(sources))
            for name, sources in self.walk.merges.items()
        }
        for one in self.uses.values():
            for name, sources in one.box.blueprint.merges.items():
                flat = one.joined(name)
                self.origins[(*at, flat)] = ("blueprints", one.box.key, "merges", name)
                found[flat] = tuple(one.reference(source) for source in sources)
        return found

    def _results(self) -> dict[str, Result]:
        found: dict[str, Result] = {}
        for name, result in self.walk.results.items():
            path = ("walks", self.name, "results", name)
            source = self._source(result.from_, (*path, "from"))
            if source is None:
                continue
            entry = self.facts.uses.get(result.from_.partition(".")[0])
            if source.left and entry is not None and entry.loops and (source.collect or result.collect):
                self._refuse(path, f"`{result.from_}` leaves loops inside and outside of the blueprint")
                continue
            collect = source.collect or result.collect
            found[name] = result.model_copy(update={"from_": source.reference, "collect": collect})
        return found

    def _edges(self) -> tuple[Edge, ...]:
        found: list[Edge] = []
        routes: dict[int, Route] = {}
        for route in self.facts.routes:
            routes.setdefault(route.index, route)
        at = ("walks", self.name, "edges")
        for index, edge in enumerate(self.walk.edges):
            for made in self._joined(edge, routes.get(index), (*at, str(index))):
                self.origins[(*at, str(len(found)))] = (*at, str(index))
                found.append(made)
        for one in self.uses.values():
            self._spend("edges", len(one.box.blueprint.edges))
            for index, edge in enumerate(one.box.blueprint.edges):
                if edge.from_.startswith("@in."):
                    continue
                self.origins[(*at, str(len(found)))] = ("blueprints", one.box.key, "edges", str(index))
                changes = {"from_": one.reference(edge.from_), "to": one.reference(edge.to)}
                found.append(edge.model_copy(update=changes))
            for port in one.box.blueprint.inputs:
                if (one.name, port) not in self._into:
                    place = ("walks", self.name, *one.entry.pointer.split("/")[1:])
                    feeds = (route.target for route in _from_input(one, port))
                    self.unfed |= {(one.joined(at.name), at.port): (place, _nothing_feeds(one, port)) for at in feeds}
        return tuple(found)

    def _joined(self, edge: Edge, route: Route | None, path: Path) -> list[Edge]:
        """An edge of the Walk, continued into and out of copies."""
        source, targets = self._source(edge.from_, (*path, "from")), self._targets(edge.to, (*path, "to"))
        if source is None or route is None:
            return []
        if (edge.from_.partition(".")[0] in self.uses or edge.to.partition(".")[0] in self.uses) and (
            fault := _around(self.uses, edge, route)
        ):
            self._refuse(path, fault)
            return []
        found: list[Edge] = []
        self._spend("edges", len(targets))
        for target in targets:
            flags = _flags(edge, route, source, target)
            if isinstance(flags, str):
                self._refuse(path, f"`{edge.from_}` to `{edge.to}` {flags}")
                continue
            each, collect = flags
            changes = {"from_": source.reference, "to": target.reference, "each": each, "collect": collect}
            found.append(edge.model_copy(update=changes))
        return found

    def _source(self, reference: str, path: Path) -> _Source | None:
        owner, _, port = reference.partition(".")
        at = self.uses.get(owner)
        if at is None:
            return _Source(reference)
        route = at.box.inside.named_results.get(port)
        if route is None:
            self.broken = True
            advice = nearest(port, at.box.blueprint.outputs)
            self._tell("unknown_port", path, f"`{at.box.key}` has no output `{port}`; {advice}")
            return None
        output = at.box.blueprint.outputs[port]
        if output.from_.startswith("@") and not output.from_.startswith("@merge."):
            self.broken = True
            message = f"`{port}` is given by `{output.from_}`; let it be a port of a node inside"
            self._tell("bad_reference", ("blueprints", at.box.key, "outputs", port, "from"), message)
            return None
        return _Source(at.reference(output.from_), len(route.left), output.collect)

    def _targets(self, reference: str, path: Path) -> list[_Target]:
        owner, _, port = reference.partition(".")
        at = self.uses.get(owner)
        if at is None:
            return [_Target(reference)]
        if port not in at.box.blueprint.inputs:
            self.broken = True
            advice = nearest(port, at.box.blueprint.inputs)
            self._tell("unknown_port", path, f"`{at.box.key}` has no input `{port}`; {advice}")
        lists = {one.item.loop: one.item.map for one in at.box.inside.maps}
        return [
            _Target(
                at.reference(route.edge.to),
                len(route.entered),
                route.edge.each,
                any(lists.get(loop) == f"@in.{port}" for loop in route.entered),
            )
            for route in _from_input(at, port)
        ]


def _standing(uses: Mapping[str, Standing], item: Item) -> Standing | None:
    """The use that an item is, if its node stands for a blueprint."""
    found = uses.get(item.name) if isinstance(item, Use) else None
    return found if found is not None and found.entry.item is item else None


def _item_of(at: Standing, number: int) -> Path:
    return ("blueprints", at.box.key, "body", str(number))


def _from_input(at: Standing, port: str) -> list[Route]:
    """The edges inside that go out from an input of the blueprint."""
    return [r for r in at.box.inside.routes if r.source.kind == "in" and r.source.name == port]


def _nothing_feeds(at: Standing, port: str) -> str:
    kind = at.box.blueprint.inputs.get(port)
    return f"nothing feeds `{at.name}.{port}`{f' (`{kind}`)' if kind else ''}; draw an edge to it"


def _flags(edge: Edge, route: Route, source: _Source, target: _Target) -> tuple[bool, Collect] | str:
    """`each` and `collect` of the flat edge, or the reason that it can't have both edges' flags."""
    sent = route.target.kind == "out"
    flagged = bool(edge.collect or (edge.each and sent))
    if source.left and route.left and (source.collect or flagged):
        return "leaves loops inside and outside of the blueprint"
    if edge.collect and source.collect:
        return "collects what the output has collected already"
    if sent and edge.each and source.collect:
        return "sends values one by one that the output has collected"
    if target.each and (edge.each or (route.entered and not target.mapped)):
        return "enters loops outside and inside of the blueprint"
    return edge.each or target.each, edge.collect or source.collect


def _around(uses: Mapping[str, Standing], edge: Edge, route: Route) -> str | None:
    """The reason that an edge from a copy back to itself can't be drawn in the flat Walk."""
    owner, _, output = edge.from_.partition(".")
    back, _, port = edge.to.partition(".")
    if owner != back or owner not in uses:
        return None
    at = uses[owner]
    if not route.carried:
        return f"`{owner}` feeds itself, and no loop is around it"
    source = at.box.inside.named_results[output].source.entry
    for inner in _from_input(at, port):
        target = inner.target.entry
        if source is None or target is None:
            continue
        if target.index > source.index:
            return f"`{output}` is made before `{port}` is taken inside, so the value would not go round the loop"
        if source.loop_indices[:1] and source.loop_indices[:1] == target.loop_indices[:1]:
            return f"one loop inside makes `{output}` and takes `{port}`, so the value would go round that loop"
    return None
