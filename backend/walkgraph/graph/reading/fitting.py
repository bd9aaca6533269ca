"""Checks values against a JSON Schema from a client, such as the arguments of a function that a model calls."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, cast

MOST_DEEP = 32
"""The deepest schemas, and values that they check."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}
_ARTICLES = {"object": "an object", "array": "a list", "string": "a text", "boolean": "true or false", "null": "null"}
_NUMBERS = {"number": "a number", "integer": "a whole number"}


def problems(value: Any, schema: Any, at: str = "", depth: int = 0) -> Iterator[str]:
    """Name the parts of a JSON Schema that a value doesn't meet. It knows `type`, `enum`, `const`, `properties`,
    `required`, `additionalProperties`, `items` and bounds; others are not checked."""
    where = f"`{at}`" if at else "they"
    if depth > MOST_DEEP:
        yield f"{where} is nested too deep"
        return
    if not isinstance(schema, dict):
        return
    rules = cast(dict[str, Any], schema)
    expected = _unfit(value, rules.get("type"))
    if expected:
        yield f"{where} must be {expected}"
        return
    choices = [rules["const"]] if "const" in rules else rules.get("enum")
    if isinstance(choices, list) and not any(_equal(value, one) for one in cast(list[Any], choices)):
        yield f"{where} must be one of {json.dumps(choices, ensure_ascii=False)[:400]}"
    yield from _bounds(value, rules, where)
    if isinstance(value, dict):
        yield from _members(cast(dict[str, Any], value), rules, at, depth)
    elif isinstance(value, list):
        for index, item in enumerate(cast(list[Any], value)):
            yield from problems(item, rules.get("items"), f"{at}[{index}]", depth + 1)


def _members(value: Mapping[str, Any], rules: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
    known = rules.get("properties")
    properties = cast(dict[str, Any], known) if isinstance(known, dict) else {}
    required = rules.get("required")
    for name in cast(list[Any], required) if isinstance(required, list) else []:
        if name not in value:
            yield f"`{_inside(at, str(name))}` is missing"
    for name, item in value.items():
        if name in properties:
            yield from problems(item, properties[name], _inside(at, name), depth + 1)
        elif rules.get("additionalProperties") is False:
            yield f"`{_inside(at, name)[:120]}` is not known"


def _bounds(value: Any, rules: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if _number(least := rules.get("minimum")) and value < least:
            yield f"{where} must be at least {least}"
        if _number(most := rules.get("maximum")) and value > most:
            yield f"{where} must be at most {most}"
    for kind, low, high in ((str, "minLength", "maxLength"), (list, "minItems", "maxItems")):
        if isinstance(value, kind):
            size, what = len(cast(list[Any], value)), "characters" if kind is str else "items"
            if _number(least := rules.get(low)) and size < least:
                yield f"{where} must have at least {least} {what}"
            if _number(most := rules.get(high)) and size > most:
                yield f"{where} must have at most {most} {what}"


def _unfit(value: Any, kind: Any) -> str:
    """The type that a value should have; empty if it has it."""
    kinds = [one for one in (cast(list[Any], kind) if isinstance(kind, list) else [kind]) if isinstance(one, str)]
    if not kinds or any(_is(value, one) for one in kinds):
        return ""
    return " or ".join((_ARTICLES | _NUMBERS).get(one, f"`{one[:40]}`") for one in kinds)


def _is(value: Any, kind: str) -> bool:
    if kind in _NUMBERS:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return not isinstance(value, bool) and isinstance(value, int | float) and (kind == "number" or whole)
    return isinstance(value, _TYPES.get(kind, (object,)))


def _equal(value: Any, other: Any) -> bool:
    """As JSON has it: 1 is 1.0, and not true."""
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def _number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _inside(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
