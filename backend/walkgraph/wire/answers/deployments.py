"""Answers about deployments, their tasks and their sessions, and about how to reach the service."""

from typing import Literal, TypedDict

from walkgraph.wire.answers.documents import JsonObject


class Next(TypedDict):
    """The coming version of a deployment that is being switched."""

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
    scratch: bool
    """True for one of a page, which runs what is drawn there; it isn't stored, and ends with the page."""


class DeclaredInput(TypedDict):
    modality: str
    many: bool
    optional: bool
    default: str | bool | float | list[float] | None
    """Taken if a request doesn't give it."""
    description: str


class DeclaredTask(TypedDict):
    """The declaration of a task; `schema` is the JSON Schema of its requests."""

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
    """The run that is active in it; None: it only keeps its states."""
    waiting: int
    """Runs waiting for their turn."""
    bytes: int
    """Bytes of the cache pages reserved for it on all ranks."""
    idle: float
    """Seconds since its last run ended; 0 while one runs."""
    ttl: float
    """Seconds that it may be idle before it ends."""
    ending: bool


class Sessions(TypedDict):
    """The sessions of a deployment."""

    deployment: str
    bytes: int
    """Bytes of all sessions."""
    sessions: list[SessionKept]


class Access(TypedDict):
    """The files by which programs on the service's machine find it."""

    home: str
    own_home: bool
    """The home isn't the default one: programs need `WALKGRAPH_HOME` to find it."""
    token_file: str | None
    """None: the token was given to the service when it was started."""


class Code(TypedDict):
    code: str
    path: str
    """Path of the studio with a code that lets one browser in, once."""


class SessionEnds(TypedDict):
    state: Literal["ending"]
