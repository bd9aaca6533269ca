"""Limits on a document before anything else reads it: JSON values only, and not too many.

`read_json` is the only way from bytes to a value. `faults` judges a value that exists already, such as a caller's dict.
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, cast

from walkgraph.errors import InvalidInput

MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 64
MAX_TEXT = 20_000
MAX_VALUES = 100_000
MAX_INTEGER = 2**63 - 1
LIMITS = {"nodes": 2000, "states": 500, "weights": 100, "walks": 500, "streams": 200, "tasks": 200, "blueprints": 200}
MAX_EDGES = 10_000
MAX_ITEMS = 10_000
"""The most items in all bodies and steps in all tasks."""
MAX_ITEMS_OF_ONE = 2000
"""The most items in one body, and steps in one task: some checks compare each with each."""
MAX_NESTING = 32
"""The deepest nesting of items in one body."""


class Fault(NamedTuple):
    code: str
    path: tuple[str, ...]
    message: str


def read_json(data: str | bytes, most: int = MAX_BYTES) -> Any:
    """Parse JSON text of at most `most` bytes. Raises InvalidInput for anything that isn't JSON, has duplicate keys, or
    holds unusable numbers."""
    if len(data) > most:
        raise InvalidInput(f"the document has {len(data)} bytes, more than the {most} allowed; split it up")
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the document is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except json.JSONDecodeError as error:
        message = f"the document is not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        raise InvalidInput(message) from None
    except RecursionError:
        raise InvalidInput(f"the document is nested more than {MAX_DEPTH} deep; flatten it") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidInput(f"the key `{key[:80]}` occurs twice in one object; keep one")
        found[key] = value
    return found


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > MAX_INTEGER:
        raise InvalidInput(f"the number {text[:24]} does not fit 64 bits; write a smaller one")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidInput(f"the number {text[:24]} is too large; write a smaller one")
    return number


def _constant(text: str) -> NoReturn:
    raise InvalidInput(f"`{text}` is not a JSON number; write a finite one")


def faults(value: Any) -> list[Fault]:
    """Faults that make a value unreadable as a document: the first value that isn't JSON, or else all exceeded
    limits."""
    fault = _json_fault(value, 0, [MAX_VALUES])
    return [fault] if fault else list(_limits(value))


def _json_fault(value: Any, depth: int, budget: list[int]) -> Fault | None:
    """The first value that no document may hold; `budget` counts down the values left."""
    if isinstance(value, str):
        return _text_fault(value)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _number_fault(value)
    if not isinstance(value, dict | list | tuple):
        return Fault("wrong_type", (), f"`{type(value).__name__}` can't be written as JSON; write a JSON value")
    if depth >= MAX_DEPTH:
        return Fault("too_deep", (), f"nested more than {MAX_DEPTH} deep; flatten it")
    budget[0] -= size(value)
    if budget[0] < 0:
        return Fault("too_large", (), f"the document has more than {MAX_VALUES} values; split it up")
    for key, child in _children(value):
        if isinstance(value, dict) and (not isinstance(key, str) or _text_fault(key)):
            return Fault("bad_name", (), "a key is not valid text; rename it")
        fault = _json_fault(child, depth + 1, budget)
        if fault:
            return fault._replace(path=(str(key), *fault.path))
    return None


def _children(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return cast(dict[Any, Any], value).items()
    return enumerate(cast(list[Any], value))


def _number_fault(value: float) -> Fault | None:
    if isinstance(value, int):
        message = "the number does not fit 64 bits; write a smaller one"
        return Fault("bad_number", (), message) if abs(value) > MAX_INTEGER else None
    return None if math.isfinite(value) else Fault("bad_number", (), "the number is not finite; write a finite one")


def _text_fault(text: str) -> Fault | None:
    if len(text) > MAX_TEXT:
        return Fault(
            "too_large", (), f"the text has {len(text)} characters, more than the {MAX_TEXT} allowed; shorten it"
        )
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        return Fault("bad_text", (), "the text has half of a character (a lone surrogate); write it anew")
    return None


def _limits(document: Any) -> Iterator[Fault]:
    sections = obj(document)
    for section, limit in LIMITS.items():
        count = size(sections.get(section))
        if count > limit:
            yield Fault(
                "too_large",
                (section,),
                f"there are {count} {section}, more than the {limit} allowed; split the graph up",
            )
    walks = {
        (section, name): obj(walk)
        for section in ("walks", "blueprints")
        for name, walk in obj(sections.get(section)).items()
    }
    tasks = {name: obj(task) for name, task in obj(sections.get("tasks")).items()}
    edges = sum(size(walk.get("edges")) for walk in walks.values())
    edges += sum(size(sources) for walk in walks.values() for sources in obj(walk.get("merges")).values())
    if edges > MAX_EDGES:
        yield Fault(
            "too_large", ("walks",), f"there are {edges} edges, more than the {MAX_EDGES} allowed; split the graph up"
        )
    items = 0
    for name, task in tasks.items():
        count, _ = _items(task.get("steps"))
        items += count
        if count > MAX_ITEMS_OF_ONE:
            yield _too_many("steps", count, ("tasks", name, "steps"))
    for place, walk in walks.items():
        count, deepest = _items(walk.get("body"))
        items += count
        if count > MAX_ITEMS_OF_ONE:
            yield _too_many("items", count, (*place, "body"))
        if deepest > MAX_NESTING:
            message = (
                f"the items of the body are nested {deepest} deep, more than the {MAX_NESTING} allowed; flatten it"
            )
            yield Fault("too_deep", (*place, "body"), message)
    if items > MAX_ITEMS:
        yield Fault(
            "too_large",
            ("walks",),
            f"there are {items} items and steps, more than the {MAX_ITEMS} allowed; split it up",
        )


def _too_many(kind: str, count: int, path: tuple[str, ...]) -> Fault:
    return Fault("too_large", path, f"there are {count} {kind}, more than the {MAX_ITEMS_OF_ONE} allowed; split it up")


def _items(body: Any) -> tuple[int, int]:
    """The number of items in a body, and how deep they are nested (lists inside objects or lists)."""
    count = deepest = 0
    stack: list[tuple[Any, int]] = [(body, 0)]
    while stack:
        value, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(value, list | tuple):
            count += size(value)
            stack.extend((child, depth + 1) for child in arr(value))
        else:
            stack.extend((child, depth) for child in obj(value).values())
    return count, deepest


# ── reading values that may be anything ─────────────────────────────────────────────────────────


def obj(value: Any) -> dict[str, Any]:
    """The value if it is an object, otherwise an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def arr(value: Any) -> list[Any]:
    """The value if it is a list, otherwise an empty one."""
    return list(cast(list[Any], value)) if isinstance(value, list | tuple) else []


def size(value: Any) -> int:
    return len(cast(list[Any], value)) if isinstance(value, dict | list | tuple) else 0
