"""Messages about another plan for processes that serve one already.

service -> conductor    TakeUp
conductor -> service    TakenUp
"""

from typing import Any

from walkgraph.errors import ErrorInfo
from walkgraph.placement.tables import Plan
from walkgraph.wire.watching import Message


class TakeUp(Message, frozen=True, tag="take_up"):
    """Serve another graph in the same processes, answered by `TakenUp`. Its plan has the ranks of the present one.
    Unfinished runs are cancelled, and sessions end."""

    number: int
    """Number of the request."""
    graph: dict[str, Any]
    """A graph document that passed `check`."""
    plan: Plan
    telemetry_name: str
    """The name in telemetry from then on."""


class TakenUp(Message, frozen=True, tag="taken_up"):
    number: int
    error: ErrorInfo | None = None
    """Why the processes go back to the former plan."""
