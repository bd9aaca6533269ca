"""A selection packed into a blueprint and opened again is the Walk as it was drawn, up to names."""

import random
from typing import Any

import pytest

from walkgraph.errors import InvalidInput
from walkgraph.graph.blueprints.flattening import flatten
from walkgraph.graph.blueprints.packing import pack, unpack
from walkgraph.graph.check import check
from walkgraph.graph.codec import dump, load
from walkgraph.graph.document import Graph
from walkgraph.graph.language.expressions import name_innermost, parse, source
from walkgraph.graph.structure import structure
from walkgraph.simulation.reference.random_walks import CATALOGUE, SeededDraw, random_graph

BOX = "packed"


def untyped(_node: str, _port: str) -> str | None:
    return None


def name(text: str) -> str:
    return text.removeprefix(f"{BOX}__")


def reference(text: str) -> str:
    owner, _, port = text.partition(".")
    return f"{owner}.{name(port)}" if owner.startswith("@") else f"{name(owner)}.{port}"


def value(text: str, loop: str = "index") -> str:
    return source(parse(name_innermost(text.removeprefix("="), loop))).replace(f"{BOX}__", "")


def item(found: Any, loop: str = "index") -> Any:
    """An item without the names of copies. `loop`: the innermost one around it."""
    if isinstance(found, list):
        return [item(one, loop) for one in found]
    if not isinstance(found, dict):
        return found
    made: dict[str, Any] = {}
    here = name(found.get("loop") or (found.get("as", "items") if "map" in found else "") or loop)
    for key, child in found.items():
        if key in ("use", "as", "loop", "fork", "into"):
            made[key] = name(child)
        elif key in ("until", "choose", "map"):
            made[key] = reference(child)
        elif key in ("when", "times", "bound", "width"):
            made[key] = value(child, loop)
        elif key == "cases":
            made[key] = {case: item(one, loop) for case, one in child.items()}
        else:
            made[key] = item(child, here)
    if "as" in made and made["as"] in (made.get("use"), "items"):
        del made["as"]
    return made


def plain(graph: Graph, walk: str) -> dict[str, Any]:
    """A Walk with its nodes in one form: names without those of copies, expressions in one spelling, edges in one
    order."""
    tree = graph.walks[walk].model_dump(mode="json", by_alias=True, exclude_defaults=True)
    edges = [{**edge, "from": reference(edge["from"]), "to": reference(edge["to"])} for edge in tree.get("edges", [])]
    nodes = {name(e.node): graph.nodes[e.node] for e in structure(graph.walks[walk]).entries if e.node in graph.nodes}
    return {
        "body": item(tree["body"]),
        "edges": sorted(map(repr, edges)),
        "merges": {name(key): sorted(map(reference, ports)) for key, ports in tree.get("merges", {}).items()},
        "results": {key: {**one, "from": reference(one["from"])} for key, one in tree.get("results", {}).items()},
        "nodes": {key: node.model_dump() for key, node in nodes.items()},
    }


def places(graph: Graph, walk: str) -> list[list[str]]:
    """The items of every list of a body, as pointers."""
    found: list[list[str]] = []

    def visit(items: Any, at: str) -> None:
        here = [f"{at}/{index}" for index in range(len(items))]
        found.append(here)
        for one, place in zip(items, here, strict=True):
            for key in ("body", "parallel", "sequence", "otherwise"):
                if inside := getattr(one, key, ()):
                    visit(inside, f"{place}/{key}")
            for case, inside in getattr(one, "cases", {}).items():
                visit(inside, f"{place}/cases/{case}")

    visit(graph.walks[walk].body, "/body")
    return [one for one in found if one]


def chosen(seed: int) -> tuple[Graph, list[str]]:
    """A random graph, and some items of one list of its Walk."""
    graph, chance = random_graph(SeededDraw(seed)), random.Random(seed)
    group = chance.choice(places(graph, "w"))
    return graph, chance.sample(group, chance.randint(1, len(group)))


def packed_or_none(graph: Graph, items: list[str]) -> Graph | None:
    try:
        return pack(graph, "w", items, BOX, untyped)
    except InvalidInput:
        return None


def in_order(items: list[str]) -> bool:
    """True if the items are next to one another, so that none moves."""
    indices = sorted(int(item.rpartition("/")[2]) for item in items)
    return indices == list(range(indices[0], indices[-1] + 1))


def compared(graph: Graph, items: list[str], again: Graph) -> tuple[dict[str, Any], dict[str, Any]]:
    found, expected = plain(again, "w"), plain(graph, "w")
    if not in_order(items) or "/parallel/" in items[0]:
        del found["body"], expected["body"]
    return found, expected


@pytest.mark.parametrize("seed", range(0, 300, 30))
def test_what_is_packed_opens_to_the_same_walk(seed: int) -> None:
    for one in range(seed, seed + 30):
        graph, items = chosen(one)
        packed = packed_or_none(graph, items)
        if packed is None:
            continue
        flat = flatten(packed)
        assert [fault for fault in flat.faults if fault.severity == "error"] == [], one
        found, expected = compared(graph, items, flat.graph)
        assert found == expected, one
        assert load(dump(packed)) == packed
        assert load(dump(flat.graph)) == flat.graph
        assert not {p.code for p in check(packed, CATALOGUE).errors} - {p.code for p in check(graph, CATALOGUE).errors}


@pytest.mark.parametrize("seed", range(0, 90, 30))
def test_what_is_unpacked_has_its_names_again(seed: int) -> None:
    for one in range(seed, seed + 30):
        graph, items = chosen(one)
        packed = packed_or_none(graph, items)
        if packed is None:
            continue
        again = unpack(packed, BOX)
        assert again.blueprints == {}
        assert again.nodes == graph.nodes
        found, expected = compared(graph, items, again)
        assert found == expected, one


def test_few_selections_are_refused() -> None:
    """The tests above say something."""
    packed = [packed_or_none(*chosen(seed)) is not None for seed in range(100)]
    assert sum(packed) > 70
