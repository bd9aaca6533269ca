"""Calls about keys and the audit log; all of them need the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence

from walkgraph.client import shown
from walkgraph.client.calls import Call, described, get, send
from walkgraph.client.shown import Scope


class KeyCalls:
    @described
    def keys(self, *, former: bool = False) -> Call[list[shown.Key]]:
        """All keys, oldest first; `former`: also revoked and expired ones."""
        return get("/api/v1/keys", {"former": "true"} if former else None)

    @described
    def key(self, id_: str) -> Call[shown.Key]:
        """One key."""
        return get("/api/v1/keys/{key}", key=id_)

    @described
    def add_key(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        requests_per_minute: int | None = None,
        concurrent: int | None = None,
        expires_in: float | None = None,
    ) -> Call[shown.KeyMade]:
        """Make a key. Only this answer holds its `secret`. `concurrent`: runs at once. `expires_in`: seconds."""
        body = {
            "name": name,
            "scopes": list(scopes),
            "requests_per_minute": requests_per_minute,
            "concurrent": concurrent,
            "expires_in": expires_in,
        }
        return send("POST", "/api/v1/keys", body)

    @described
    def revoke_key(self, id_: str) -> Call[shown.Key]:
        """Revoke a key at once; connections that use it are closed."""
        return Call("DELETE", "/api/v1/keys/{key}", lambda answer: answer.json(), {"key": id_})

    @described
    def audit(
        self,
        *,
        action: str | None = None,
        caller: str | None = None,
        target: str | None = None,
        outcome: str | None = None,
        since: float | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Call[list[shown.AuditEntry]]:
        """Changes and who made them, newest first. `action`: one (`deployment.create`), or all of a kind
        (`deployment`). `before`: the `id` of the last entry of the page before."""
        params: dict[str, str | int | float | None] = {
            "action": action,
            "caller": caller,
            "target": target,
            "outcome": outcome,
            "since": since,
            "before": before,
            "limit": limit,
        }
        return get("/api/v1/audit", params)
