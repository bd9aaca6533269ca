"""Drawings as Mermaid text: the component graph (the union of all Walks), or one Walk with nested boxes for its body.

Solid arrows carry values onward, dotted ones to the next iteration, thick ones are streams. The text is stable: it
follows the author's order.
"""

from collections.abc import Iterable, Iterator, Mapping

from walkgraph.errors import NotFound
from walkgraph.graph.document import Choose, Collect, Fork, Graph, Item, Loop, Map, Parallel, Sequence, Stream, Use
from walkgraph.graph.problems import nearest
from walkgraph.graph.structure import End, Route, WalkStructure, partitions, structure, structures

_TAB = "  "
_COLLECTED: Mapping[Collect, str] = {True: "all", "join": "all, joined", "list": "list"}


def draw(graph: Graph, walk: str | None = None) -> str:
    """Draw the graph, or one Walk of it. Raises NotFound for an unknown Walk."""
    if walk is None:
        return "\n".join(("flowchart LR", *_indented(_components(graph)))) + "\n"
    if walk not in graph.walks:
        raise NotFound(f"there is no Walk `{walk[:80]}`; {nearest(walk, graph.walks)}")
    return "\n".join(("flowchart LR", *_indented(_Walk(graph, walk).lines()))) + "\n"


# ── the component graph ─────────────────────────────────────────────────────────────────────────


def _components(graph: Graph) -> Iterator[str]:
    groups = partitions(graph) if graph.streams else ()
    if len(groups) > 1:
        for i, group in enumerate(groups):
            yield from _box(f"partition_{i}", f"partition {i + 1}", _nodes(graph, group))
    else:
        yield from _nodes(graph, graph.nodes)
    found = structures(graph)
    outputs = dict.fromkeys(r.target.name for f in found.values() for r in f.routes if r.target.kind == "out")
    yield from (_round("out", name) for name in outputs)
    carried: dict[tuple[str, str], bool] = {}
    for facts in found.values():
        for route in facts.routes:
            ends = _node(route.source), _node(route.target)
            if all(ends):
                carried[ends] = carried.get(ends, True) and route.carried
    for (source, target), back in carried.items():
        yield f"{source} {'-.->' if back else '-->'} {target}"
    for stream in graph.streams:
        for source, target in _stream_ends(found.values(), stream):
            yield f"{source} ==>|{_quoted(f'{stream.name}: {stream.chunks.policy}')}| {target}"


def _nodes(graph: Graph, names: Iterable[str]) -> Iterator[str]:
    chosen = set(names)
    return (f"{_id('node', n)}[{_label(n, node.component)}]" for n, node in graph.nodes.items() if n in chosen)


def _node(end: End) -> str:
    if end.kind == "use":
        return _id("node", end.entry.node) if end.entry else ""
    return _id("out", end.name) if end.kind == "out" else ""


def _stream_ends(found: Iterable[WalkStructure], stream: Stream) -> list[tuple[str, str]]:
    facts = list(found)
    ends = (end for f in facts if f.name in stream.walks for end in f.ports(stream.from_))
    sources = [end.entry.node for end in ends if end.entry]
    readers = [
        route.target.entry.node
        for f in facts
        for route in f.routes
        if route.source.kind == "stream" and route.source.name == stream.name and route.target.entry
    ]
    return [(_id("node", s), _id("node", t)) for s in dict.fromkeys(sources) for t in dict.fromkeys(readers)]


# ── one Walk ────────────────────────────────────────────────────────────────────────────────────


class _Walk:
    """Draws one Walk; numbers the boxes as it goes through the body."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name
        self.facts = structure(graph.walks[name], name)
        self.boxes = 0
        self.forks = 0
        self.choices = 0
        self.maps = 0

    def lines(self) -> Iterator[str]:
        yield from (_round("in", name) for name in self.facts.walk.inputs)
        for item in self.facts.walk.body:
            yield from self.item(item)
        outs = dict.fromkeys(route.target.name for route in self.facts.routes if route.target.kind == "out")
        yield from (_round("out", name) for name in outs)
        yield from self.merges()
        yield from self.streams()
        yield from self.arrows()

    def item(self, item: Item) -> Iterator[str]:
        match item:
            case Use():
                node = self.graph.nodes.get(item.use)
                yield f"{_id('use', item.name)}[{_label(item.name, node.component if node else item.use, item.when)}]"
            case Fork():
                self.forks += 1
                yield f"fork_{self.forks}{{{{{_label(f'fork {item.fork} into {item.into}', '', item.when)}}}}}"
            case Parallel():
                yield from self.box("parallel", item.when, item.parallel)
            case Sequence():
                yield from self.box("sequence", item.when, item.sequence)
            case Loop():
                until = f", until {item.until}" if item.until else ""
                yield from self.box(f"loop {item.loop}: {item.times} times{until}", item.when, item.body, item.loop)
            case Map():
                yield from self.map(item)
            case Choose():
                yield from self.choice(item)

    def box(self, title: str, when: str | None, items: tuple[Item, ...], loop: str = "") -> Iterator[str]:
        self.boxes += 1
        name = f"box_{self.boxes}"
        inside = [line for item in items for line in self.item(item)]
        if loop in self.indices():
            inside.insert(0, f"{_id('index', loop)}(({_quoted('index')}))")
        yield from _box(name, f"{title}, when {when}" if when else title, inside)

    def map(self, item: Map) -> Iterator[str]:
        """The head that takes the list, and a box for the body."""
        head = self.facts.maps[self.maps]
        self.maps += 1
        yield f"map_{head.loop}{{{{{_label(item.map, 'map')}}}}}"
        title = f"map {item.loop}: up to {item.bound} items, {item.width} at once"
        yield from self.box(title, item.when, item.body, item.loop)

    def choice(self, item: Choose) -> Iterator[str]:
        """A box for the choice, with one for each branch that has items."""
        choice = self.facts.choices[self.choices]
        self.choices += 1
        self.boxes += 1
        name, values = f"box_{self.boxes}", [*item.cases, "otherwise"]
        inside = [f"choice_{choice.index + 1}{{{_label(item.choose, 'choose')}}}"]
        for value, items in zip(values, item.branches, strict=True):
            if items:
                inside += self.box(f"{item.choose} is {value}" if value in item.cases else value, None, items)
        title = f"choose {item.choose}"
        yield from _box(name, f"{title}, when {item.when}" if item.when else title, inside)

    def merges(self) -> Iterator[str]:
        """Merges that something takes, and the arrows into them."""
        for name in dict.fromkeys(route.merge for route in self.facts.taken if route.merge):
            yield f"{_id('merge', name)}(({_quoted(name)}))"
            for end in self.facts.ports(f"@merge.{name}"):
                if end.entry:
                    yield f"{_id('use', end.name)} -->|{_quoted(end.port)}| {_id('merge', name)}"

    def indices(self) -> set[str]:
        """Loops whose index some edge takes."""
        return {_loop(route) for route in self.facts.routes if route.source.kind == "loop"}

    def streams(self) -> Iterator[str]:
        """Streams that the Walk reads or writes, and thick arrows for those it writes."""
        read = dict.fromkeys(route.source.name for route in self.facts.routes if route.source.kind == "stream")
        written = [s for s in self.graph.streams if self.name in s.walks]
        for name in dict.fromkeys((*read, *(stream.name for stream in written))):
            yield f"{_id('stream', name)}[/{_quoted(name)}/]"
        for stream in written:
            for end in self.facts.ports(stream.from_):
                if end.entry:
                    yield f"{_id('use', end.name)} ==>|{_quoted(end.port)}| {_id('stream', stream.name)}"

    def arrows(self) -> Iterator[str]:
        drawn: set[str] = set()
        heads = (*self.facts.choices, *self.facts.maps)
        for route in (*self.facts.routes, *(route for head in heads for route in head.routes)):
            source = _id("merge", route.merge) if route.merge else self.end(route.source, route)
            target = self.end(route.target, route)
            if source and target:
                line = "-.->" if route.carried else "==>" if route.source.kind == "stream" else "-->"
                words = [route.source.port] if route.source.port and not route.merge else []
                words += ["each"] if "each" in (route.leave, route.enter) else []
                words += [_COLLECTED[route.edge.collect]] if route.leave == "collect" else []
                label = f"|{_quoted(', '.join(words))}|" if words else ""
                arrow = f"{source} {line}{label} {target}"
                if arrow not in drawn or not route.merge:
                    yield arrow
                drawn.add(arrow)

    def end(self, end: End, route: Route) -> str:
        match end.kind:
            case "use":
                return _id("use", end.name) if end.entry else ""
            case "loop":
                return _id("index", _loop(route)) if _loop(route) else ""
            case "choice":
                return f"choice_{int(end.name) + 1}"
            case "map":
                return f"map_{end.name}"
            case _:
                return _id(end.kind, end.name)


def _loop(route: Route) -> str:
    """The loop whose index a route carries, or an empty string."""
    loops = route.target.entry.loops if route.target.entry else ()
    return loops[route.common - 1] if route.common else ""


# ── Mermaid ─────────────────────────────────────────────────────────────────────────────────────


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (_TAB + line for line in lines)


def _box(name: str, title: str, inside: Iterable[str]) -> Iterator[str]:
    yield f"subgraph {name}[{_quoted(title)}]"
    yield from _indented(inside)
    yield "end"


def _round(kind: str, name: str) -> str:
    return f"{_id(kind, name)}([{_quoted(name)}])"


def _label(title: str, small: str, when: str | None = None) -> str:
    lines = [_escaped(title)]
    lines += [f"<i>{_escaped(small)}</i>"] if small else []
    lines += [f"when {_escaped(when)}"] if when else []
    return f'"{"<br/>".join(lines)}"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Text with Mermaid entities for characters that would end a label or read as markup."""
    marks = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"}
    return "".join(marks.get(c, c) for c in " ".join(text.split()))


def _id(kind: str, name: str) -> str:
    """A unique identifier. Mermaid's names can't hold a dash, so names with one get a spelling that no other name
    has."""
    if "-" not in name:
        return f"{kind}_{name}"
    return f"{kind}x_{name.replace('_', '__').replace('-', '_d')}"
