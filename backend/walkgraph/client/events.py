"""Events of a followed run, read from server-sent events or from the parts of a form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from walkgraph.client.rooms import room

HEARTBEAT = "heartbeat"
PART_HEAD = re.compile(
    rb'\r\nContent-Disposition: form-data; name="(?P<name>[^"]*)"\r\nContent-Type: [^\r]*'
    rb"\r\nContent-Length: (?P<length>\d{1,15})\r\n\r\n"
)
"""The headers of a part, from behind the delimiter up to its content."""
MOST_HEAD = 4096


@dataclass(frozen=True)
class Event:
    """One event of a followed run: `accepted`, `output`, `approval`, `decision`, `done` or `error`."""

    name: str
    data: dict[str, Any]
    frames: tuple[memoryview, ...] = ()
    """The bytes that its values name by `frame`."""


class EventReader:
    """Collects `event:` and `data:` lines up to an empty one; lines that start with a colon are comments."""

    def __init__(self) -> None:
        self._name = ""

    def take(self, line: str) -> Iterator[Event]:
        """The event that this line completes, if any. Raises ValueError for data that isn't JSON."""
        if line.startswith("event: "):
            self._name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield Event(self._name, msgspec.json.decode(line.removeprefix("data: ")))


class FormReader:
    """Collects the parts of a form that comes piece by piece, each in memory of its own."""

    def __init__(self, boundary: str) -> None:
        self._delimiter = b"--" + boundary.encode()
        self._head = b""
        """The bytes of a part's head that have come so far."""
        self._content: memoryview | None = None
        """Room for the content and the line's end behind it, of which the first `_filled` bytes are there."""
        self._filled = 0
        self._name = b""

    def take(self, piece: bytes) -> Iterator[tuple[str, memoryview]]:
        """(name, content) of the parts that this piece completes. Raises ValueError for content that isn't such a
        form."""
        left = memoryview(piece)
        while left:
            if self._content is None:
                left = self._begun(left)
                continue
            count = min(len(left), len(self._content) - self._filled)
            self._content[self._filled : self._filled + count] = left[:count]
            left, self._filled = left[count:], self._filled + count
            if self._filled == len(self._content):
                content, self._content = self._content[:-2], None
                yield self._name.decode(), content

    def _begun(self, left: memoryview) -> memoryview:
        """Read on in a part's head; returns what is left behind it."""
        before = len(self._head)
        self._head += left[: MOST_HEAD + 1 - before]
        if self._head.find(b"\r\n\r\n") < 0:
            if len(self._head) > MOST_HEAD:
                raise ValueError("a part of the answer has no head")
            return left[:0]
        found = PART_HEAD.match(self._head, len(self._delimiter))
        if found is None or not self._head.startswith(self._delimiter):
            raise ValueError("a part of the answer has no length")
        self._head = b""
        self._name, self._filled = found["name"], 0
        self._content = room(int(found["length"]) + 2)
        return left[found.end() - before :]


class PartReader:
    """Collects events that come as parts of a form: `event` as JSON, followed by the frames that it names."""

    def __init__(self, boundary: str) -> None:
        self._parts = FormReader(boundary)
        self._event: dict[str, Any] = {}
        self._frames: list[memoryview] = []

    def take(self, piece: bytes) -> Iterator[Event]:
        """The events that this piece completes. Raises ValueError for content that isn't such a form."""
        for name, content in self._parts.take(piece):
            if name == "event":
                self._event, self._frames = msgspec.json.decode(content), []
            else:
                self._frames.append(content)
            if self._event and len(self._frames) == self._event.get("frames", 0):
                data, self._event = self._event, {}
                told: str = data.pop("event")
                data.pop("frames", None)
                if told != HEARTBEAT:
                    yield Event(told, data, tuple(self._frames))
