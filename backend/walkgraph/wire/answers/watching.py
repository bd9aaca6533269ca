"""Answers about the taps and breakpoints of a deployment."""

from typing import TypedDict

from walkgraph.wire.watching import Level


class Tap(TypedDict):
    id: str
    walk: str
    source: str
    to: str
    interval: float
    preview: bool
    run: str | None
    expires_at: float
    """Seconds since 1970."""
    inside: bool
    """The place is in a device loop: the tap sees runs that start from now on, which are stepped."""


class Breakpoint(TypedDict):
    id: str
    walk: str
    use: str
    iteration: int | None
    run: str | None
    expires_at: float
    inside: bool


class Watch(TypedDict):
    level: Level
    taps: list[Tap]
    breakpoints: list[Breakpoint]
