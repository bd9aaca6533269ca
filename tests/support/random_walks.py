"""Random Walks that `check` would accept, with functions for their nodes: for whatever runs Walks."""

from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from tests.support.reference_walk import Function, Vector
from walkgraph.graph.catalogue import Catalogue, Component, port
from walkgraph.graph.document import Edge, Graph, Item, Loop, Node, Parallel, Result, Sequence, Use, Walk

PORTS = ("a", "b", "c")
CATALOGUE: Catalogue = {
    "test.mix": Component(
        name="test.mix",
        description="Mixes what it is given.",
        inputs=tuple(port(p, "scalar", optional=True) for p in PORTS),
        outputs=(port("out", "scalar"), port("many", "tensor"), port("maybe", "scalar"), port("stop", "flag")),
        network="operators_test:Mix",
    )
}
RESIDENT: Catalogue = {name: replace(component, resident=True) for name, component in CATALOGUE.items()}
OUTPUTS = ("out", "many", "maybe")
PARAMS: dict[str, Any] = {"n": 2, "on": True, "off": False}


@dataclass(frozen=True)
class _At:
    use: str
    position: int
    loops: tuple[str, ...]
    branches: tuple[tuple[int, int], ...]


def mix(name: str) -> Function:
    """Values that tell every other call, port and iteration apart; `maybe` is absent now and then."""

    def call(inputs: dict[str, Any], at: Vector) -> dict[str, Any]:
        seen = crc32(repr((name, at, sorted((p, plain(v)) for p, v in inputs.items()))).encode()) % 1_000_003
        found = {"out": seen, "many": [seen + i for i in range(3)], "stop": seen % 4 == 0}
        return found if seen % 3 == 0 else found | {"maybe": -seen}

    return call


def plain(value: Any) -> Any:
    """A value without its tensors and tuples."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A graph of one Walk, `w`, with inputs `x` (a value) and `xs` (a list)."""
    builder = _Builder(draw)
    body = builder.items(0, (), (), least=1)
    edges = builder.edges()
    results = {f"r{i}": builder.result() for i in range(draw(st.integers(0, 2)))}
    walk = Walk(inputs={"x": "scalar", "xs": "tensor"}, body=body, edges=edges, results=results)
    nodes = {at.use: Node(component="test.mix") for at in builder.uses}
    return Graph(name="random", nodes=nodes, walks={"w": walk})


class _Builder:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.uses: list[_At] = []
        self.loops = 0
        self.parallels = 0

    def items(
        self, depth: int, loops: tuple[str, ...], branches: tuple[tuple[int, int], ...], least: int
    ) -> tuple[Item, ...]:
        return tuple(self.item(depth, loops, branches) for _ in range(self.draw(st.integers(least, 3))))

    def item(self, depth: int, loops: tuple[str, ...], branches: tuple[tuple[int, int], ...]) -> Item:
        kinds = (
            ["use", "use"] if depth >= 3 or len(self.uses) > 8 else ["use", "use", "loop", "loop", "parallel", "list"]
        )
        match self.draw(st.sampled_from(kinds)):
            case "loop":
                return self.loop(depth, loops, branches)
            case "parallel":
                number = self.parallels
                self.parallels += 1
                count = self.draw(st.integers(1, 3))
                inner = [self.item(depth + 1, loops, (*branches, (number, b))) for b in range(count)]
                return Parallel(parallel=tuple(inner), when=self.when(loops))
            case "list":
                when = self.when(loops)
                return Sequence(sequence=self.items(depth + 1, loops, branches, least=1), when=when)
            case _:
                name = f"u{len(self.uses)}"
                self.uses.append(_At(name, len(self.uses), loops, branches))
                return Use(use=name, when=self.when(loops))

    def loop(self, depth: int, loops: tuple[str, ...], branches: tuple[tuple[int, int], ...]) -> Item:
        name = f"l{self.loops}"
        self.loops += 1
        when = self.when(loops)
        first = len(self.uses)
        times = self.draw(
            st.sampled_from(["3", "n", "1", "4", "n - 2"] + (["@loop.index + 1", "@loop.index"] if loops else []))
        )
        body = self.items(depth + 1, (*loops, name), branches, least=1)
        own = [at.use for at in self.uses[first:] if at.loops == (*loops, name)]
        until = f"{self.draw(st.sampled_from(own))}.stop" if own and self.draw(st.booleans()) else None
        drop = until is not None and self.draw(st.booleans())
        return Loop(loop=name, times=times, until=until, drop_last=drop, when=when, body=body)

    def when(self, loops: tuple[str, ...]) -> str | None:
        choices: list[str | None] = [None, None, None, None, "on", "off", "n > 1"]
        choices += ["@loop.index % 2 == 0", f"@loop.{loops[0]} > 0"] if loops else []
        return self.draw(st.sampled_from(choices))

    def edges(self) -> tuple[Edge, ...]:
        found: list[Edge] = []
        for target in self.uses:
            for name in PORTS[: self.draw(st.integers(0, 3))]:
                found.extend(self.into(target, name))
        for i in range(self.draw(st.integers(1, 3))):
            source = self.draw(st.sampled_from(self.uses))
            how = self.draw(st.sampled_from(["last", "each", "collect"])) if source.loops else "last"
            found.append(self.edge(source, f"@out.o{i}", each=how == "each", collect=how == "collect"))
        return tuple(found)

    def into(self, target: _At, name: str) -> list[Edge]:
        """At most one plain edge into a port, and carried ones of different depths."""
        found: list[Edge] = []
        to = f"{target.use}.{name}"
        before = [at for at in self.uses if at.position < target.position and not _siblings(at, target)]
        kinds = ["none", "in"] + (["loop"] if target.loops else []) + (["use"] * 3 if before else [])
        match self.draw(st.sampled_from(kinds)):
            case "in":
                each = bool(target.loops) and self.draw(st.booleans())
                found.append(Edge(from_="@in.xs" if each else "@in.x", to=to, each=each))
            case "loop":
                found.append(Edge(from_=f"@loop.{self.draw(st.sampled_from(['index', *target.loops]))}", to=to))
            case "use":
                source = self.draw(st.sampled_from(before))
                common = _common(source.loops, target.loops)
                each = len(target.loops) > common and self.draw(st.booleans())
                collect = not each and len(source.loops) > common and self.draw(st.booleans())
                found.append(self.edge(source, to, each=each, collect=collect))
            case _:
                pass
        depths: set[int] = set()
        for _ in range(self.draw(st.integers(0, 2))):
            after = [at for at in self.uses if at.position >= target.position and not _siblings(at, target)]
            source = self.draw(st.sampled_from(after))
            common = _common(source.loops, target.loops)
            if common and common not in depths:
                depths.add(common)
                collect = len(source.loops) > common and self.draw(st.booleans())
                found.append(self.edge(source, to, each=False, collect=collect))
        return found

    def edge(self, source: _At, to: str, *, each: bool, collect: bool) -> Edge:
        port = "many" if each and not to.startswith("@out") else self.draw(st.sampled_from(OUTPUTS))
        return Edge(from_=f"{source.use}.{port}", to=to, each=each, collect=collect)

    def result(self) -> Result:
        source = self.draw(st.sampled_from(self.uses))
        return Result(from_=f"{source.use}.{self.draw(st.sampled_from(OUTPUTS))}", collect=self.draw(st.booleans()))


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _siblings(a: _At, b: _At) -> bool:
    """In different branches of one `parallel`."""
    mine = dict(a.branches)
    return any(number in mine and mine[number] != branch for number, branch in b.branches)
