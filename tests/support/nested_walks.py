"""Random Walks with a loop `r` that runs on the device together with the loops inside it, which are unrolled."""

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support.random_walks import OUTPUTS, PORTS
from walkgraph.graph.document import Edge, Graph, Item, Loop, Node, Use, Walk

VARYING = ("@loop.r % 2 == 0", "@loop.r > 0 and n > 1")


@dataclass(frozen=True)
class _At:
    name: str
    position: int
    loops: tuple[str, ...]
    when: str | None

    def shares(self, other: "_At") -> int:
        """Leading loops that hold both."""
        pairs = zip(self.loops, other.loops, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.loops), len(other.loops)))


@st.composite
def nested(draw: st.DrawFn, counts: tuple[str, ...] = ("1", "2", "3", "n")) -> Graph:
    """`counts`: of the loops inside. Nodes `f` run on the host and follow; the use `end` comes after the loop."""
    builder = _Nest(draw, counts)
    around = draw(st.booleans())
    body = builder.items((*(("around",) if around else ()), "r"))
    edges = builder.edges()
    own = [at.name for at in builder.uses if at.loops[-1] == "r" and at.when is None and at.name[0] != "f"]
    until = f"{draw(st.sampled_from(own))}.stop" if own and draw(st.booleans()) else None
    loop: Item = Loop(loop="r", times=draw(st.sampled_from(["4", "5", "n", "n - 2"])), until=until, body=body)
    top = Loop(loop="around", times="2", body=(loop,)) if around else loop
    nodes = {at.name: Node(component="test.host" if at.name[0] == "f" else "test.mix") for at in builder.uses}
    nodes["end"] = Node(component="test.mix")
    walk = Walk(inputs={"x": "scalar", "xs": "tensor"}, body=(top, Use(use="end")), edges=edges, results={})
    return Graph(name="random", nodes=nodes, walks={"w": walk})


class _Nest:
    def __init__(self, draw: st.DrawFn, counts: tuple[str, ...]) -> None:
        self.draw, self.counts = draw, counts
        self.uses: list[_At] = []
        self.loops = 0

    def items(self, loops: tuple[str, ...], depth: int = 0) -> tuple[Item, ...]:
        kinds = ["use", "use", "loop", "host"] if depth == 0 else ["use", "use", "loop"] if depth == 1 else ["use"]
        chosen = [self.draw(st.sampled_from(kinds)) for _ in range(self.draw(st.integers(1, 2)))]
        if depth == 0:
            chosen.insert(self.draw(st.integers(0, len(chosen))), "loop")
        return tuple(self.item(kind, loops, depth) for kind in chosen)

    def item(self, kind: str, loops: tuple[str, ...], depth: int) -> Item:
        if kind == "loop":
            name = f"l{self.loops}"
            self.loops += 1
            times = self.draw(st.sampled_from(self.counts))
            return Loop(loop=name, times=times, body=self.items((*loops, name), depth + 1))
        whens = [None, None, None, "on", "off", "n > 1", *VARYING]
        inner = [f"@loop.{loops[-1]} {which}" for which in ("> 0", "< 1", "> 8")]
        whens += [*inner, "@loop.r > 1 or @loop.index > 0"] if depth else []
        at = _At(
            f"{'f' if kind == 'host' else 'u'}{len(self.uses)}",
            len(self.uses),
            loops,
            self.draw(st.sampled_from(whens)),
        )
        self.uses.append(at)
        return Use(use=at.name, when=at.when)

    def edges(self) -> tuple[Edge, ...]:
        found: list[Edge] = []
        for target in self.uses:
            for port in PORTS[: self.draw(st.integers(1, 3))]:
                found += self.into(target, f"{target.name}.{port}")
        for i, to in enumerate(("@out.o0", "@out.o1", "end.a", "end.b")):
            source = self.draw(st.sampled_from(self.uses))
            each = i < 2 and source.loops[-1] == "r" and self.draw(st.booleans())
            collect = not each and self.draw(st.booleans())
            found.append(self.edge(source, to, each=each, collect=collect))
        return (*found, Edge(from_="end.out", to="@out.end"))

    def into(self, target: _At, to: str) -> list[Edge]:
        found: list[Edge] = []
        deep = target.loops.index("r") + 1
        givers = self.uses if target.name[0] == "f" else [at for at in self.uses if at.name[0] != "f"]
        before = [at for at in givers if at.position < target.position]
        match self.draw(st.sampled_from(["in", "each", "index", "none"] + (["use"] * 5 if before else []))):
            case "use":
                source = self.draw(st.sampled_from(before))
                found.append(self.inside(source, to, target))
            case "none":
                pass
            case "index":
                found.append(Edge(from_=f"@loop.{self.draw(st.sampled_from(['index', *target.loops]))}", to=to))
            case kind:
                found.append(Edge(from_="@in.xs" if kind == "each" else "@in.x", to=to, each=kind == "each"))
        depths, plain = set[int](), bool(found)
        for source in (
            self.draw(st.sampled_from(givers)) for _ in range(self.draw(st.integers(0, 2)) if givers else 0)
        ):
            common = source.shares(target)
            if source.position < target.position or common in depths:
                continue
            if common > deep:
                found.append(self.inside(source, to, target, whole=True))
            elif plain and (source.when is None or target.name[0] == "f"):
                found.append(self.edge(source, to))
            else:
                continue
            depths.add(common)
        return found

    def inside(self, source: _At, to: str, target: _At, *, whole: bool = False) -> Edge:
        """`whole`: not slice by slice."""
        common = source.shares(target)
        each = not whole and len(target.loops) > common and self.draw(st.booleans())
        steady = source.when is None or "@loop.r" not in source.when
        collects = len(source.loops) > common and steady and target.name[0] != "f"
        return self.edge(source, to, each=each, collect=not each and collects and self.draw(st.booleans()))

    def edge(self, source: _At, to: str, *, each: bool = False, collect: bool = False) -> Edge:
        port = "many" if each and not to.startswith("@out") else self.draw(st.sampled_from(OUTPUTS))
        return Edge(from_=f"{source.name}.{port}", to=to, each=each, collect=collect)
