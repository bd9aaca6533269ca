"""The border of a selection: what crosses it becomes ports."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.blueprints.sections import Section
from walkgraph.graph.document import Choose, Collect, Edge, Graph, Item, Loop, Map, Merged, Result, Stream, Walk
from walkgraph.graph.structure import Route, WalkStructure

TypeOf = Callable[[str, str], str | None]
"""(node, input port) -> its type as it is written, if it is known."""
_Fed = tuple[str, bool]
"""(port or head inside, `each`)."""


class _Outer(NamedTuple):
    """The part of an edge that stays outside."""

    reference: str
    each: bool = False
    collect: Collect = False


class Border:
    def __init__(self, graph: Graph, facts: WalkStructure, chosen: Section, node: str, type_of: TypeOf) -> None:
        """`node`: the name of the node that will stand for the blueprint."""
        self._graph, self._facts, self._chosen, self._node, self._type_of = graph, facts, chosen, node, type_of
        self._depth = len(chosen.loops)
        self._uses = {e.name for e in facts.entries if e.name and chosen.holds(e.pointer)}
        self._loops = {at.name for at in facts.loops if chosen.holds(at.pointer)}
        self.inputs: dict[str, str] = {}
        self.outputs: dict[str, Result] = {}
        merges = facts.walk.merges.items()
        self.merges: dict[str, Merged] = {key: found for key, found in merges if self._all_inside(found)}
        self._outputs: dict[tuple[str, Collect], str] = {}
        self._heads: dict[str, str] = {}
        self._inner: list[Edge] = []
        self._outer: list[Edge] = []
        self._cross()

    @property
    def inside(self) -> tuple[Edge, ...]:
        return tuple(self._inner)

    def head(self, reference: str) -> str:
        """The value of a choice or the list of a map inside, as the blueprint reads it."""
        return self._heads.get(reference, reference)

    def outer(self, body: tuple[Item, ...]) -> Walk:
        """The Walk around, with this body."""
        results = {key: self._result(key, result) for key, result in self._facts.walk.results.items()}
        merges = {
            key: tuple(self._read(source) for source in sources)
            for key, sources in self._facts.walk.merges.items()
            if key not in self.merges
        }
        changes = {"body": self._renamed(body), "edges": tuple(self._outer), "merges": merges, "results": results}
        return self._facts.walk.model_copy(update=changes)

    def stream(self, stream: Stream) -> Stream:
        if self._facts.name not in stream.walks or not self._is_inside(stream.from_):
            return stream
        return stream.model_copy(update={"from_": self._read(stream.from_)})

    # ── which side ──

    def _all_inside(self, sources: Iterable[str]) -> bool:
        return all(source.partition(".")[0] in self._uses for source in sources)

    def _is_inside(self, reference: str, looped: bool = False) -> bool:
        """`looped`: it is read in a loop inside."""
        owner, _, name = reference.partition(".")
        if owner == "@loop":
            return looped if name == "index" else name in self._loops
        return name in self.merges if owner == "@merge" else owner in self._uses

    def _cross(self) -> None:
        routes: dict[int, Route] = {}
        for route in self._facts.routes:
            routes.setdefault(route.index, route)
        coming: dict[_Outer, dict[_Fed, None]] = {}
        for index, edge in enumerate(self._facts.walk.edges):
            route = routes.get(index)
            target = edge.to.partition(".")[0] in self._uses
            looped = route is not None and route.target.entry is not None
            looped = looped and len(route.target.entry.loops) > self._depth  # type: ignore[union-attr]
            source = self._is_inside(edge.from_, looped) and (target or not edge.from_.startswith("@loop."))
            round_ = source and target and route is not None and route.carried and route.common == self._depth
            if route is None or (source and target and not round_):
                (self._inner if source and target else self._outer).append(edge)
            elif source and not target:
                self._outer.append(self._leaving(edge, route))
            elif target:
                outer, fed = self._entering(edge, route, round_)
                coming.setdefault(outer, {})[fed] = None
            else:
                self._outer.append(edge)
        for at in (*self._facts.choices, *self._facts.maps):
            reference = at.item.choose if isinstance(at.item, Choose) else at.item.map
            if self._chosen.holds(at.entry.pointer) and not self._is_inside(reference):
                coming.setdefault(_Outer(reference), {})[f"@head.{reference}", False] = None
        self._name_inputs(coming)

    # ── inputs ──

    def _entering(self, edge: Edge, route: Route, round_: bool) -> tuple[_Outer, _Fed]:
        entered = max(0, self._depth - route.common)
        outer_each = route.enter == "each" and route.skipped < entered
        fed = edge.to, route.enter == "each" and not outer_each
        if round_:
            return _Outer(f"{self._node}.{self._output(edge, route)}"), fed
        return _Outer(edge.from_, outer_each, edge.collect), fed

    def _name_inputs(self, coming: dict[_Outer, dict[_Fed, None]]) -> None:
        named: dict[frozenset[_Fed], str] = {}
        for outer, fed in coming.items():
            key = frozenset(fed)
            if key not in named:
                named[key] = name = self._input_name(outer.reference, fed)
                self.inputs[name] = self._input_type(outer.reference, fed)
                for target, each in fed:
                    if target.startswith("@head."):
                        self._heads[target.removeprefix("@head.")] = f"@in.{name}"
                    else:
                        self._inner.append(Edge.model_validate({"from": f"@in.{name}", "to": target, "each": each}))
            made = {"from": outer.reference, "to": f"{self._node}.{named[key]}"}
            self._outer.append(Edge.model_validate({**made, "each": outer.each, "collect": outer.collect}))

    def _input_name(self, reference: str, fed: Iterable[_Fed]) -> str:
        owner, _, given = reference.partition(".")
        ports = {target.partition(".")[2] for target, _ in fed if not target.startswith("@head.")}
        name = given if owner in ("@in", "@merge", "@stream") or len(ports) != 1 else next(iter(ports))
        return _free(name, self.inputs)

    def _input_type(self, reference: str, fed: Iterable[_Fed]) -> str:
        if reference.startswith("@loop."):
            return "scalar: int"
        if reference.startswith("@in.") and (known := self._facts.walk.inputs.get(reference.removeprefix("@in."))):
            return known
        for target, each in fed:
            use, _, port = target.partition(".")
            entry = self._facts.uses.get(use)
            found = self._type_of(entry.node, port) if entry is not None and not each else None
            if found is not None:
                return found
        return "tensor"

    # ── outputs ──

    def _output(self, edge: Edge, route: Route) -> str:
        """The output for an edge's source; it takes over `collect` where that gathers the values of loops inside."""
        outer = max(0, self._depth - route.common)
        inner = len(route.left) - outer
        if inner > 0 and outer > 0 and (edge.collect or (edge.each and route.target.kind == "out")):
            raise InvalidInput(f"the edge from `{edge.from_}` collects over loops inside and outside; select both")
        return self._named_output(edge.from_, edge.collect if inner > 0 else False, edge.to)

    def _leaving(self, edge: Edge, route: Route) -> Edge:
        name = self._output(edge, route)
        taken = edge.collect if not self.outputs[name].collect else False
        return edge.model_copy(update={"from_": f"{self._node}.{name}", "collect": taken})

    def _result(self, key: str, result: Result) -> Result:
        if not self._is_inside(result.from_):
            return result
        route = self._facts.named_results.get(key)
        inner = route is not None and len(route.left) > self._depth
        if inner and result.collect and self._depth:
            raise InvalidInput(f"the result `{key}` collects over loops inside and outside; select both")
        name = self._named_output(result.from_, result.collect if inner else False, f"@result.{key}")
        collect = False if inner else result.collect
        return result.model_copy(update={"from_": f"{self._node}.{name}", "collect": collect})

    def _read(self, reference: str) -> str:
        """A reference outside to a value that may come from inside."""
        if not self._is_inside(reference):
            return reference
        return f"{self._node}.{self._named_output(reference, False, '')}"

    def _named_output(self, reference: str, collect: Collect, target: str) -> str:
        if (reference, collect) not in self._outputs:
            owner, _, port = target.partition(".")
            name = port if owner in ("@out", "@result") else reference.partition(".")[2]
            name = _free(name, self.outputs)
            self._outputs[reference, collect] = name
            self.outputs[name] = Result.model_validate({"from": reference, "collect": collect})
        return self._outputs[reference, collect]

    def _renamed(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """The items outside, which may read values from inside as the end of a loop, a choice or a list."""
        return tuple(map(self._outer_item, items))

    def _outer_item(self, item: Item) -> Item:
        changes: dict[str, object] = {}
        if isinstance(item, Loop) and item.until is not None:
            changes["until"] = self._read(item.until)
        if isinstance(item, Map):
            changes["map"] = self._read(item.map)
        if isinstance(item, Choose):
            changes["choose"] = self._read(item.choose)
            changes["cases"] = {value: self._renamed(items) for value, items in item.cases.items()}
            changes["otherwise"] = self._renamed(item.otherwise)
        for key in ("body", "parallel", "sequence"):
            if isinstance(inside := getattr(item, key, None), tuple):
                changes[key] = self._renamed(inside)  # pyright: ignore[reportUnknownArgumentType]
        return item.model_copy(update=changes) if changes else item


def _free(name: str, taken: Iterable[str]) -> str:
    used, found, number = set(taken), name, 2
    while found in used:
        found, number = f"{name[:60]}_{number}", number + 1
    return found
