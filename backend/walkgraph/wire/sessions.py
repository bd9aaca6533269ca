"""Messages about sessions: what a deployment keeps between runs.

service -> conductor    AskSessions
conductor -> service    SessionsTold
"""

from walkgraph.ids import RunId
from walkgraph.wire.watching import Message


class AskSessions(Message, frozen=True, tag="ask_sessions"):
    """Which there are, answered by `SessionsTold`. `end`: this one is to be over, as soon as nothing of it runs; what
    waits in it then begins it anew."""

    number: int
    """Of the question."""
    end: str | None = None


class SessionState(Message, frozen=True, tag="session_state"):
    name: str
    run: RunId | None
    """That runs in it; None: it keeps its states until the next."""
    waiting: int
    """Runs that wait for their turn."""
    bytes: int
    """Of the cache pages promised to it, on all ranks."""
    idle: float
    """Seconds since its last run ended; 0 while one runs."""
    ttl: float
    """Seconds that it may be idle."""
    ending: bool


class SessionsTold(Message, frozen=True, tag="sessions_told"):
    number: int
    sessions: tuple[SessionState, ...]
    known: bool = True
    """Whether there was the one to be ended."""
