"""Events of a followed run, read from server-sent events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class Event:
    """One event of a followed run: `accepted`, `output`, `approval`, `decision`, `done` or `error`."""

    name: str
    data: dict[str, Any]


class EventReader:
    """Collects `event:` and `data:` lines up to an empty one; lines that start with a colon are comments."""

    def __init__(self) -> None:
        self._name = ""

    def take(self, line: str) -> Event | None:
        """The event that this line completes, if any. Raises ValueError for data that isn't JSON."""
        if line.startswith("event: "):
            self._name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return Event(self._name, msgspec.json.decode(line.removeprefix("data: ")))
        return None
