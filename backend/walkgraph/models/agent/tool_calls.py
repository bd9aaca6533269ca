"""Calls of tools in a model's text: found, read, and checked against the tool's JSON Schema."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

MOST_DEEP = 32
"""The deepest schemas, and arguments that they check."""
MOST_PROBLEMS = 5

_OPEN, _CLOSE, _FENCE = "<tool_call>", "</tool_call>", "```"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}
_ARTICLES = {"object": "an object", "array": "a list", "string": "a text", "boolean": "true or false", "null": "null"}
_NUMBERS = {"number": "a number", "integer": "a whole number"}


@dataclass(frozen=True)
class Tool:
    name: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""


@dataclass(frozen=True)
class Read:
    """The content of an answer."""

    text: str
    """Without the call."""
    name: str = ""
    """The tool; empty without a call that can be used."""
    arguments: str = ""
    """JSON of an object."""
    problem: str = ""
    """The fault of the call; empty if there is none."""


def read_answer(text: str, tools: Sequence[Tool]) -> Read:
    """Find the first call of a tool. Models write it between `<tool_call>` tags, in a block of code, or as the whole
    answer."""
    start = text.find(_OPEN)
    if start >= 0:
        written = text[start + len(_OPEN) :].partition(_CLOSE)[0]
        return _judged(text, written.strip(), _before(text, start), tools)
    if not tools:
        return Read(text)
    start = text.find(_FENCE)
    if start >= 0:
        _, _, written = text[start:].partition("\n")
        written = written.partition(_FENCE)[0].strip()
        if written.startswith("{") and '"name"' in written:
            return _judged(text, written, _before(text, start), tools)
    whole = text.strip()
    if whole.startswith("{") and '"name"' in whole:
        return _judged(text, whole, "", tools)
    return Read(text)


def _before(text: str, start: int) -> str:
    """The words of the model before its call; behind it, models repeat themselves, or invent the answer."""
    return text[:start].strip()


def _judged(text: str, written: str, rest: str, tools: Sequence[Tool]) -> Read:
    """The call that a model has written, or what is wrong with it."""
    try:
        read: Any = json.loads(written)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return Read(text, problem=f"The call is not valid JSON at {where}. Write it again.")
    except (ValueError, RecursionError):
        return Read(text, problem="The call is not valid JSON. Write it again.")
    fields = cast(dict[str, Any], read) if isinstance(read, dict) else {}
    name = fields.get("name")
    arguments: Any = fields.get("arguments", fields.get("parameters", {}))
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        known = ", ".join(tool.name for tool in tools) or "none"
        said = f"There is no tool `{name[:80]}`." if isinstance(name, str) else "A call needs the tool's `name`."
        return Read(text, problem=f"{said} The tools are: {known}.")
    if isinstance(arguments, str):
        # As OpenAI's API has it: JSON in a text.
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return Read(text, problem=f"The arguments of `{tool.name}` are not valid JSON. Write the call again.")
    faults = list(_first(problems(arguments, {"type": "object", **tool.parameters})))
    if faults:
        return Read(text, problem=f"The arguments of `{tool.name}` can't be used: {'; '.join(faults)}.")
    return Read(rest, tool.name, json.dumps(arguments, ensure_ascii=False))


def _first(faults: Iterator[str]) -> Iterator[str]:
    for _, fault in zip(range(MOST_PROBLEMS), faults, strict=False):
        yield fault


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
