"""Blueprints as documents of their own: entries of the library, and files.

    {"format": "walkgraph/blueprint@1", "name": "refine", "inputs": ..., "body": ..., "blueprints": {...}}

An entry has what a blueprint of a graph has, and beside it the blueprints that it uses. A graph holds copies, so that
it runs without the library; `origin` tells which entry a copy is of.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from walkgraph.errors import InvalidInput
from walkgraph.graph.blueprints.flattening import MOST_DEEP
from walkgraph.graph.catalogue import BLUEPRINT, blueprint_of
from walkgraph.graph.codec import dump, load
from walkgraph.graph.document import Blueprint, Edge, Graph, Item, Node, Origin, Result, Use, Walk
from walkgraph.graph.reading.guard import obj
from walkgraph.graph.structure import structure

FORMAT = "walkgraph/blueprint@1"


def entry(graph: Graph, name: str) -> dict[str, Any]:
    """A blueprint of a graph as an entry, with those that it uses. Raises InvalidInput if there is none."""
    if name not in graph.blueprints:
        raise InvalidInput(f"the graph has no blueprint `{name}`; choose one that it has")
    return written(name, graph.blueprints[name], graph.blueprints)


def written(name: str, blueprint: Blueprint, known: Mapping[str, Blueprint]) -> dict[str, Any]:
    """An entry. `known`: where the blueprints that it uses are."""
    used = {key: known[key] for key in _used(blueprint, known) if key in known}
    copies = {key: one.model_copy(update={"origin": None}) for key, one in {**used, name: blueprint}.items()}
    tree = dump(Graph.model_construct(name=name, blueprints=copies))["blueprints"]
    inside = {key: value for key, value in tree.items() if key != name}
    return {"format": FORMAT, "name": name, **tree[name], **({"blueprints": inside} if inside else {})}


def read(value: Any) -> tuple[str, dict[str, Blueprint]]:
    """The name of an entry, and its blueprints with those that it uses. Raises InvalidInput with a pointer."""
    found = obj(value)
    if found.get("format") != FORMAT:
        raise InvalidInput(f"this is no blueprint; its `format` must be `{FORMAT}`", "/format")
    name = found.get("name")
    own = {key: part for key, part in found.items() if key not in ("format", "name", "blueprints")}
    graph = load({"name": name, "blueprints": {**obj(found.get("blueprints")), **({name: own} if name else {})}})
    return graph.name, graph.blueprints


def take(graph: Graph, value: Any, version: str | None, name: str | None = None) -> tuple[Graph, str]:
    """The graph with a copy of an entry, and the copy's name. `version`: the entry's etag in the library; None for a
    file. `name`: the blueprint of the graph to replace; None adds one. Raises InvalidInput for what isn't an entry."""
    entry_name, found = read(value)
    own = name or _free(entry_name, graph.blueprints)
    names = {entry_name: own}
    for key, one in found.items():
        if key == entry_name:
            continue
        same = graph.blueprints.get(key)
        names[key] = key if same is None or _content(same) == _content(one) else _free(key, graph.blueprints)
    origin = Origin(name=entry_name, version=version) if version else None
    copies = {names[key]: _renamed(one, names) for key, one in found.items()}
    copies[own] = copies[own].model_copy(update={"origin": origin})
    made = graph.model_copy(update={"blueprints": {**graph.blueprints, **copies}})
    return (_fitted(made, own) if name else made), own


def _used(blueprint: Blueprint, known: Mapping[str, Blueprint]) -> Iterator[str]:
    """The blueprints inside a blueprint, and those inside these."""
    left, seen = [(blueprint, 0)], set[str]()
    while left:
        one, depth = left.pop()
        for node in one.nodes.values():
            name = blueprint_of(node.component)
            if name and name not in seen and depth <= MOST_DEEP:
                seen.add(name)
                yield name
                if name in known:
                    left.append((known[name], depth + 1))


def _content(blueprint: Blueprint) -> Blueprint:
    return blueprint.model_copy(update={"origin": None, "layout": {}})


def _renamed(blueprint: Blueprint, names: Mapping[str, str]) -> Blueprint:
    nodes = {
        key: node.model_copy(update={"component": f"{BLUEPRINT}{names[inner]}"})
        if (inner := blueprint_of(node.component)) in names
        else node
        for key, node in blueprint.nodes.items()
    }
    return blueprint.model_copy(update={"nodes": nodes})


def _free(name: str, taken: Mapping[str, Any]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name[:60]}_{number}", number + 1
    return found


# ── after an update ─────────────────────────────────────────────────────────────────────────────


def _fitted(graph: Graph, name: str) -> Graph:
    """The graph without the wires and settings that a blueprint no longer has a place for."""
    walks = {key: _walk(walk, graph.nodes, name, graph.blueprints[name]) for key, walk in graph.walks.items()}
    nodes = _nodes(graph.nodes, name, graph.blueprints[name])
    blueprints = {
        key: _inner(one, name, graph.blueprints[name]) if key != name else one for key, one in graph.blueprints.items()
    }
    return graph.model_copy(update={"walks": walks, "nodes": nodes, "blueprints": blueprints})


def _nodes(nodes: Mapping[str, Node], name: str, blueprint: Blueprint) -> dict[str, Node]:
    def kept(node: Node) -> Node:
        if blueprint_of(node.component) != name:
            return node
        params = {key: value for key, value in node.params.items() if key in blueprint.params}
        states = {slot: state for slot, state in node.states.items() if slot in blueprint.states}
        weights = node.weights if blueprint.weights else None
        return node.model_copy(update={"params": params, "states": states, "weights": weights})

    return {key: kept(node) for key, node in nodes.items()}


def _inner(outer: Blueprint, name: str, blueprint: Blueprint) -> Blueprint:
    uses = _uses(outer.body, outer.nodes, name)
    outputs = {key: result for key, result in outer.outputs.items() if _reads(result.from_, uses, blueprint)}
    edges = tuple(edge for edge in outer.edges if _fits(edge, uses, blueprint))
    return outer.model_copy(update={"nodes": _nodes(outer.nodes, name, blueprint), "edges": edges, "outputs": outputs})


def _walk(walk: Walk, nodes: Mapping[str, Node], name: str, blueprint: Blueprint) -> Walk:
    uses = _uses(walk.body, nodes, name)
    if not uses:
        return walk
    results: dict[str, Result] = {
        key: result for key, result in walk.results.items() if _reads(result.from_, uses, blueprint)
    }
    edges = tuple(edge for edge in walk.edges if _fits(edge, uses, blueprint))
    return walk.model_copy(update={"edges": edges, "results": results})


def _uses(body: tuple[Item, ...], nodes: Mapping[str, Node], name: str) -> frozenset[str]:
    """The uses of nodes that stand for a blueprint."""
    facts = structure(Walk.model_construct(body=body, merges={}, edges=(), results={}))
    standing = {key for key, node in nodes.items() if blueprint_of(node.component) == name}
    return frozenset(e.item.name for e in facts.entries if isinstance(e.item, Use) and e.item.use in standing)


def _reads(reference: str, uses: frozenset[str], blueprint: Blueprint) -> bool:
    owner, _, port = reference.partition(".")
    return owner not in uses or port in blueprint.outputs


def _fits(edge: Edge, uses: frozenset[str], blueprint: Blueprint) -> bool:
    owner, _, port = edge.to.partition(".")
    return _reads(edge.from_, uses, blueprint) and (owner not in uses or port in blueprint.inputs)
