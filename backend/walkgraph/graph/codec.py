"""Graph <-> JSON, without loss: `dump` writes what `load` read in its shortest form, in the author's order.

`load` raises at the first fault of structure; `graph.check` lists all of them and judges the meaning.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Graph
from walkgraph.graph.reading.guard import arr, obj, read_json
from walkgraph.graph.reading.shorthand import contract
from walkgraph.graph.reading.wellformed import Draft

_WIDTH = 118
_NARROW = 80
"""Columns for lists that hold lists or objects."""


def load(data: str | bytes | Mapping[str, Any]) -> Graph:
    """Read a graph from JSON text, bytes or an object; raises InvalidInput with a pointer for the first problem."""
    draft = Draft(read_json(data) if isinstance(data, str | bytes) else data)
    if draft.problems:
        raise InvalidInput(draft.problems[0].message, draft.problems[0].pointer)
    return draft.graph


def dump(graph: Graph) -> dict[str, Any]:
    """The document with shorthands wherever they suffice, and only the fields that differ from their defaults."""
    fields = graph.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return contract({"format": graph.format, **fields})


def dumps(graph: Graph) -> str:
    """The document as text: indented by two spaces, short lists and objects on one line, with a final newline."""
    return pretty(dump(graph)) + "\n"


def digest(graph: Graph) -> str:
    """SHA-256 of the content in hex. The layout does not count; the order of entries does, as plans number by it."""
    content = {key: value for key, value in dump(graph).items() if key != "layout"}
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def pretty(value: Any, indent: int = 0, used: int = 0) -> str:
    """JSON with flat values on one line where they fit; `used` columns are taken by the key before."""
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if _is_flat(value, 2):
        line = json.dumps(value, ensure_ascii=False)
        width = _WIDTH if isinstance(value, dict) or _is_flat(value, 1) else _NARROW
        if indent + used + len(line) <= width:
            return f"{{ {line[1:-1]} }}" if isinstance(value, dict) else line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        entries = [(json.dumps(key, ensure_ascii=False) + ": ", child) for key, child in obj(value).items()]
        lines = [f"{inner}{key}{pretty(child, indent + 2, len(key))}" for key, child in entries]
        opening, closing = "{", "}"
    else:
        lines = [f"{inner}{pretty(child, indent + 2)}" for child in arr(value)]
        opening, closing = "[", "]"
    return "\n".join([opening, ",\n".join(lines), " " * indent + closing])


def _is_flat(value: Any, levels: int) -> bool:
    """True if at most `levels` containers are nested."""
    if not isinstance(value, dict | list):
        return True
    return levels > 0 and all(_is_flat(child, levels - 1) for child in (*obj(value).values(), *arr(value)))
