"""Markdown out of values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A pipe table; empty text where there are no rows."""
    lines = ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(head)} |", "|" + " --- |" * len(head), *lines, ""])


def cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    text = str(value)
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """The first letter large, a full stop at the end; words in backticks stay."""
    text = " ".join(text.split())
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".:!?" else ".")


def anchor(*words: str) -> str:
    """A name that a link can have."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def documented(path: Path) -> dict[str, str]:
    """Reads the docstrings below the assignments of a module and its classes: name or `Class.name` -> text."""
    found: dict[str, str] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for owner in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        for before, after in zip(owner.body, owner.body[1:], strict=False):
            name = _assigned(before)
            if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[prefix + name] = str(after.value.value)
    return found


def _assigned(node: ast.stmt) -> str:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        owner, _, name = schema["$ref"].rpartition("/")
        return f"[{name}](#{anchor('graph' if owner == '#/$defs' else 'body', name)})"
    if "const" in schema:
        return code(repr(schema["const"]).replace("'", '"'))
    if "enum" in schema:
        return ", ".join(code(one) for one in schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            parts = dict.fromkeys(kind_of(one) for one in schema[key] if one.get("type") != "null")
            return " or ".join(parts)
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        kind = " or ".join(one for one in kind if one != "null")
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    inside = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
    if kind == "object" and isinstance(inside, dict) and inside:
        return f"object of {kind_of(inside)}"
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    if low is not None:
        return f", from {low:,}"
    return f", at most {high:,}" if high is not None else ""
