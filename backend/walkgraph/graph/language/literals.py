"""Texts of parameters in small languages of their own: regular expressions of RE2, and paths into JSON."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import re2  # pyright: ignore[reportMissingTypeStubs]

from walkgraph.errors import Refused

Pattern = Any
"""A compiled regular expression; the library has no types."""
Step = str | int
"""A key or an index."""

_RE2: Any = re2
_MEMORY = 8 << 20
"""Bytes of a compiled pattern and of its search."""
_MOST_STEPS = 64
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = re.compile(rf"(?P<dot>\.?)(?P<name>{_NAME})|\[(?P<index>-?\d{{1,9}})\]|\[(?P<key>\"(?:[^\"\\]|\\.)*\")\]")


def fault(form: str, text: str) -> str | None:
    """The reason that a text is not of a parameter's form (`Param.form`); None if it is."""
    try:
        _READERS[form](text)
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


_READERS: Mapping[str, Callable[[str], object]] = {"pattern": compiled, "path": steps_of}
