"""The published JSON Schema of graph documents, shorthands included: generated from the models, stored beside this
file.

`python -m walkgraph.graph.schema` rewrites `graph-v1.schema.json`; a test fails if it differs from the models.
"""

import ast
import inspect
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from walkgraph.graph import document
from walkgraph.graph.codec import pretty
from walkgraph.graph.document import Graph, Name, Reference
from walkgraph.graph.reading.guard import arr, obj

SCHEMA_ID = "urn:walkgraph:schema:graph:1"
FILE = "graph-v1.schema.json"

_NAME = TypeAdapter(Name).json_schema()
_REFERENCE = TypeAdapter(Reference).json_schema()
_ITEMS = ("Use", "Parallel", "Sequence", "Loop", "Fork", "Choose", "Map")
_STEPS = ("WalkStep", "PartsStep", "TurnsStep", "FirstStep", "ChooseStep", "LoopStep", "ApproveStep")


@cache
def schema() -> dict[str, Any]:
    """The published schema."""
    return json.loads((files("walkgraph.graph") / FILE).read_text(encoding="utf-8"))


def generate() -> dict[str, Any]:
    """Generate the schema from the models."""
    made = Graph.model_json_schema(by_alias=True)
    definitions = {name: _describe(name, _tidy(value)) for name, value in made.pop("$defs").items()}
    definitions |= {"Item": _item(), "Step": _step(), "Link": _link(), "ResultFrom": _result()}
    root = _describe("Graph", _tidy(made))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, "title": "Walkgraph graph"}
    return _named({**head, **root, "$defs": dict(sorted(definitions.items()))})


def text() -> str:
    return pretty(generate()) + "\n"


def _refs(names: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"$ref": f"#/$defs/{name}"} for name in names]


def _item() -> dict[str, Any]:
    node = {**_NAME, "description": 'A node: short for `{"use": name}`.'}
    row = {"type": "array", "items": {"$ref": "#/$defs/Item"}, "minItems": 1, "description": "One after the other."}
    return {"description": "An item of a body.", "anyOf": [node, row, *_refs(_ITEMS)]}


def _step() -> dict[str, Any]:
    return {"description": "A step of a task.", "anyOf": _refs(_STEPS)}


def _link() -> dict[str, Any]:
    pair = {
        "type": "array",
        "prefixItems": [_REFERENCE, _REFERENCE],
        "minItems": 2,
        "maxItems": 2,
        "description": "From and to, without flags.",
    }
    return {"description": "An edge.", "anyOf": [pair, *_refs(("Edge",))]}


def _result() -> dict[str, Any]:
    use = {**_REFERENCE, "description": "`use.port`, without flags."}
    return {"description": "A result.", "anyOf": [use, *_refs(("Result",))]}


def _tidy(value: Any) -> Any:
    """The schema without titles; constrained dictionaries forbid other keys."""
    if isinstance(value, list):
        return [_tidy(child) for child in arr(value)]
    if not isinstance(value, dict):
        return value
    fields = obj(value)
    made = {
        k: _tidy(v) for k, v in fields.items() if not (k == "title" and isinstance(v, str)) and k != "discriminator"
    }
    if "patternProperties" in made:
        made["additionalProperties"] = False
    return made


def _named(value: Any) -> Any:
    """Refer to unions of items and steps, to edges and to results by name, so that the shorthands can be added."""
    if isinstance(value, list):
        return [_named(child) for child in arr(value)]
    if not isinstance(value, dict):
        return value
    fields = {key: _named(child) for key, child in obj(value).items()}
    options = {obj(option).get("$ref", "").removeprefix("#/$defs/") for option in arr(fields.get("oneOf"))}
    if options == set(_ITEMS):
        return {"$ref": "#/$defs/Item"}
    if options == set(_STEPS):
        return {"$ref": "#/$defs/Step"}
    return fields


# ── descriptions, from the docstrings under fields ──────────────────────────────────────────────


@cache
def _docstrings() -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(document))
    found: dict[str, dict[str, str]] = {}
    for model in tree.body:
        if not isinstance(model, ast.ClassDef):
            continue
        fields = found.setdefault(model.name, {})
        for field, text in zip(model.body, model.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                fields[field.target.id.rstrip("_")] = " ".join(str(text.value.value).split())
    return found


def _describe(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    texts = _docstrings().get(name, {})
    properties = obj(definition.get("properties"))
    described = {key: ({"description": texts[key]} if key in texts else {}) | obj(v) for key, v in properties.items()}
    swaps = {
        "Walk": {"edges": "Link", "results": "ResultFrom"},
        "Blueprint": {"edges": "Link", "outputs": "ResultFrom"},
    }.get(name, {})
    for key, target in swaps.items():
        described[key] = _swap(described[key], {"Edge": target, "Result": target})
    return {**definition, "properties": described} if described else definition


def _swap(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_swap(child, names) for child in arr(value)]
    if not isinstance(value, dict):
        return value
    fields = {key: _swap(child, names) for key, child in obj(value).items()}
    target = names.get(str(fields.get("$ref", "")).removeprefix("#/$defs/"))
    return {"$ref": f"#/$defs/{target}"} if target else fields


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(text(), encoding="utf-8")
