"""Keys and the audit log, as they are asked for and shown."""

from typing import Annotated, Literal

from pydantic import Field

from walkgraph.service.access.callers import Scope
from walkgraph.service.schemas.resources import Given, JsonObject, Shown

MAX_SECONDS = 10 * 365 * 86_400


class KeyRequest(Given):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@\-]{0,63}$")]
    """For people; no other valid key has it."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=8)]
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """null: as many as it likes. A sixth of it may come at once."""
    concurrent: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Runs under way at once; null: as many as it likes."""
    expires_in: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = None
    """Seconds; null: it holds until it is revoked."""


class KeyShown(Shown):
    id: str
    name: str
    scopes: list[Scope]
    requests_per_minute: int | None
    concurrent: int | None
    created_at: float
    """In seconds since 1970, as all times here."""
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    valid: bool
    running: int
    """Runs with it that are under way."""


class KeyMade(KeyShown):
    secret: str
    """The key. It is shown this once."""


class AuditShown(Shown):
    id: int
    at: float
    caller: str
    """A key's id; `token`, `studio`, or `service` for what the service did by itself."""
    caller_name: str
    """The key's name then."""
    address: str
    action: str
    target: str
    details: JsonObject
    outcome: Literal["begun", "done", "refused", "failed"] | str
    reason: str
