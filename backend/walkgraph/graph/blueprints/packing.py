"""A selection of a Walk's items -> a blueprint with a node that stands for it, and back.

What crosses the border of the selection becomes ports: edges that come in, inputs; what is read outside, outputs. The
task's parameters that expressions inside read become parameters, and so do the indices of loops outside. States that
something outside keeps too stay the graph's, and the node binds them; others go inside.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from walkgraph.errors import InvalidInput
from walkgraph.graph.blueprints.border import Border, TypeOf
from walkgraph.graph.blueprints.boxes import OwnNaming
from walkgraph.graph.blueprints.flattening import open_one
from walkgraph.graph.blueprints.outward import Closing
from walkgraph.graph.blueprints.sections import Section, replaced, section
from walkgraph.graph.catalogue import BLUEPRINT, blueprint_of
from walkgraph.graph.document import (
    Blueprint,
    Choose,
    Fork,
    Graph,
    Item,
    Literals,
    Loop,
    Map,
    Node,
    Parallel,
    Sequence,
    State,
    Use,
)
from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.graph.reading.guard import obj
from walkgraph.graph.structure import nodes_of, structure, structures


def pack(graph: Graph, walk: str, items: Iterable[str], name: str, type_of: TypeOf) -> Graph:
    """The graph with these items of a Walk as the blueprint `name`, and a node in their place. `items`: pointers in the
    Walk, as `/body/0`. Raises InvalidInput where they can't be taken out."""
    if walk not in graph.walks:
        raise InvalidInput(f"the graph has no Walk `{walk}`; choose one that it has")
    if name in graph.blueprints:
        raise InvalidInput(f"there is a blueprint `{name}` already; choose another name")
    return _Packing(graph, walk, section(graph, walk, items), name, type_of).packed()


def pack_walk(graph: Graph, walk: str, type_of: TypeOf) -> Blueprint:
    """A Walk as a blueprint: its inputs, and as outputs its results and what it sends."""
    if walk not in graph.walks:
        raise InvalidInput(f"the graph has no Walk `{walk}`; choose one that it has")
    every = [f"/body/{index}" for index in range(len(graph.walks[walk].body))]
    packing = _Packing(graph, walk, section(graph, walk, every), walk, type_of)
    packing.packed()
    return packing.blueprint


def unpack(graph: Graph, node: str) -> Graph:
    """The graph with a copy of its blueprint in the place of a node, under the names inside where they are free. A
    blueprint for which no node is left goes. Raises InvalidInput where the copy couldn't be drawn."""
    key = blueprint_of(graph.nodes[node].component) if node in graph.nodes else ""
    if not key:
        raise InvalidInput(f"`{node}` stands for no blueprint; choose a node that does")
    flat = open_one(graph, node, OwnNaming(_names(graph) - {node}))
    faults = [fault for fault in flat.faults if fault.severity == "error"]
    if faults:
        raise InvalidInput(f"`{node}` can't be unpacked: {faults[0].message}")
    left = {blueprint_of(one.component) for one in flat.graph.nodes.values()}
    left |= {blueprint_of(one.component) for each in graph.blueprints.values() for one in each.nodes.values()}
    kept = {name: one for name, one in graph.blueprints.items() if name != key or name in left}
    return flat.graph.model_copy(update={"blueprints": kept})


def _names(graph: Graph) -> set[str]:
    """Every name that a copy's must differ from."""
    found = {*graph.nodes, *graph.states, *graph.weights}
    for facts in structures(graph).values():
        found |= {*facts.uses, *(at.name for at in facts.loops), *facts.walk.merges}
    return found


class _Packing:
    def __init__(self, graph: Graph, walk: str, chosen: Section, name: str, type_of: TypeOf) -> None:
        self._graph, self._walk, self._chosen, self._name = graph, walk, chosen, name
        facts = structure(graph.walks[walk], walk)
        self._uses = [e for e in facts.entries if e.name and chosen.holds(e.pointer)]
        if not self._uses:
            raise InvalidInput("the selection has no nodes; select some")
        used = {use for each in structures(graph).values() for use in each.uses}
        self._node = _free(name, {*graph.nodes, *used})
        self._border = Border(graph, facts, chosen, self._node, type_of)
        inner = {at.name for at in facts.loops if chosen.holds(at.pointer)}
        self._closing = Closing(graph, walk, chosen.loops, inner)
        self.blueprint = Blueprint.model_construct()

    def packed(self) -> Graph:
        self.blueprint = self._inside()
        walk = self._border.outer(replaced(self._graph.walks[self._walk], self._chosen, Use(use=self._node)))
        graph = self._graph.model_copy(
            update={
                "walks": {**self._graph.walks, self._walk: walk},
                "streams": tuple(map(self._border.stream, self._graph.streams)),
            }
        )
        used = {node for each in graph.walks.values() for node in nodes_of(each)}
        nodes = {
            key: _outside(node, key, graph) if key in self.blueprint.nodes else node
            for key, node in graph.nodes.items()
            if key in used or key not in self.blueprint.nodes
        }
        kept = {state for node in nodes.values() for state in node.states.values()} | _forked(graph)
        states = {key: one for key, one in graph.states.items() if key in kept or key not in self.blueprint.states}
        standing = {
            "component": f"{BLUEPRINT}{self._name}",
            "params": self._closing.given,
            "states": {state: state for state in self.blueprint.states if state in kept},
        }
        changes = {
            "nodes": {**nodes, self._node: Node.model_validate(standing)},
            "states": states,
            "blueprints": {**graph.blueprints, self._name: self.blueprint},
            "layout": _layout(graph.layout, self._walk, self._name, self._node, {e.name for e in self._uses})[0],
        }
        return graph.model_copy(update=changes)

    def _inside(self) -> Blueprint:
        facts = {entry.node: entry for entry in self._uses}
        nodes = {key: node for key, node in self._graph.nodes.items() if key in facts}
        body = self._items(self._chosen.items, ())
        if self._chosen.parent[-1] == "parallel" and len(body) > 1:
            body = (Parallel.model_construct(parallel=body, when=None),)
        weights = {node.weights for node in nodes.values()}
        states = {state for node in nodes.values() for state in node.states.values()}
        states |= {state for item in _every(body) if isinstance(item, Fork) for state in (item.fork, item.into)}
        depth = len(self._chosen.loops)
        looped = {node: {len(e.loops) > depth for e in self._uses if e.node == node} for node in nodes}
        made = {key: self._closing.node(node, looped[key]) for key, node in nodes.items()}
        kept = {key: self._state(state) for key, state in self._graph.states.items() if key in states}
        uses = {entry.name for entry in self._uses}
        return Blueprint.model_construct(
            description="",
            origin=None,
            inputs=self._border.inputs,
            outputs=self._border.outputs,
            params=self._closing.params,
            weights={key: one for key, one in self._graph.weights.items() if key in weights},
            states=kept,
            nodes=made,
            body=body,
            merges=self._border.merges,
            edges=self._border.inside,
            layout=_layout(self._graph.layout, self._walk, self._name, self._node, uses)[1],
        )

    def _state(self, state: State) -> State:
        capacity = None if state.capacity is None else self._closing.expression(state.capacity, None)
        return state.model_copy(update={"width": self._closing.expression(state.width, None), "capacity": capacity})

    # ── items ──

    def _items(self, items: tuple[Item, ...], loops: tuple[str, ...]) -> tuple[Item, ...]:
        return tuple(self._item(item, loops) for item in items)

    def _item(self, item: Item, loops: tuple[str, ...]) -> Item:
        """An item with what its expressions read from outside as parameters. `loops`: those around it inside."""

        def text(expression: str | None) -> str | None:
            return None if expression is None else self._closing.expression(expression, loops)

        changes: Mapping[str, object] = {"when": text(item.when)}
        match item:
            case Loop():
                inside = self._items(item.body, (*loops, item.loop))
                changes = {**changes, "times": text(item.times), "body": inside}
            case Map():
                inside = self._items(item.body, (*loops, item.loop))
                changes = {**changes, "map": self._border.head(item.map), "bound": text(item.bound)}
                changes = {**changes, "width": text(item.width), "body": inside}
            case Choose():
                cases = {value: self._items(items, loops) for value, items in item.cases.items()}
                changes = {**changes, "choose": self._border.head(item.choose), "cases": cases}
                changes = {**changes, "otherwise": self._items(item.otherwise, loops)}
            case Parallel():
                changes = {**changes, "parallel": self._items(item.parallel, loops)}
            case Sequence():
                changes = {**changes, "sequence": self._items(item.sequence, loops)}
            case _:
                pass
        return item.model_copy(update=changes)


def _every(items: Iterable[Item]) -> Iterable[Item]:
    """All items, those inside others included."""
    for item in items:
        yield item
        match item:
            case Loop(body=inside) | Map(body=inside) | Parallel(parallel=inside) | Sequence(sequence=inside):
                yield from _every(inside)
            case Choose():
                for branch in item.branches:
                    yield from _every(branch)
            case _:
                pass


def _forked(graph: Graph) -> set[str]:
    forks = (item for walk in graph.walks.values() for item in _every(walk.body) if isinstance(item, Fork))
    return {state for fork in forks for state in (fork.fork, fork.into)}


def _outside(node: Node, name: str, graph: Graph) -> Node:
    """A node that stays, without the expressions that name loops which are only around its uses inside: elsewhere the
    defaults apply anyway."""
    around = [set(e.loops) for facts in structures(graph).values() for e in facts.entries if e.node == name]

    def holds(value: Literals) -> bool:
        if not isinstance(value, str) or not value.startswith("="):
            return True
        try:
            loops = parse(value[1:].strip()).loops - {"index"}
        except ExpressionError:
            return True
        return not loops or any(loops <= each for each in around)

    return node.model_copy(update={"params": {key: value for key, value in node.params.items() if holds(value)}})


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name[:60]}_{number}", number + 1
    return found


def _layout(
    layout: Mapping[str, Any], walk: str, name: str, node: str, uses: Set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The layout outside and that of the blueprint: what was drawn of the selection goes inside."""
    drawn = obj(obj(layout.get("walks")).get(walk))
    places = obj(drawn.get("at"))
    inside = {f"use:{use}" for use in uses}
    moved = {key: at for key, at in places.items() if key in inside}
    if not moved:
        return dict(layout), {}
    kept = {key: at for key, at in places.items() if key not in inside}
    kept[f"use:{node}"] = next(iter(moved.values()))
    outside = {**layout, "walks": {**obj(layout.get("walks")), walk: {**drawn, "at": kept}}}
    return outside, {"walks": {name: {"at": moved}}}
