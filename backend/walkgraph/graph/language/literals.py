"""Parameters that are read when a node is loaded: regular expressions of RE2, paths into JSON, shapes, constants.

`check` reads them too, so that what can't be read is a problem of the graph and not of its deployment.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from walkgraph.errors import Refused
from walkgraph.graph.language.shaping import listed_ports
from walkgraph.graph.ports import MEDIA, PortType, parse_type

Pattern = Any
"""A compiled regular expression; the library has no types."""
Step = str | int
"""A key or an index."""
Others = Mapping[str, bool | int | float | str]
"""A node's parameters, with the defaults of those that it doesn't set."""

_RE2: Any = re2
_MEMORY = 8 << 20
"""Bytes of a compiled pattern and of its search."""
_MOST_STEPS = 64
_MOST_AXES = 8
_LARGEST = 2**63
"""Numbers of a constant are below it, so that they fit into 64 bits."""
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = re.compile(rf"(?P<dot>\.?)(?P<name>{_NAME})|\[(?P<index>-?\d{{1,9}})\]|\[(?P<key>\"(?:[^\"\\]|\\.)*\")\]")


def fault(form: str, text: str, beside: Others) -> str | None:
    """The reason that a literal is not of a parameter's form (`Param.form`); None if it is, or if that depends on a
    parameter `beside` it that is itself wrong."""
    try:
        _READERS[form](text, beside)
    except Refused as refused:
        return str(refused)
    return None


def compiled(pattern: str) -> Pattern:
    """The regular expression. Raises Refused with advice."""
    options = _RE2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    try:
        return _RE2.compile(pattern, options)
    except _RE2.error as error:
        told: Any = error.args[0] if error.args else b""
        reason = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise Refused(f"`{pattern[:64]}` is not a regular expression of RE2: {reason}") from None


def steps_of(path: str) -> list[Step]:
    """The keys and indices of a path into JSON. Raises Refused with advice."""
    steps: list[Step] = []
    end = 0
    while end < len(path):
        match = _STEP.match(path, end)
        if match is None or (match["name"] and bool(match["dot"]) == (end == 0)):
            raise Refused(f"the path `{path[:64]}` can't be read at `{path[end : end + 16]}`; write `items[0].name`")
        if match["name"]:
            steps.append(match["name"])
        else:
            steps.append(int(match["index"]) if match["index"] else _key(match["key"]))
        end = match.end()
    if len(steps) > _MOST_STEPS:
        raise Refused(f"a path has at most {_MOST_STEPS} steps; this one has {len(steps)}")
    return steps


def path_of(steps: Sequence[Step]) -> str:
    """The path of keys and indices."""
    text = ""
    for step in steps:
        if isinstance(step, str) and re.fullmatch(_NAME, step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def _key(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        raise Refused(f"{quoted[:64]} is not a key; write it as JSON does") from None


# ── shapes ──────────────────────────────────────────────────────────────────────────────────────


def sizes_of(text: str, *, left: bool = False) -> tuple[int, ...]:
    """The sizes that a text lists, `3, 64, 64`; with `left`, one may be -1: what is left. Raises Refused with
    advice."""
    try:
        sizes = tuple(int(one) for one in text.split(",")) if text.strip() else ()
    except ValueError:
        raise Refused(f"`{text[:64]}` is not a shape; write sizes with commas between, `3, 64, 64`") from None
    open_sizes = sizes.count(-1) if left else 0
    if (
        len(sizes) > _MOST_AXES
        or min(sizes, default=0) < -open_sizes
        or open_sizes > 1
        or max(sizes, default=0) >= 2**31
    ):
        rule = ", one of which may be -1" if left else ", none of them negative"
        raise Refused(f"`{text[:64]}` is not a shape; write at most {_MOST_AXES} sizes{rule}")
    return sizes


# ── constants ───────────────────────────────────────────────────────────────────────────────────


def constant_of(kind: PortType, text: str) -> Any:
    """The value that a constant writes, of JSON's types: nested lists for a tensor. Raises Refused with advice."""
    if kind.modality == "text" and not kind.many:
        return text
    try:
        value: Any = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(f"`{text[:64]}` is not a {kind.modality} as JSON; write for example `0.5` or `[1, 2]`") from None
    if not kind.many:
        return _constant(kind, value)
    if not isinstance(value, list):
        raise Refused(f"`{text[:64]}` is not a list; write for example `[1, 2]`")
    one = replace(kind, many=False)
    return [_constant(one, item) for item in cast("list[Any]", value)]


def dense(kind: PortType) -> bool:
    """True if a value of this type is a tensor, which numbers of a shape are too."""
    return bool(kind.shape) or kind.modality not in ("scalar", "flag", "text", *MEDIA)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _constant(kind: PortType, value: Any) -> Any:
    if dense(kind) and kind.modality not in ("text", *MEDIA):
        _fit(kind, _shape(value, 0))
        return value
    match kind.modality:
        case "text" if isinstance(value, str):
            return value
        case "flag" if isinstance(value, bool):
            return value
        case "scalar" if _is_number(value):
            return {"int": int, "float": float}.get(kind.dtype or "", _same)(value)
        case _:
            raise Refused(f"`{str(value)[:64]}` can't be a constant of type `{kind.modality}`")


def _same(value: Any) -> Any:
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _shape(value: Any, depth: int) -> tuple[int, ...]:
    """The shape of nested lists of numbers or flags. Raises Refused if they are no tensor."""
    if isinstance(value, bool) or _is_number(value):
        return ()
    items = cast("list[Any]", value) if isinstance(value, list) and depth < _MOST_AXES else None
    shapes = {_shape(item, depth + 1) for item in items or ()}
    if items is None or len(shapes) > 1:
        raise Refused("the value isn't a tensor; write nested lists of equal length, `[[1, 2], [3, 4]]`")
    return (len(items), *next(iter(shapes), ()))


def _fit(kind: PortType, shape: tuple[int, ...]) -> None:
    if kind.shape is None or "..." in kind.shape:
        return
    fits = len(shape) == len(kind.shape) and all(
        have == want for have, want in zip(shape, kind.shape, strict=True) if isinstance(want, int)
    )
    if not fits:
        raise Refused(f"the value has the shape {list(shape)}, which `{kind}` doesn't; change one of both")


# ── replacements ────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def expansion_of(replacement: str, groups: int) -> tuple[bytes | int, ...]:
    """The texts and groups of a replacement. Raises Refused with advice."""
    parts: list[bytes | int] = []
    end = 0
    for match in re.finditer(r"\\(.?)", replacement, re.DOTALL):
        parts.append(replacement[end : match.start()].encode())
        end = match.end()
        if match[1] == "\\":
            parts.append(b"\\")
        elif match[1].isdecimal() and match[1].isascii() and int(match[1]) <= groups:
            parts.append(int(match[1]))
        else:
            raise Refused(f"the replacement has `{match[0]}`; write `\\0` to `\\{groups}`, or `\\\\` for a backslash")
    parts.append(replacement[end:].encode())
    return tuple(parts)


def found_text(text: str, *, regex: bool) -> Pattern | None:
    """The regular expression to search for, or None where it is a plain text. Raises Refused with advice."""
    if not text:
        raise Refused("`find` is empty; write what to replace")
    return compiled(text) if regex else None


def group_of(pattern: Pattern, group: int) -> int:
    """The number of a group of a regular expression. Raises Refused with advice."""
    if group > pattern.groups:
        raise Refused(f"the pattern has {pattern.groups} groups; `group` is {group}")
    return group


# ── as parameters ───────────────────────────────────────────────────────────────────────────────


def _read_constant(text: str, beside: Others) -> None:
    try:
        kind = parse_type(str(beside["type"]))
    except ValueError:
        return
    constant_of(kind, text)


def _read_replacement(text: str, beside: Others) -> None:
    pattern = _known(str(beside.get("find", ""))) if beside.get("regex") is True else None
    if pattern is not None:
        expansion_of(text, pattern.groups)


def _read_group(text: str, beside: Others) -> None:
    pattern = _known(str(beside.get("pattern", "")))
    if pattern is not None:
        group_of(pattern, int(text))


def _read_alike(text: str, beside: Others) -> None:
    try:
        kind, ports = parse_type(str(beside["type"])).modality, listed_ports(text)
    except ValueError:
        return
    for port in ports:
        if port.type is not None and (port.type.modality != kind or port.type.many):
            raise Refused(f"a list of `{kind}` can't hold `{port.name}`; write `{port.name}: {kind}`, or no type")


def _known(pattern: str) -> Pattern | None:
    try:
        return compiled(pattern)
    except Refused:
        return None


_READERS: Mapping[str, Callable[[str, Others], object]] = {
    "literal": lambda text, beside: None,
    "pattern": lambda text, beside: compiled(text),
    "path": lambda text, beside: steps_of(text),
    "sizes": lambda text, beside: sizes_of(text),
    "shape": lambda text, beside: sizes_of(text, left=True),
    "constant": _read_constant,
    "find": lambda text, beside: found_text(text, regex=beside.get("regex") is True),
    "replacement": _read_replacement,
    "group": _read_group,
    "alike": _read_alike,
}
"""Form -> reads a literal of it."""
