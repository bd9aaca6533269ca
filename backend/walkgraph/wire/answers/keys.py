"""Answers about keys and the audit log."""

from typing import Literal, TypedDict

from walkgraph.wire.answers.documents import JsonObject

Scope = Literal["infer", "read", "deploy", "admin"]


class Key(TypedDict):
    id: str
    name: str
    scopes: list[Scope]
    requests_per_minute: int | None
    concurrent: int | None
    created_at: float
    """Seconds since 1970, like all times here."""
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    valid: bool
    running: int
    """Active runs of this key."""


class KeyMade(Key):
    secret: str
    """The key itself; it is shown only once."""


class AuditEntry(TypedDict):
    id: int
    at: float
    caller: str
    """A key's id; `token`, `studio`, or `service` for the service's own actions."""
    caller_name: str
    """The key's name at that time."""
    address: str
    action: str
    target: str
    details: JsonObject
    outcome: Literal["begun", "done", "refused", "failed"] | str
    reason: str
