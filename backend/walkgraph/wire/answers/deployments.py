"""Answers about deployments, their tasks and their sessions, and about how to reach the service."""

from typing import Literal, TypedDict

from walkgraph.wire.answers.documents import JsonObject


class Next(TypedDict):
    """The version that is to come."""

    state: str
    reason: str | None
    ranks: list[JsonObject]
    graph: str
    placement: str
    restarts: int
    digest: str | None


class Deployment(TypedDict):
    id: str
    graph: str
    placement: str
    state: str
    revision: int
    reason: str | None
    ranks: list[JsonObject]
    running: int
    waiting: int
    restarts: int
    created_at: float
    tasks: list[str]
    digest: str | None
    next: Next | None


class DeclaredInput(TypedDict):
    modality: str
    many: bool
    optional: bool
    description: str


class DeclaredTask(TypedDict):
    """What a task takes; `schema` is the JSON Schema of its requests."""

    deployment: str
    name: str
    label: str
    inputs: dict[str, DeclaredInput]
    outputs: list[str]
    params: dict[str, JsonObject]
    session: bool
    schema: JsonObject


class SessionKept(TypedDict):
    name: str
    run: str | None
    """That runs in it; None: it keeps its states until the next."""
    waiting: int
    """Runs that wait for their turn."""
    bytes: int
    """Of the cache pages that are reserved for it, on all ranks."""
    idle: float
    """Seconds since its last run ended; 0 while one runs."""
    ttl: float
    """Seconds that it may be idle before it ends."""
    ending: bool


class Sessions(TypedDict):
    """What a deployment keeps for sessions."""

    deployment: str
    bytes: int
    """Of all."""
    sessions: list[SessionKept]


class Access(TypedDict):
    """How programs on the service's machine find it."""

    home: str
    own_home: bool
    """It isn't where programs look that are told nothing: they need `WALKGRAPH_HOME`."""
    token_file: str | None
    """None: whoever started the service gave it its token."""


class Code(TypedDict):
    code: str
    path: str
    """Of the studio, with the code: it lets one browser in, once."""


class SessionEnds(TypedDict):
    state: Literal["ending"]
