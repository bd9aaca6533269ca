"""What a client asked for, remembered with its run: as it was sent, without values that are too large to keep."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from walkgraph.service import limits
from walkgraph.service.problems import pointer


@dataclass(frozen=True)
class Asked:
    body: dict[str, Any] | None
    """Values that were too large are None; None: all of it was."""
    left_out: tuple[tuple[str, int], ...]
    """(pointer, bytes)."""
    bytes: int
    """Kept."""


def remembered(body: dict[str, Any]) -> Asked:
    """A copy of a request's body (JSON, of limited depth)."""
    left_out: list[tuple[str, int]] = []
    kept = _kept(body, (), left_out)
    size = _size(kept)
    if size > limits.ASKED_BYTES:
        return Asked(None, (("", size + sum(count for _, count in left_out)),), 0)
    return Asked(cast(dict[str, Any], kept), tuple(left_out), size)


def _kept(value: Any, path: tuple[str, ...], left_out: list[tuple[str, int]]) -> Any:
    """Texts, and lists of numbers, that are too large go whole; other containers are gone through."""
    is_list = isinstance(value, list) and not any(isinstance(v, dict | str) for v in cast(list[Any], value))
    if isinstance(value, str) or is_list:
        size = _size(value)
        if size > limits.ASKED_VALUE_BYTES:
            left_out.append((pointer(path), size))
            return None
        return cast(Any, value)
    if isinstance(value, dict | list):
        entries = {key: _kept(child, (*path, key), left_out) for key, child in _children(value)}
        return entries if isinstance(value, dict) else list(entries.values())
    return value


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from cast(dict[str, Any], value).items()
    else:
        yield from ((str(i), child) for i, child in enumerate(cast(list[Any], value)))


def _size(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else len(json.dumps(value))
