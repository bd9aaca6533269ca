"""What a followed run tells, out of server-sent events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class Event:
    """What a followed run tells: `accepted`, `output`, `done` or `error`."""

    name: str
    data: dict[str, Any]


class EventReader:
    """`event:` and `data:` lines up to an empty one; lines that start with a colon say nothing."""

    def __init__(self) -> None:
        self._name = ""

    def take(self, line: str) -> Event | None:
        """The event that the line ends. Raises ValueError for what is no JSON."""
        if line.startswith("event: "):
            self._name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return Event(self._name, msgspec.json.decode(line.removeprefix("data: ")))
        return None
