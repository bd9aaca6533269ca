"""Random Walks that `check` accepts, with functions for their nodes."""

import random
from collections.abc import Sequence as Choices
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast
from zlib import crc32

from walkgraph.graph.catalogue import Catalogue, Component, port
from walkgraph.graph.document import (
    Choose,
    Collect,
    Edge,
    Graph,
    Item,
    Loop,
    Map,
    Node,
    Parallel,
    Result,
    Sequence,
    Use,
    Walk,
)
from walkgraph.simulation.reference.reference_walk import Function, Vector

T = TypeVar("T")
PORTS = ("a", "b", "c")
REASONS = {"stop": ("odd",)}
_MIX = Component(
    name="test.mix",
    description="Mixes what it is given.",
    inputs=tuple(port(p, "scalar", optional=True) for p in PORTS),
    outputs=(
        port("out", "scalar"),
        port("many", "tensor"),
        port("maybe", "scalar", optional=True),
        port("stop", "flag"),
        port("odd", "flag"),
    ),
    reasons=REASONS,
    network="operators_test:Mix",
)
CATALOGUE: Catalogue = {"test.mix": _MIX, "test.host": replace(_MIX, name="test.host", host=True)}
RESIDENT: Catalogue = {**CATALOGUE, "test.mix": replace(_MIX, resident=True)}
"""`test.mix` can run in device loops; `test.host` nodes follow on the host."""
OUTPUTS = ("out", "many", "maybe")
COLLECTED: tuple[Collect, ...] = (True, True, "join", "list")
JOINED: tuple[Collect, ...] = (False, True, "join")
"""A list enters no port of `test.mix`."""
PARAMS: dict[str, Any] = {"n": 2, "on": True, "off": False}


@dataclass(frozen=True)
class _At:
    use: str
    position: int
    loops: tuple[str, ...]
    branches: tuple[tuple[int, int], ...]
    """(parallel, branch) pairs around it."""
    cases: tuple[tuple[int, int], ...]
    """(choice, branch) pairs around it, outermost first."""


@dataclass(frozen=True)
class _Merge:
    name: str
    parts: tuple[_At, ...]
    many: bool
    """Its ports give lists."""


def mix(name: str) -> Function:
    """A function whose values differ for every call, port and iteration; `maybe` is absent in a third of them."""

    def call(inputs: dict[str, Any], at: Vector) -> dict[str, Any]:
        seen = crc32(repr((name, at, sorted((p, plain(v)) for p, v in inputs.items()))).encode()) % 1_000_003
        found = {"out": seen, "many": [seen + i for i in range(3)], "stop": seen % 4 == 0, "odd": seen % 3 > 0}
        return found if seen % 3 == 0 else found | {"maybe": -seen}

    return call


def plain(value: Any) -> Any:
    """A value with its tensors and tuples turned into lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(v) for v in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


class Draw(Protocol):
    """Random choices for a graph."""

    def integer(self, least: int, most: int) -> int: ...

    def one(self, of: Choices[T]) -> T: ...

    def flag(self) -> bool: ...

    def shuffled(self, of: Choices[T]) -> list[T]: ...


class SeededDraw:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secret

    def integer(self, least: int, most: int) -> int:
        return self._chance.randint(least, most)

    def one(self, of: Choices[T]) -> T:
        return self._chance.choice(of)

    def flag(self) -> bool:
        return self._chance.random() < 0.5

    def shuffled(self, of: Choices[T]) -> list[T]:
        return self._chance.sample(of, len(of))


def random_graph(draw: Draw) -> Graph:
    """A graph of one Walk, `w`, with inputs `x` (a value) and `xs` (a list)."""
    builder = _Builder(draw)
    body = builder.items(_Around(), least=1)
    edges = builder.edges()
    results = {f"r{i}": builder.result() for i in range(draw.integer(0, 2))}
    merges = {name: tuple(ports) for name, ports in builder.merged.items()}
    walk = Walk(inputs={"x": "scalar", "xs": "tensor"}, body=body, merges=merges, edges=edges, results=results)
    kinds = ["test.mix"] * 3 + ["test.host"]
    nodes = {at.use: Node(component=draw.one(kinds)) for at in builder.uses}
    return Graph(name="random", nodes=nodes, walks={"w": walk})


def followed_graph(draw: Draw) -> Graph:
    """As `random_graph`, with one loop, perhaps inside another. Its `c` nodes can run in a device loop if they are on
    one rank; its `f` nodes follow on the host. The use `end` comes after the loop."""
    whens = [None, None, "off", "n > 1", "@loop.index % 3 == 2", "@loop.index > 0 and n > 1"]
    cores = [f"c{i}" for i in range(draw.integer(1, 3))]
    names = draw.shuffled([*cores, *(f"f{i}" for i in range(draw.integer(1, 3)))])
    order = {name: i for i, name in enumerate(names)}
    least = min(cores, key=order.__getitem__)
    always = {least} | {name for name in cores if draw.flag()}
    """Uses that feed carried edges or end the loop can't be skipped."""
    sources = ["core", "core", "core", "in", "each", "index", "none"]
    edges: list[Edge] = []
    for name in names:
        for to in (f"{name}.{p}" for p in PORTS[: draw.integer(1, 3)]):
            givers = list(names) if name not in cores else [c for c in cores if order[c] < order[name] or c in always]
            if (source := draw.one(sources)) == "core" and givers:
                giver = draw.one(givers)
                edges.append(_edge(f"{giver}.{draw.one(OUTPUTS)}", to=to))
                if name in cores and order[giver] >= order[name]:
                    source = draw.one(["in", "each", "index"])
            if source in ("in", "each"):
                edges.append(_edge("@in.xs" if source == "each" else "@in.x", to=to, each=source == "each"))
            elif source == "index":
                edges.append(_edge("@loop.index", to=to))
    for i, to in enumerate(("@out.o0", "@out.o1", "end.a", "end.b")):
        how = draw.one(["last", "each", "collect"] if i < 2 else ["last", "collect"])
        source = f"{draw.one(names)}.{draw.one(OUTPUTS)}"
        ways = COLLECTED if i < 2 else COLLECTED[:3]
        edges.append(_edge(source, to=to, each=how == "each", collect=how == "collect" and draw.one(ways)))
    edges.append(_edge("end.out", to="@out.end"))
    core = draw.one([None, None, None, "off", "on"])
    uses = tuple(
        Sequence(sequence=(Use(use=name, when=None if name in always else draw.one(whens)),), when=core)
        if name in cores
        else Use(use=name, when=draw.one(whens))
        for name in names
    )
    until = f"{draw.one(sorted(always))}.stop" if draw.flag() else None
    times, whole = draw.one(["5", "8", "n", "n - 2"]), draw.one([None, None, "on", "off"])
    drop = until is not None and draw.flag()
    inner = Loop(loop="l", times=times, until=until, drop_last=drop, when=whole, body=uses)
    around = Loop(loop="around", times="3", body=(inner,)) if draw.flag() else inner
    nodes = {name: Node(component="test.mix" if name in cores else "test.host") for name in (*names, "end")}
    walk = Walk(inputs={"x": "scalar", "xs": "tensor"}, body=(around, Use(use="end")), edges=tuple(edges), results={})
    return Graph(name="random", nodes=nodes, walks={"w": walk})


@dataclass(frozen=True)
class _Around:
    """The loops and branches around an item, and how deep it is nested."""

    depth: int = 0
    loops: tuple[str, ...] = ()
    branches: tuple[tuple[int, int], ...] = ()
    cases: tuple[tuple[int, int], ...] = ()

    @property
    def inside(self) -> "_Around":
        return replace(self, depth=self.depth + 1)


class _Builder:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.uses: list[_At] = []
        self.maps: set[str] = set()
        """The loops that are maps."""
        self.loops = 0
        self.parallels = 0
        self.choices = 0
        self.merges: list[_Merge] = []
        self.merged: dict[str, list[str]] = {}
        """Merge -> its ports."""

    def items(self, around: _Around, least: int) -> tuple[Item, ...]:
        return tuple(self.item(around) for _ in range(self.draw.integer(least, 3)))

    def item(self, around: _Around) -> Item:
        kinds = ["use", "use"]
        if around.depth < 3 and len(self.uses) <= 8:
            kinds += ["loop", "loop", "parallel", "list", "choose", "map"]
        match self.draw.one(kinds):
            case "loop":
                return self.loop(around)
            case "choose":
                return self.choose(around)
            case "map":
                return self.map(around)
            case "parallel":
                number = self.parallels
                self.parallels += 1
                count = self.draw.integer(1, 3)
                branches = [replace(around.inside, branches=(*around.branches, (number, b))) for b in range(count)]
                return Parallel(parallel=tuple(map(self.item, branches)), when=self.when(around.loops))
            case "list":
                when = self.when(around.loops)
                return Sequence(sequence=self.items(around.inside, least=1), when=when)
            case _:
                name = f"u{len(self.uses)}"
                self.uses.append(_At(name, len(self.uses), around.loops, around.branches, around.cases))
                return Use(use=name, when=self.when(around.loops))

    def choose(self, around: _Around) -> Item:
        number, first = self.choices, len(self.uses)
        self.choices += 1
        here = _At("", len(self.uses), around.loops, around.branches, around.cases)
        sources = [at for at in self.uses if not _apart(at, here) and not self.leaves_map(at, around.loops)]
        source, values = "@in.x", self.draw.one([("5", "7"), ("7",)])
        if sources and self.draw.flag():
            port = self.draw.one(["stop", "stop", "stop", "maybe"])
            source = f"{self.draw.one(sources).use}.{port}"
            values = self.draw.one([("true", "false"), ("true",), ("false",)]) if port == "stop" else ("0",)
        when = self.when(around.loops)
        branches: list[tuple[Item, ...]] = []
        for branch in range(len(values) + 1):
            inside = replace(around.inside, cases=(*around.cases, (number, branch)))
            branches.append(self.items(inside, least=0 if branch else 1))
        self.merge(number, self.uses[first:])
        cases = dict(zip(values, branches, strict=False))
        return Choose(choose=source, cases=cases, otherwise=branches[-1], when=when)

    def merge(self, choice: int, inside: list[_At]) -> None:
        """Merge one use of each branch."""
        branches: dict[int, list[_At]] = {}
        for at in inside:
            branches.setdefault(dict(at.cases)[choice], []).append(at)
        if branches and self.draw.flag():
            name, many = f"m{len(self.merges)}", self.draw.flag()
            parts = tuple(self.draw.one(found) for found in branches.values())
            self.merges.append(_Merge(name, parts, many))
            self.merged[name] = [f"{at.use}.{'many' if many else self.draw.one(['out', 'maybe'])}" for at in parts]

    def loop(self, around: _Around) -> Item:
        loops, name = around.loops, f"l{self.loops}"
        self.loops += 1
        when = self.when(loops)
        first = len(self.uses)
        counts = ["3", "n", "1", "4", "n - 2"] + (["@loop.index + 1", "@loop.index"] if loops else [])
        times = self.draw.one(counts)
        body = self.items(replace(around.inside, loops=(*loops, name)), least=1)
        own = [at.use for at in self.uses[first:] if at.loops == (*loops, name)]
        until = f"{self.draw.one(own)}.stop" if own and self.draw.flag() else None
        drop = until is not None and self.draw.flag()
        return Loop(loop=name, times=times, until=until, drop_last=drop, when=when, body=body)

    def map(self, around: _Around) -> Item:
        loops, name = around.loops, f"l{self.loops}"
        self.loops += 1
        self.maps.add(name)
        here = _At("", len(self.uses), around.loops, around.branches, around.cases)
        sources = [at for at in self.uses if not _apart(at, here) and not self.leaves_map(at, loops)]
        source = f"{self.draw.one(sources).use}.many" if sources and self.draw.flag() else "@in.xs"
        bound, width, when = self.draw.one(["3", "n + 1"]), self.draw.one(["1", "2", "n", "8"]), self.when(loops)
        body = self.items(replace(around.inside, loops=(*loops, name)), least=1)
        return Map.model_validate(
            {"map": source, "as": name, "bound": bound, "width": width, "when": when, "body": body}
        )

    def leaves_map(self, source: _At, loops: tuple[str, ...]) -> bool:
        """True if a value would leave a map on the way to a place in these loops."""
        return not self.maps.isdisjoint(source.loops[_common(source.loops, loops) :])

    def carries(self, loops: tuple[str, ...], common: int) -> bool:
        """True if the innermost of so many loops can carry a value to its next iteration."""
        return common > 0 and loops[common - 1] not in self.maps

    def when(self, loops: tuple[str, ...]) -> str | None:
        choices: list[str | None] = [None, None, None, None, "on", "off", "n > 1"]
        choices += ["@loop.index % 2 == 0", f"@loop.{loops[0]} > 0"] if loops else []
        return self.draw.one(choices)

    def edges(self) -> tuple[Edge, ...]:
        found: list[Edge] = []
        for target in self.uses:
            for name in PORTS[: self.draw.integer(0, 3)]:
                found.extend(self.into(target, name))
        for i in range(self.draw.integer(1, 3)):
            source = self.draw.one(self.uses)
            ways = ["each", "collect"] if self.leaves_map(source, ()) else ["last", "each", "collect"]
            how = self.draw.one(ways) if source.loops else "last"
            collect = how == "collect" and self.draw.one(COLLECTED)
            found.append(self.edge(source, f"@out.o{i}", each=how == "each", collect=collect))
        for i, merge in enumerate(self.merges):
            mapped = any(self.leaves_map(at, ()) for at in merge.parts)
            each = all(at.loops for at in merge.parts) and (mapped or self.draw.flag())
            if (each or not mapped) and self.draw.flag():
                found.append(_edge(f"@merge.{merge.name}", to=f"@out.m{i}", each=each))
        return tuple(found)

    def into(self, target: _At, name: str) -> list[Edge]:
        """Edges into a port: at most one plain edge, and carried ones of different depths."""
        found: list[Edge] = []
        to = f"{target.use}.{name}"
        before = [at for at in self.uses if at.position < target.position and not _apart(at, target)]
        single = [at for at in before if not self.leaves_map(at, target.loops)]
        merges = [merge for merge in self.merges if all(at in single for at in merge.parts)]
        kinds = ["none", "in"] + (["loop"] if target.loops else []) + (["use"] * 3 if before else [])
        kinds += ["merge"] * 3 if merges else []
        match self.draw.one(kinds):
            case "in":
                each = bool(target.loops) and self.draw.flag()
                found.append(_edge("@in.xs" if each else "@in.x", to=to, each=each))
            case "loop":
                found.append(_edge(f"@loop.{self.draw.one(['index', *target.loops])}", to=to))
            case "merge":
                merge = self.draw.one(merges)
                common = _common(merge.parts[0].loops, target.loops)
                each = merge.many and len(target.loops) > common and self.draw.flag()
                found.append(_edge(f"@merge.{merge.name}", to=to, each=each))
            case "use":
                source = self.draw.one(before)
                common = _common(source.loops, target.loops)
                mapped = self.leaves_map(source, target.loops)
                each = not mapped and len(target.loops) > common and self.draw.flag()
                collect = not each and len(source.loops) > common and self.draw.one(JOINED[mapped:])
                found.append(self.edge(source, to, each=each, collect=collect))
            case _:
                pass
        depths: set[int] = set()
        for _ in range(self.draw.integer(0, 2)):
            after = [at for at in self.uses if at.position >= target.position and not _apart(at, target)]
            single = [at for at in after if at != target and not self.leaves_map(at, target.loops)]
            merges = [merge for merge in self.merges if all(at in single for at in merge.parts)]
            if merges and self.draw.flag():
                merge = self.draw.one(merges)
                common = min(_common(at.loops, target.loops) for at in merge.parts)
                if self.carries(target.loops, common) and common not in depths:
                    depths.add(common)
                    found.append(_edge(f"@merge.{merge.name}", to=to))
                continue
            source = self.draw.one(after)
            common = _common(source.loops, target.loops)
            if self.carries(target.loops, common) and common not in depths:
                depths.add(common)
                ways = JOINED[self.leaves_map(source, target.loops) :]
                collect = len(source.loops) > common and self.draw.one(ways)
                found.append(self.edge(source, to, each=False, collect=collect))
        return found

    def edge(self, source: _At, to: str, *, each: bool, collect: Collect) -> Edge:
        port = "many" if each and not to.startswith("@out") else self.draw.one(OUTPUTS)
        return _edge(f"{source.use}.{port}", to=to, each=each, collect=collect)

    def result(self) -> Result:
        merges = [merge for merge in self.merges if not any(self.leaves_map(at, ()) for at in merge.parts)]
        if merges and self.draw.flag():
            return _result(f"@merge.{self.draw.one(merges).name}", collect=False)
        source = self.draw.one(self.uses)
        ways = COLLECTED if self.leaves_map(source, ()) else (False, False, *COLLECTED)
        return _result(f"{source.use}.{self.draw.one(OUTPUTS)}", collect=self.draw.one(ways))


def _edge(source: str, to: str, *, each: bool = False, collect: Collect = False) -> Edge:
    return Edge.model_validate({"from": source, "to": to, "each": each, "collect": collect})


def _result(source: str, *, collect: Collect) -> Result:
    return Result.model_validate({"from": source, "collect": collect})


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _apart(a: _At, b: _At) -> bool:
    """True if both are in different branches of one `parallel` or one choice."""
    return any(
        number in mine and mine[number] != branch
        for mine, others in ((dict(a.branches), b.branches), (dict(a.cases), b.cases))
        for number, branch in others
    )
