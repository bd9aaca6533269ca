"""Questions of the service to a conductor, about the states that it keeps between runs and the runs that wait.

service -> conductor    AskSessions, AskQueue
conductor -> service    SessionsTold, QueueTold
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


class Move(Message, frozen=True, tag="move"):
    """Exchange the places of a waiting run and of the next one, before or behind it, of those named."""

    run: RunId
    among: tuple[RunId, ...]
    """Runs whose owner asks."""
    up: bool
    """Towards the front."""


class AskQueue(Message, frozen=True, tag="ask_queue"):
    """Ask for the queue, answered by `QueueTold`."""

    number: int
    """Number of the question."""
    move: Move | None = None
    """Done before the answer."""


class QueuedRun(Message, frozen=True, tag="queued_run"):
    run: RunId
    priority: int = 0
    depth: int = 0
    """Calls of tasks that it was begun by."""
    session: str | None = None
    suspended: bool = False
    """It has begun, and made room for another one."""


class QueueTold(Message, frozen=True, tag="queue_told"):
    number: int
    runs: tuple[QueuedRun, ...]
    """In the order in which they are admitted."""
    moved: bool = False
    """The places were exchanged."""
