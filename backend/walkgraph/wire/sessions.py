"""Messages about sessions: the states that a deployment keeps between runs.

service -> conductor    AskSessions
conductor -> service    SessionsTold
"""

from walkgraph.ids import RunId
from walkgraph.wire.watching import Message


class AskSessions(Message, frozen=True, tag="ask_sessions"):
    """Ask for the sessions, answered by `SessionsTold`. `end`: a session to end as soon as none of its runs is active;
    runs waiting in it then begin it anew."""

    number: int
    """Number of the question."""
    end: str | None = None


class SessionState(Message, frozen=True, tag="session_state"):
    name: str
    run: RunId | None
    """The run that is active in it; None: it only keeps its states."""
    waiting: int
    """Runs waiting for their turn."""
    bytes: int
    """Bytes of the cache pages promised to it on all ranks."""
    idle: float
    """Seconds since its last run ended; 0 while one runs."""
    ttl: float
    """Seconds that it may be idle."""
    ending: bool


class SessionsTold(Message, frozen=True, tag="sessions_told"):
    number: int
    sessions: tuple[SessionState, ...]
    known: bool = True
    """False if the session to end did not exist."""
