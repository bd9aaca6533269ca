"""Answers about traces."""

from typing import Literal

from walkgraph.service.schemas import Shown
from walkgraph.wire.watching import Level


class TraceListed(Shown):
    run: str
    task: str
    state: Literal["running", "done", "failed", "cancelled"]
    level: Level
    """The highest that was in force while it ran."""
    seconds: float
    """From its arrival to its end."""
    at: float
    """When it came, in seconds since 1970."""
    blocks: int
    recorded: bool
    """Its values can be compared with another run's."""
