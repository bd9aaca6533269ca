"""A graph document as Graphviz text: the browser draws it from here, without a network. Drafts may hold anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FAMILY_COLOURS = ("#dfe3fb", "#d9f0e6", "#fde9d2", "#f9dfe8", "#e4f1fa", "#efe6f9", "#f2f1d8")
_HEAD = (
    'rankdir=LR; bgcolor="transparent"; nodesep=0.25; ranksep=0.45;',
    'node [shape=box, style="rounded,filled", color="#b9c0d4", fontname="Helvetica", fontsize=11, margin="0.14,0.07"];',
    'edge [color="#7d879e", arrowsize=0.7, fontname="Helvetica", fontsize=9];',
)


def draw(document: dict[str, Any], walk: str | None = None) -> str:
    """All nodes with every Walk's edges, or one Walk's nodes and edges."""
    nodes = _objects(document.get("nodes"))
    walks = _objects(document.get("walks"))
    shown = {name: body for name, body in walks.items() if walk in (None, name)}
    edges = list(dict.fromkeys(edge for body in shown.values() for edge in _edges(body)))
    used = {end for edge in edges for end in edge}
    families = list(dict.fromkeys(_family(node) for node in nodes.values()))
    lines = [*_HEAD]
    for name, node in nodes.items():
        if walk is None or name in used:
            colour = FAMILY_COLOURS[families.index(_family(node)) % len(FAMILY_COLOURS)]
            label = f"{name}\n{_text(node.get('component'))}"
            lines.append(f'{quoted(name)} [label={quoted(label)}, fillcolor="{colour}"];')
    for end in sorted(used - nodes.keys()):
        lines.append(f'{quoted(end)} [label={quoted(end.lstrip("@"))}, shape=oval, fillcolor="#ffffff"];')
    lines.extend(f"{quoted(source)} -> {quoted(target)};" for source, target in edges)
    return "digraph {\n  " + "\n  ".join(lines) + "\n}\n"


def quoted(text: str) -> str:
    """A DOT string that shows `text`, whatever it holds."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _edges(walk: dict[str, Any]) -> Iterator[tuple[str, str]]:
    aliases = dict(_aliases(walk.get("body")))
    given = walk.get("edges")
    for edge in given if isinstance(given, list) else ():
        ends = edge if isinstance(edge, list) else [edge.get("from"), edge.get("to")] if isinstance(edge, dict) else []
        if len(ends) == 2:
            source, target = (_end(_text(end), aliases) for end in ends)
            if source and target:
                yield source, target


def _end(reference: str, aliases: dict[str, str]) -> str:
    """The node behind `use.port`; inputs and outputs stand for themselves, loop counters for nothing."""
    name = reference.partition(".")[0]
    if name == "@loop":
        return ""
    return reference if name.startswith("@") else aliases.get(name, name)


def _aliases(body: Any) -> Iterator[tuple[str, str]]:
    """(name of a use, node) for the uses that have a name of their own."""
    items = body if isinstance(body, list) else list(body.values()) if isinstance(body, dict) else []
    if isinstance(body, dict) and "as" in body:
        yield _text(body["as"]), _text(body.get("use"))
    for item in items:
        yield from _aliases(item)


def _objects(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict):
        return {}
    return {str(name): item for name, item in value.items() if isinstance(item, dict)}


def _family(node: dict[str, Any]) -> str:
    return _text(node.get("component")).partition(".")[0]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
