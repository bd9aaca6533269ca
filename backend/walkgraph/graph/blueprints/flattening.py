"""A graph with blueprints -> the same graph without: each node that stands for a blueprint becomes a copy of it.

One round opens the outermost of these nodes; what stands for a blueprint inside is opened by the next. Total: what
can't be opened stays as it is, with a fault that says why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from walkgraph.graph.blueprints.boxes import JOIN, NAMING, Box, Naming, TooLarge, Unsuited, as_walk, items_in
from walkgraph.graph.blueprints.walks import OpenedWalk, Path
from walkgraph.graph.catalogue import blueprint_of
from walkgraph.graph.document import Blueprint, Graph, Literals, Node, State, Stream, Walk, Weights
from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.graph.language.ranges import value_fault
from walkgraph.graph.problems import Severity, nearest
from walkgraph.graph.reading.guard import LIMITS, MAX_EDGES, MAX_ITEMS
from walkgraph.graph.structure import structure, structures

MOST_DEEP = 8
"""The most blueprints in one another."""
MOST_LETTERS = 64
"""The longest flat name."""


T = TypeVar("T")
Unfed = Mapping[tuple[str, str, str], tuple[Path, str]]


@dataclass(frozen=True)
class Fault:
    code: str
    path: Path
    """In the graph with blueprints."""
    message: str
    severity: Severity = "error"


@dataclass(frozen=True)
class Flat:
    """A graph without blueprints, and what its parts come from."""

    graph: Graph
    faults: tuple[Fault, ...] = ()
    origins: tuple[Mapping[Path, Path], ...] = ()
    """The paths of each round, the last first: path in the graph that it made -> path in the one that it was given."""
    broken: frozenset[str] = frozenset()
    """Walks with a piece missing."""
    unfed: Unfed = field(default_factory=dict[tuple[str, str, str], tuple[Path, str]])
    """(Walk, use, port) that the missing edge to a blueprint's input would feed -> place and message."""
    offered: frozenset[tuple[str, str]] = frozenset()
    """(Walk, use) whose outputs a blueprint gives away, read or not."""

    def origin(self, path: Path) -> Path:
        """The place in the graph with blueprints of a place in this one."""
        for places in self.origins:
            path = _moved(path, places)
        return path


def flatten(graph: Graph) -> Flat:
    """Put a copy of its blueprint in the place of each node that stands for one."""
    flat = Flat(graph)
    if not graph.blueprints and not any(blueprint_of(node.component) for node in graph.nodes.values()):
        return flat
    faults, closed = _closed(graph)
    flat = Flat(graph, tuple(faults))
    try:
        for _ in range(MOST_DEEP):
            opening = _Round(flat, closed)
            if not opening.boxes:
                break
            flat = opening.opened()
    except TooLarge as error:
        fault = Fault("too_large", ("blueprints",), str(error))
        return Flat(graph, (*faults, fault), broken=frozenset(graph.walks))
    left = {name: blueprint for name, blueprint in graph.blueprints.items() if name in closed}
    return Flat(
        flat.graph.model_copy(update={"blueprints": left}),
        (*flat.faults, *_unused(graph)),
        flat.origins,
        flat.broken,
        flat.unfed,
        flat.offered,
    )


def open_one(graph: Graph, node: str, naming: Naming) -> Flat:
    """Put a copy of its blueprint in the place of one node, under names of another kind."""
    faults, closed = _closed(graph)
    try:
        return _Round(Flat(graph, tuple(faults)), closed, node, naming).opened()
    except TooLarge as error:
        return Flat(graph, (*faults, Fault("too_large", ("blueprints",), str(error))))


def _moved(path: Path, places: Mapping[Path, Path]) -> Path:
    for depth in range(len(path), 1, -1):
        if path[:depth] in places:
            return (*places[path[:depth]], *path[depth:])
    return path


# ── what can be opened ──────────────────────────────────────────────────────────────────────────


def _closed(graph: Graph) -> tuple[list[Fault], frozenset[str]]:
    """The blueprints that can't be opened, with the reasons, and those that nodes name and nobody declares."""
    faults: list[Fault] = []
    inside = {name: tuple(_inside(blueprint.nodes)) for name, blueprint in graph.blueprints.items()}
    circles = {name for name in inside if name in _reached(name, inside)}
    depths: dict[str, int] = dict.fromkeys(circles, 1)
    closed = set(circles)
    for name, blueprint in graph.blueprints.items():
        if name in circles:
            message = f"`{name}` is inside itself; take {' or '.join(f'`{one}`' for one in inside[name])} out of it"
            faults.append(Fault("blueprint_cycle", ("blueprints", name), message))
        elif _depth(name, inside, depths) > MOST_DEEP:
            closed.add(name)
            message = f"there are more than {MOST_DEEP} blueprints in one another; flatten them"
            faults.append(Fault("too_deep", ("blueprints", name), message))
        if not blueprint.body:
            closed.add(name)
            faults.append(Fault("empty", ("blueprints", name, "body"), "the blueprint has no nodes; put some in"))
        faults += _declared(name, blueprint)
    nodes = chain([((), graph.nodes)], ((("blueprints", name), one.nodes) for name, one in graph.blueprints.items()))
    for place, group in nodes:
        for name, node in group.items():
            wanted = blueprint_of(node.component)
            if wanted and wanted not in graph.blueprints:
                message = f"the graph has no blueprint `{wanted}`; {nearest(wanted, graph.blueprints)}"
                faults.append(Fault("unknown_component", (*place, "nodes", name, "component"), message))
                closed.add(wanted)
    return faults, frozenset(closed)


def _inside(nodes: Mapping[str, Node]) -> dict[str, None]:
    """The blueprints that nodes stand for."""
    return dict.fromkeys(name for node in nodes.values() if (name := blueprint_of(node.component)))


def _reached(name: str, inside: Mapping[str, tuple[str, ...]]) -> set[str]:
    found: set[str] = set()
    left = [*inside.get(name, ())]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(inside.get(one, ()))
    return found


def _depth(name: str, inside: Mapping[str, tuple[str, ...]], known: dict[str, int]) -> int:
    """Count the blueprints in one another, this one included. `known` holds those that are in a circle."""
    if name not in known:
        known[name] = 1 + max((_depth(one, inside, known) for one in inside.get(name, ())), default=0)
    return known[name]


def _declared(name: str, blueprint: Blueprint) -> Iterator[Fault]:
    """Faults of a blueprint that have nothing to do with the nodes that stand for it."""
    at = ("blueprints", name)
    for index, edge in enumerate(blueprint.edges):
        if edge.to.startswith("@"):
            message = f"a blueprint sends nothing to the client; make `{edge.from_}` an output of it"
            yield Fault("bad_reference", (*at, "edges", str(index), "to"), message)
        if edge.from_.startswith("@stream."):
            message = "a blueprint reads no stream; give it an input, and feed that from the stream"
            yield Fault("bad_reference", (*at, "edges", str(index), "from"), message)
        port = edge.from_.removeprefix("@in.")
        if port != edge.from_ and port not in blueprint.inputs:
            message = f"the blueprint has no input `{port}`; {nearest(port, blueprint.inputs)}"
            yield Fault("unknown_input", (*at, "edges", str(index), "from"), message)
    for key, param in blueprint.params.items():
        fault = None if param.default is None else value_fault(param.default, param)
        if fault:
            yield Fault("bad_param", (*at, "params", key, "default"), f"`{key}` {fault}")
    taken = {edge.from_ for edge in blueprint.edges}
    facts = structure(as_walk(blueprint))
    taken |= {choice.item.choose for choice in facts.choices} | {at.item.map for at in facts.maps}
    for key in blueprint.inputs:
        if f"@in.{key}" not in taken:
            message = f"no edge takes `@in.{key}`; draw one, or remove the input"
            yield Fault("unused_input", (*at, "inputs", key), message, "warning")


def _unused(graph: Graph) -> Iterator[Fault]:
    standing = {*_inside(graph.nodes)}.union(*(_inside(one.nodes) for one in graph.blueprints.values()))
    for name in graph.blueprints:
        if name not in standing:
            message = f"no node stands for `{name}`; put one into a Walk, or remove the blueprint"
            yield Fault("unused_blueprint", ("blueprints", name), message, "warning")


# ── one round ───────────────────────────────────────────────────────────────────────────────────


class _Round:
    def __init__(self, flat: Flat, closed: frozenset[str], only: str | None = None, naming: Naming = NAMING) -> None:
        """`only`: the node to open; None: all of them."""
        self._flat, self._graph, self._naming = flat, flat.graph, naming
        self._faults: list[Fault] = []
        self._origins: dict[Path, Path] = {}
        self._walks_of: dict[str, list[tuple[str, str | None]]] = {}
        """Node -> for each use of it, the use's name and the loop around it."""
        self._left = {"nodes": LIMITS["nodes"], "items": MAX_ITEMS, "edges": MAX_EDGES}
        for facts in structures(self._graph).values():
            for entry in facts.entries:
                if entry.node:
                    around = entry.loops[-1] if entry.loops else None
                    self._walks_of.setdefault(entry.node, []).append((entry.name, around))
        self.boxes = {
            name: self._box(name, node, wanted)
            for name, node in self._graph.nodes.items()
            if (wanted := blueprint_of(node.component)) and wanted not in closed and only in (None, name)
        }

    def opened(self) -> Flat:
        nodes, states, weights = self._parts()
        walks: dict[str, Walk] = {}
        broken, unfed, offered = set(self._flat.broken), dict(self._flat.unfed), set(self._flat.offered)
        opened: dict[str, OpenedWalk] = {}
        for name, walk in self._graph.walks.items():
            one = OpenedWalk(name, walk, self.boxes, self._tell, self._spend)
            self._spend("items", items_in(walk.body))
            if not one.uses:
                walks[name] = walk
                continue
            opened[name], walks[name] = one, one.flat()
            self._origins.update(one.origins)
            offered.update((name, use) for use in one.offered())
            for (use, port), (path, message) in one.unfed.items():
                told = self._outer_unfed(name, one, use)
                unfed[name, use, port] = told or (self._flat.origin(path), message)
            if one.broken:
                broken.add(name)
        streams = tuple(self._stream(i, stream, opened) for i, stream in enumerate(self._graph.streams))
        changes = {"nodes": nodes, "states": states, "weights": weights, "walks": walks, "streams": streams}
        faults = tuple(Fault(f.code, self._flat.origin(f.path), f.message, f.severity) for f in self._faults)
        return Flat(
            self._graph.model_copy(update=changes),
            (*self._flat.faults, *faults),
            (self._origins, *self._flat.origins),
            frozenset(broken),
            unfed,
            frozenset(offered),
        )

    def _outer_unfed(self, walk: str, opened: OpenedWalk, use: str) -> tuple[Path, str] | None:
        """The place and message where a missing edge further out has told already."""
        for standing in opened.uses.values():
            if use.startswith(f"{standing.name}{JOIN}"):
                for port in standing.box.blueprint.inputs:
                    found = self._flat.unfed.get((walk, standing.name, port))
                    if found is not None:
                        return found
        return None

    def _spend(self, what: str, count: int) -> None:
        self._left[what] -= count
        if self._left[what] < 0:
            raise TooLarge(f"with the copies of its blueprints the graph has too many {what}; split it up")

    def _tell(self, code: str, path: Path, message: str, severity: Severity = "error") -> None:
        self._faults.append(Fault(code, path, message, severity))

    def _box(self, name: str, node: Node, key: str) -> Box:
        blueprint, uses = self._graph.blueprints[key], self._walks_of.get(name, [])
        around = {loop for _, loop in uses}
        box = Box(name, node, blueprint, key, self._naming, next(iter(around)) if len(around) == 1 else None)
        if not uses:
            message = f"no Walk uses `{name}`; put it into a body, or remove it"
            self._tell("unused_node", ("nodes", name), message, "warning")
        self._params(box)
        for slot in node.states:
            if slot not in blueprint.states:
                message = f"`{key}` has no state `{slot}`; {nearest(slot, blueprint.states)}"
                self._tell("unknown_slot", ("nodes", name, "states", slot), message)
        if node.weights is not None and not blueprint.weights:
            message = f"`{key}` has no weights; remove `weights`"
            self._tell("needless_weights", ("nodes", name, "weights"), message, "warning")
        if node.kept:
            message = f"`{name}` stands for several nodes; say `kept` at those inside `{key}`"
            self._tell("not_deterministic", ("nodes", name, "kept"), message)
        if len({use for use, _ in uses}) > 1 and _names_loops(blueprint):
            message = f"a node of `{key}` names a loop inside, so its uses share one name; add a node for the others"
            self._tell("blueprint_route", ("nodes", name), message)
        return box

    def _params(self, box: Box) -> None:
        at = ("nodes", box.name, "params")
        for key, value in box.node.params.items():
            param = box.blueprint.params.get(key)
            if param is None:
                message = f"`{box.key}` has no parameter `{key}`; {nearest(key, box.blueprint.params)}"
                self._tell("unknown_param", (*at, key), message)
            elif isinstance(value, str) and value.startswith("="):
                try:
                    parse(value[1:].strip())
                except ExpressionError as error:
                    self._tell("bad_expression", (*at, key), f"`{value[1:81]}`: {error}")
            elif fault := value_fault(value, param):
                self._tell("bad_param", (*at, key), f"`{key}` {fault}")
        for key, param in box.blueprint.params.items():
            if param.default is None and key not in box.node.params:
                message = f'`{box.key}` needs a `{key}` ({param.type}); set it, or write an expression: `"=..."`'
                self._tell("missing_param", at, message)

    # ── nodes, states, weights ──

    def _parts(self) -> tuple[dict[str, Node], dict[str, State], dict[str, Weights]]:
        """The nodes, states and weights of the flat graph, each copy in the place of its node."""
        nodes: dict[str, Node] = {}
        states, weights = dict(self._graph.states), dict(self._graph.weights)
        known = {entry: name for name, entry in reversed(weights.items())}
        for name, node in self._graph.nodes.items():
            box = self.boxes.get(name)
            if box is None:
                self._add("nodes", nodes, name, node, ("nodes", name))
                continue
            if name not in self._walks_of:
                continue
            source = ("blueprints", box.key)
            named: dict[str, str] = {}
            for key, entry in box.blueprint.weights.items():
                given = self._graph.weights.get(node.weights or "")
                if node.weights is not None and (given is None or given.family == entry.family):
                    named[key] = node.weights
                    continue
                if entry not in known:
                    known[entry] = box.naming.joined(box.key, key)
                    self._add("weights", weights, known[entry], entry, (*source, "weights", key))
                    self._origins["weights", known[entry]] = (*source, "weights", key)
                named[key] = known[entry]
            for key, state in box.blueprint.states.items():
                if key not in node.states:
                    flat = box.joined(key)
                    self._add("states", states, flat, self._state(box, state), (*source, "states", key))
                    self._origins["states", flat] = (*source, "states", key)
            for key, inner in box.blueprint.nodes.items():
                flat = box.joined(key)
                self._origins["nodes", flat] = (*source, "nodes", key)
                self._add("nodes", nodes, flat, self._node(box, key, inner, named), (*source, "nodes", key))
        return nodes, states, weights

    def _add(self, section: str, group: dict[str, T], name: str, entry: T, path: Path) -> None:
        own = self._graph.nodes if section == "nodes" else self._graph.states if section == "states" else {}
        if path[0] == "blueprints" and (name in group or name in own):
            message = f"`{name}` is the name of a copy's part too; rename this, or what `{JOIN}` joins"
            self._tell("name_taken", (section, name) if name in own else path, message)
        elif len(name) > MOST_LETTERS:
            message = f"`{name}` is longer than {MOST_LETTERS} letters; shorten one of the names that `{JOIN}` joins"
            self._tell("name_too_long", path, message)
        if section == "nodes":
            self._spend("nodes", 1)
        group[name] = entry

    def _state(self, box: Box, state: State) -> State:
        changes: dict[str, str] = {}
        for key, text in (("width", state.width), ("capacity", state.capacity)):
            if text is not None:
                changes[key] = str(self._value(box, text, {}, expression=True))
        return state.model_copy(update=changes)

    def _node(self, box: Box, key: str, node: Node, weights: Mapping[str, str]) -> Node:
        uses = self._walks_of.get(box.name, [])
        prefix = uses[0][0] if uses else box.name
        loops = {at.name: box.naming.loop(prefix, at.name) for at in box.inside.loops}
        params: dict[str, Literals] = {}
        for name, value in node.params.items():
            params[name] = self._value(box, value, loops)
            if isinstance(value, str) and value.startswith("=") and (given := value[1:].strip()) in box.node.params:
                self._origins["nodes", box.joined(key), "params", name] = ("nodes", box.name, "params", given)
        bound = {slot: box.state(state) for slot, state in node.states.items()}
        inner = None if node.weights is None else weights.get(node.weights, node.weights)
        if inner is not None and inner == box.node.weights:
            self._origins["nodes", box.joined(key), "weights"] = ("nodes", box.name, "weights")
        return node.model_copy(update={"params": params, "states": bound, "weights": inner})

    def _value(self, box: Box, value: Literals, loops: Mapping[str, str], *, expression: bool = False) -> Literals:
        try:
            return box.expression(str(value), loops) if expression else box.value(value, loops)
        except Unsuited as error:
            self._tell("bad_param", ("nodes", box.name, "params"), str(error))
        except ExpressionError:
            pass  # reported at the expression itself
        return value

    def _stream(self, index: int, stream: Stream, walks: Mapping[str, OpenedWalk]) -> Stream:
        owner = stream.from_.partition(".")[0]
        for walk in stream.walks:
            if walk in walks and owner in walks[walk].uses:
                source = walks[walk].reference(stream.from_, ("streams", str(index), "from"))
                return stream.model_copy(update={"from_": source})
        return stream


def _names_loops(blueprint: Blueprint) -> bool:
    """True if a parameter of a node inside names a loop of the blueprint."""
    values = (value for node in blueprint.nodes.values() for value in node.params.values())
    for value in values:
        if isinstance(value, str) and value.startswith("="):
            try:
                if parse(value[1:].strip()).loops - {"index"}:
                    return True
            except ExpressionError:
                continue
    return False
