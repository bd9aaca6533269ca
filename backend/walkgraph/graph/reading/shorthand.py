"""The shorthands of the JSON form: expanded before validation and contracted after it; list positions stay the same.

    "llm"               {"use": "llm"}                 an item
    ["a", "b"]          {"sequence": ["a", "b"]}       an item
    ["a.x", "b.y"]      {"from": "a.x", "to": "b.y"}   an edge
    "a.x"               {"from": "a.x"}                a result

Both directions accept any JSON value and leave unknown parts unchanged for `graph.reading.wellformed` to judge.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from walkgraph.graph.reading.guard import arr, obj

Change = Callable[[Any], Any]

_CHILDREN = {"parallel": "parallel", "sequence": "sequence", "loop": "body", "map": "body"}
"""Kind of item -> the key of its list."""


def expand(document: Any) -> Any:
    """The normal form; a copy where it differs."""
    return _walks(document, _expand_item, _expand_edge, _expand_result)


def contract(document: Any) -> Any:
    """The shortest form of a document in normal form."""
    return _walks(document, _contract_item, _contract_edge, _contract_result)


def locate(document: Any, pointer: tuple[str, ...]) -> tuple[str, ...]:
    """The place in the given document of a place in the normal form; the nearest enclosing one if it has none."""
    found: list[str] = []
    value: Any = document
    for name in pointer:
        if isinstance(value, list | tuple):
            if name == "sequence":
                continue
            step = {"from": "0", "to": "1"}.get(name, name)
            items = cast(Sequence[Any], value)
            if not (step.isascii() and step.isdigit() and int(step) < len(items)):
                break
            value = items[int(step)]
        elif name in obj(value):
            step, value = name, value[name]
        else:
            break
        found.append(step)
    return tuple(found)


def _walks(document: Any, item: Change, edge: Change, result: Change) -> Any:
    changed = document
    for section, results in (("walks", "results"), ("blueprints", "outputs")):
        walks = obj(obj(document).get(section))
        if walks:
            made = {name: _walk(walk, item, edge, result, results) for name, walk in walks.items()}
            changed = {**changed, section: made}
    return changed


def _walk(walk: Any, item: Change, edge: Change, result: Change, results: str) -> Any:
    if not isinstance(walk, dict):
        return walk
    changed = dict(obj(walk))
    for key, change in (("body", item), ("edges", edge)):
        if isinstance(changed.get(key), list | tuple):
            changed[key] = [change(value) for value in arr(changed[key])]
    if isinstance(changed.get(results), dict):
        changed[results] = {name: result(value) for name, value in changed[results].items()}
    return changed


def _expand_item(item: Any) -> Any:
    if isinstance(item, str):
        return {"use": item}
    if isinstance(item, list | tuple):
        return {"sequence": [_expand_item(child) for child in arr(item)]}
    return _inside(item, _expand_item)


def _inside(item: Any, change: Change) -> Any:
    """An item with its children changed; anything else unchanged."""
    fields = obj(item)
    if "choose" in fields and fields.keys().isdisjoint(_CHILDREN):
        return _branches(fields, change)
    for kind, key in _CHILDREN.items():
        if kind in fields and isinstance(fields.get(key), list | tuple):
            return {**fields, key: [change(child) for child in arr(fields[key])]}
    return item


def _branches(choose: dict[str, Any], change: Change) -> dict[str, Any]:
    def changed(items: Any) -> Any:
        return [change(child) for child in arr(items)] if isinstance(items, list | tuple) else items

    found = dict(choose)
    if isinstance(found.get("cases"), dict):
        found["cases"] = {value: changed(items) for value, items in obj(found["cases"]).items()}
    return found | ({"otherwise": changed(found["otherwise"])} if "otherwise" in found else {})


def _contract_item(item: Any) -> Any:
    if obj(item).keys() == {"use"}:
        return item["use"]
    inside = _inside(item, _contract_item)
    return inside["sequence"] if obj(inside).keys() == {"sequence"} else inside


def _expand_edge(edge: Any) -> Any:
    pair = arr(edge)
    return {"from": pair[0], "to": pair[1]} if len(pair) == 2 else edge


def _contract_edge(edge: Any) -> Any:
    return [edge["from"], edge["to"]] if obj(edge).keys() == {"from", "to"} else edge


def _expand_result(result: Any) -> Any:
    return {"from": result} if isinstance(result, str) else result


def _contract_result(result: Any) -> Any:
    return result["from"] if obj(result).keys() == {"from"} else result
