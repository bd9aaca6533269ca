"""A client's request, kept with its run as it was sent, without values that are too large."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, cast

import msgspec

from walkgraph.service.http import limits
from walkgraph.service.http.problems import pointer


@dataclass(frozen=True)
class KeptRequest:
    body: dict[str, Any] | None
    """None in place of values that were too large. None as a whole if the request was too large, or was dropped to make
    room for later ones."""
    left_out: tuple[tuple[str, int], ...]
    """(pointer, bytes) of the missing values."""
    bytes: int
    """Bytes that are kept."""

    def forgotten(self) -> Self:
        return type(self)(None, (("", self.bytes + sum(count for _, count in self.left_out)),), 0)


def remembered(body: dict[str, Any]) -> KeptRequest:
    """Keeps a request's body (JSON of limited depth, with bytes in place of frames). Its texts, bytes and lists of
    numbers are shared, not copied."""
    reading = _Reading()
    kept = reading.kept(body, ())
    found = KeptRequest(cast(dict[str, Any], kept), tuple(reading.left_out), reading.bytes)
    return found if found.bytes <= limits.ASKED_BYTES else found.forgotten()


class _Reading:
    def __init__(self) -> None:
        self.bytes = 0
        self.left_out: list[tuple[str, int]] = []

    def kept(self, value: Any, path: tuple[str, ...]) -> Any:
        """Drops whole texts and lists of numbers that are too large; descends into other containers."""
        mixed = isinstance(value, list) and any(isinstance(v, dict | str) for v in cast(list[Any], value))
        if isinstance(value, dict) or mixed:
            entries = {key: self.kept(child, (*path, key)) for key, child in _children(value)}
            self.bytes += sum(len(key) for key in entries)
            return entries if isinstance(value, dict) else list(entries.values())
        size = _size(value)
        if size > limits.ASKED_VALUE_BYTES:
            self.left_out.append((pointer(path), size))
            return None
        self.bytes += size
        return cast(Any, value)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from cast(dict[str, Any], value).items()
    else:
        yield from ((str(i), child) for i, child in enumerate(cast(list[Any], value)))


def _size(value: Any) -> int:
    """Approximate size as JSON, in bytes."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return len(msgspec.json.encode(value))
