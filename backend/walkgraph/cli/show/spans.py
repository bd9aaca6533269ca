"""Durations and moments in a person's notation."""

from __future__ import annotations

import re
import time

from walkgraph.errors import InvalidInput

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw])")


def seconds(text: str) -> float:
    """Parse `90s`, `30m`, `12h`, `30d`, `2w`. Raises InvalidInput."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"`{text}` is not a duration; write a number and a unit: `90s`, `30m`, `12h`, `30d`, `2w`")
    return float(found[1]) * _UNITS[found[2]]


def moment(at: float | None, nothing: str = "-") -> str:
    """Format epoch seconds in this machine's time zone."""
    return nothing if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
