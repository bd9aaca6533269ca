"""Answers about runs."""

from pydantic import ConfigDict, Field

from walkgraph.errors import ErrorCode
from walkgraph.service.schemas.resources import JsonObject, Shown
from walkgraph.service.schemas.watch import PausedShown
from walkgraph.store.tables import RunState


class NodeTimeShown(Shown):
    """Of a node; or, with `walk`, of a loop that its device ran whole, which has all of its nodes' time."""

    node: str
    """Or the loop."""
    rank: int
    calls: int
    """Or iterations."""
    busy: float
    """Seconds."""
    queued: float
    """Seconds that calls were ready, and not yet running."""
    walk: str = ""
    """Of a loop."""
    inside: dict[str, int] = Field(default_factory=dict)
    """Of a loop: how often it has called its nodes."""
    spans: bool = False
    """The loop has parts on other ranks: what it waited for them is in its time."""


class ErrorShown(Shown):
    """Also as a service of another version wrote it into the database."""

    model_config = ConfigDict(extra="allow")

    code: ErrorCode | str
    message: str
    node: str | None = None
    port: str | None = None
    walk: str | None = None
    iteration: tuple[int, ...] = ()
    """Loop indices, outermost first, of the call that failed."""
    rank: int | None = None
    retryable: bool = False


class RunShown(Shown):
    """A run without its outputs."""

    id: str
    deployment: str
    task: str
    state: RunState
    created_at: float
    """When it came, in seconds since 1970."""
    seconds: float | None
    """From its arrival to its end; null: it goes on."""
    queued: float | None
    """Of these, until it was begun."""
    seed: int | None
    """null until it is accepted."""
    params: JsonObject
    """As its client gave them."""
    error: ErrorShown | None
    times: list[NodeTimeShown]
    paused: PausedShown | None
    """What it is paused before; null: it goes on, or is over."""
    caller: str | None
    """The id of the key that it came with; null: the service's own token, or the studio."""
