"""Messages for problems of structure: what the schema expected at a place, in the terms of the graph document."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from walkgraph.graph import document as doc
from walkgraph.graph.problems import nearest
from walkgraph.graph.reading.guard import arr, obj

Path = tuple[str, ...]
EMPTY = "must not be empty; put something in, or remove it"

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "`true` or `false`",
    "dict_type": "an object",
    "tuple_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_UNBOUND: Mapping[Path, str] = {
    ("times",): "the loop has no `times`; give it a bound, even where `until` ends it",
    ("bound",): "the map has no `bound`; say how many items it takes at most",
}
_EXPRESSIONS = ("times", "when", "width", "capacity", "bound")
_PATTERNS = {
    "component": ("bad_name", "is not a component's name; write `family.role` in small letters"),
    "source": ("bad_value", "is not a source; write `starter:NAME`, `checkpoint:NAME` or `random:CONFIG:SEED`"),
    "from": ("bad_reference", "names no port; write `use.port`, `@in.x`, `@loop.index`, `@stream.x` or `@merge.x`"),
    "until": ("bad_reference", "names no port; write `use.port` or `@merge.x`"),
    "map": ("bad_reference", "names no list; write `use.port`, `@in.x` or `@merge.x`"),
    "choose": ("bad_reference", "names no value; in a body write `use.port`, in a task `walk.result` or `@task.x`"),
    "merges": ("bad_reference", "names no port; write `use.port`"),
    "approve": ("bad_reference", "names no result; write `walk.result`"),
    "to": ("bad_reference", "names no port; write `use.port` or `@out.x`"),
}
_BAD_NAME = "is not a name; begin with a letter, then use letters, digits, `_` and `-`, at most 64 in all"


def describe(error: ErrorDetails, path: Path, rest: tuple[str, ...], document: Any) -> tuple[str, str]:
    """Code and message of an error at `path`; `rest` is the part of its location that is no place in the document."""
    kind, context, given = error["type"], error.get("ctx") or {}, _input(error)
    last = path[-1] if path else ""
    if kind == "missing" and rest in _UNBOUND:
        return "loop_without_bound", _UNBOUND[rest]
    if kind == "missing":
        return "missing_key", f"`{rest[0] if rest else last}` is missing in {_what(path, document)}; add it"
    if kind == "extra_forbidden":
        owner = path[:-1]
        known = sorted(_fields(owner, document))
        return "unknown_key", f"`{last[:80]}` is not a key of {_what(owner, document)}; {nearest(last, known)}"
    if rest == ("[key]",) and path[-2:-1] == ("cases",):
        return "bad_name", "a case is a text of 1 to 160 characters on one line; shorten it, or use `otherwise`"
    if rest == ("[key]",):
        return "bad_name", f"`{last[:80]}` {_BAD_NAME}"
    if rest and rest[-1] in ("bool", "int", "float", "str"):
        return "wrong_type", f"write a text, a number, `true` or `false`, not {kind_of(given)}"
    if kind in _EXPECTED and last in _EXPRESSIONS and isinstance(given, int | float):
        return "wrong_type", f"an expression is a text; write `{json.dumps(str(given))}`"
    if kind in _EXPECTED and len(path) == 4 and path[2] == "edges":
        return "wrong_type", "an edge is `[from, to]` or an object with `from` and `to`; write one of them"
    if kind in _EXPECTED:
        return "wrong_type", f"write {_EXPECTED[kind]}, not {kind_of(given)}"
    if kind == "string_pattern_mismatch":
        of_merge = len(path) == 5 and path[2] == "merges"
        key = "merges" if of_merge else "approve" if path[-2:-1] == ("approve",) else last
        code, advice = _PATTERNS.get(key, ("bad_name", _BAD_NAME))
        named = f"`{str(given)[:80]}`" if given != "" else "an empty text"
        return code, f"{named} {advice}"
    if kind == "literal_error":
        expected = context["expected"].replace(" or ", ",").split(",")
        choices = _CHOICES.get(last) or [part.strip(" '") for part in expected]
        return (
            "bad_value",
            f"`{str(given)[:80]}` is not one of the choices; {nearest(str(given), choices)}",
        )
    return _limit_words(kind, context, path[0] if path else "", last)


def _input(error: ErrorDetails) -> Any:
    return error["input"]


def _limit_words(kind: str, context: Mapping[str, Any], section: str, last: str) -> tuple[str, str]:
    if kind.startswith("union_tag"):
        if last == "chunks":
            return "bad_value", "set `policy` to `fixed`, `sliding`, `left_context` or `whole`"
        if section == "tasks":
            return "bad_item", "a step is an object with one of `walk`, `for`, `first`, `choose`; write one of them"
        return (
            "bad_item",
            "an item is the name of a node, a list, or an object with `use`, `parallel`, `loop`, `map`, `fork` or "
            "`choose`; write one",
        )
    if "ge" in context:
        return "bad_value", f"must be at least {context['ge']}; raise it"
    if "le" in context:
        return "bad_value", f"must be at most {context['le']}; lower it"
    if kind in ("too_short", "string_too_short"):
        return "bad_value", EMPTY
    if kind == "string_too_long":
        return "bad_value", f"may have at most {context['max_length']} characters; shorten it"
    return "bad_value", "has a value that does not fit; see the schema"


def kind_of(value: Any) -> str:
    names: dict[type[Any], str] = {
        type(None): "`null`",
        bool: "`true` or `false`",
        str: "a text",
        dict: "an object",
        list: "a list",
    }
    return next((name for kind, name in names.items() if isinstance(value, kind)), "a number")


def _what(path: Path, document: Any) -> str:
    model = _model(path, document)
    names: dict[type[BaseModel], str] = {
        doc.WalkStep: "a step",
        doc.PartsStep: "a step",
        doc.TurnsStep: "a step",
        doc.FirstStep: "a step",
        doc.ChooseStep: "a step",
        doc.LoopStep: "a step",
        doc.ApproveStep: "a step",
        doc.Choose: "a choice",
        doc.Graph: "the graph",
        doc.Walk: "a Walk",
    }
    names |= {
        doc.Walk: "a Walk",
        doc.TaskInput: "an input",
        doc.TaskParam: "a parameter",
        doc.SessionPolicy: "a session",
    }
    chunks = (doc.Fixed, doc.Sliding, doc.LeftContext, doc.Whole)
    if model in chunks:
        return "a chunk policy"
    if model is None:
        return "it"
    name = model.__name__.lower()
    return names.get(model, f"{'an' if name[0] in 'aeiou' else 'a'} {name}")


def _fields(path: Path, document: Any) -> Iterator[str]:
    model = _model(path, document)
    if model:
        yield from (field.alias or name for name, field in model.model_fields.items())


_ITEMS: Mapping[str, type[BaseModel]] = {
    "use": doc.Use,
    "parallel": doc.Parallel,
    "sequence": doc.Sequence,
    "loop": doc.Loop,
    "fork": doc.Fork,
    "choose": doc.Choose,
    "map": doc.Map,
}
_STEPS: Mapping[str, type[BaseModel]] = {
    "walk": doc.WalkStep,
    "for": doc.PartsStep,
    "first": doc.FirstStep,
    "choose": doc.ChooseStep,
    "loop": doc.LoopStep,
    "approve": doc.ApproveStep,
}
_FOR = {"parts": doc.PartsStep, "turns": doc.TurnsStep}
_CHOICES: Mapping[str, list[str]] = {"for": list(_FOR), "collect": ["true", "false", "join", "list"]}
_POLICIES: Mapping[str, type[BaseModel]] = {
    "fixed": doc.Fixed,
    "sliding": doc.Sliding,
    "left_context": doc.LeftContext,
    "whole": doc.Whole,
}
_ENTRIES: Mapping[tuple[str, str], type[BaseModel]] = {
    ("walks", "edges"): doc.Edge,
    ("walks", "results"): doc.Result,
    ("tasks", "inputs"): doc.TaskInput,
    ("tasks", "params"): doc.TaskParam,
}


def _model(path: Path, document: Any) -> type[BaseModel] | None:
    """The model of the object at a place."""
    value = document
    for part in path:
        value = arr(value)[int(part)] if isinstance(value, list) else obj(value).get(part)
    if not path:
        return doc.Graph
    if len(path) == 2:
        sections = {"weights": doc.Weights, "states": doc.State, "nodes": doc.Node, "walks": doc.Walk}
        return {**sections, "streams": doc.Stream, "tasks": doc.Task}.get(path[0])
    if len(path) == 3 and path[0] == "streams":
        return _POLICIES.get(str(obj(value).get("policy")))
    if len(path) == 3 and path[2] == "session":
        return doc.SessionPolicy
    if len(path) >= 4 and path[2] in ("body", "steps"):
        kinds = _ITEMS if path[2] == "body" else _STEPS
        if path[2] == "steps" and obj(value).get("for") in tuple(_FOR):
            return _FOR[obj(value)["for"]]
        return next((model for kind, model in kinds.items() if kind in obj(value)), None)
    return _ENTRIES.get((path[0], path[2])) if len(path) == 4 else None
