"""The tables. Times are seconds since the epoch; JSON is stored as text, exactly as given."""

from typing import Literal

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

DocumentKind = Literal["graph", "placement", "blueprint"]


class Document(SQLModel, table=True):
    """A draft of a graph or a placement, or a blueprint of the library."""

    __tablename__ = "document"  # pyright: ignore[reportAssignmentType]

    kind: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    text: str
    etag: str
    """Hash of `text`."""
    bundled: bool = False
    """The package's own content; a draft over it belongs to the user."""
    updated_at: float
    tags: str = "[]"
    """JSON list of strings."""


class Version(SQLModel, table=True):
    """A document kept by a user, or as it was deployed."""

    __tablename__ = "version"  # pyright: ignore[reportAssignmentType]

    id: int | None = Field(default=None, primary_key=True)
    kind: str = Field(index=True)
    name: str = Field(index=True)
    text: str
    etag: str
    note: str = ""
    created_at: float


class Deployment(SQLModel, table=True):
    """A wanted deployment, with the documents it was made from."""

    __tablename__ = "deployment"  # pyright: ignore[reportAssignmentType]

    id: str = Field(primary_key=True)
    graph_name: str
    graph_text: str
    placement_name: str
    placement_text: str
    created_at: float


class Run(SQLModel, table=True):
    __tablename__ = "run"  # pyright: ignore[reportAssignmentType]

    id: str = Field(primary_key=True)
    deployment: str = Field(index=True)
    task: str
    state: str = Field(index=True)
    """A `RunState`."""
    created_at: float = Field(index=True)
    seconds: float | None = None
    """From arrival to the end."""
    queued: float | None = None
    seed: int | None = Field(default=None, sa_type=BigInteger)
    params: str = "{}"
    """JSON object with the client's parameters."""
    error: str | None = None
    """An `ErrorInfo` as JSON."""
    times: str = "[]"
    """A list of `NodeTime` as JSON."""
    caller: str | None = Field(default=None, index=True)
    """Id of the key that sent it; None: the service's own token, or the studio."""


class WaitingRun(SQLModel, table=True):
    """A run that waits for a person: all that it needs to go on."""

    __tablename__ = "waiting"  # pyright: ignore[reportAssignmentType]

    run: str = Field(primary_key=True)
    deployment: str
    task: str
    graph: str
    """Hash of the graph that it runs in, without its layout."""
    caller: str | None = Field(default=None, index=True)
    """As in `Run`."""
    created_at: float
    expires_at: float
    nbytes: int
    """Bytes of `log` and `place`."""
    log: bytes
    """Its events so far, for clients that follow it."""
    place: bytes
    """Its request, its steps so far, and the values that it needs to go on."""


class RunTrace(SQLModel, table=True):
    """A run's trace and, if asked for, its recording; outlives the run's row and its deployment."""

    __tablename__ = "trace"  # pyright: ignore[reportAssignmentType]

    run: str = Field(primary_key=True)
    deployment: str = Field(index=True)
    task: str
    state: str
    level: str
    created_at: float = Field(index=True)
    """When the run came."""
    seconds: float
    blocks: int
    nbytes: int
    """Bytes of trace and recording."""
    recorded: bool
    """True if there is a recording."""
    trace: bytes
    """Trace and recording, encoded by `telemetry.columns`."""
    recording: bytes | None = None


class Key(SQLModel, table=True):
    """A client's key, an alternative to the service's own token."""

    __tablename__ = "key"  # pyright: ignore[reportAssignmentType]

    id: str = Field(primary_key=True)
    """8 hex digits; part of the key but not secret."""
    name: str
    digest: str
    """SHA-256 of the whole key, in hex; the key itself is not stored."""
    scopes: str
    """Comma-separated names."""
    requests_per_minute: int | None = None
    concurrent: int | None = None
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    """Written in batches."""


class AuditEntry(SQLModel, table=True):
    """One change: who, what, and from where. Rows are added and, when old or too many, removed; never changed."""

    __tablename__ = "audit"  # pyright: ignore[reportAssignmentType]

    id: int | None = Field(default=None, primary_key=True)
    at: float = Field(index=True)
    caller: str
    """A key's id, `token`, `studio`, or `service` for the service's own actions."""
    caller_name: str
    """The key's name at that time."""
    address: str
    """The client's address; empty without one."""
    action: str = Field(index=True)
    """`deployment.create`, `graph.put`, `key.add`, ..."""
    target: str
    """Name of the object to change."""
    details: str = "{}"
    """JSON object: names, etags."""
    outcome: str = Field(index=True)
    """`begun`, `done`, `refused` or `failed`."""
    reason: str = ""
    """Reason of a refusal or a failure, in a sentence."""
