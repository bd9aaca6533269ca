"""Callers and their scopes, with one table of the scopes that each method and path needs.

    infer    its own runs: /v1, /v2, the sockets of tasks, sessions and runs, /api/v1/runs and /queue
    read     every GET below /api/v1 except keys, audit and studio; all runs, telemetry, metrics
    deploy   documents, deployments, their taps and breakpoints; ending and steering any run
    admin    everything, including keys and the audit log

The first row of `TABLE` that matches decides; a route without a row needs `admin`. The service's own token and the
studio's cookie have all scopes.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import get_args

from starlette.requests import HTTPConnection

from walkgraph.service.access.rates import Meter
from walkgraph.wire.answers.keys import Scope

SCOPES: tuple[Scope, ...] = get_args(Scope)
SOCKET = "WS"
"""Stands for the method when a WebSocket is opened."""


@dataclass(frozen=True, eq=False)
class Caller:
    """The sender of a request. There is one object for each token or key, for as long as that is valid."""

    id: str
    """A key's id; `token` or `studio` for the service's own token and cookie; `service` for the service itself."""
    name: str
    scopes: frozenset[Scope]
    meter: Meter = field(default_factory=lambda: Meter(None, None))
    key: str | None = None
    """The key's id; None for other callers."""

    def may(self, *any_of: Scope) -> bool:
        return "admin" in self.scopes or not self.scopes.isdisjoint(any_of)

    @property
    def sees_all_runs(self) -> bool:
        """True if it sees the runs of others too."""
        return self.may("read", "deploy")

    @property
    def ends_all_runs(self) -> bool:
        """True if it may end and steer the runs of others too."""
        return self.may("deploy")

    def session(self, name: str) -> str:
        """The internal name of a caller's session: prefixed with the key's id, so that keys don't share sessions."""
        return f"{self.key}:{name}" if self.key is not None else name

    def session_shown(self, inside: str) -> str | None:
        """A session's name as the caller sees it; None if it may not see the session. Sessions of others keep their
        internal names."""
        own = self.session("")
        if own and inside.startswith(own):
            return inside.removeprefix(own)
        return inside if self.sees_all_runs else None


ALL: frozenset[Scope] = frozenset(SCOPES)
SERVICE = Caller("service", "", ALL)
"""The caller of the service's own acts."""


def caller_of(connection: HTTPConnection) -> Caller:
    """The caller that the middleware identified."""
    found: Caller = connection.scope["state"]["caller"]
    return found


@dataclass(frozen=True)
class Row:
    methods: str
    """Separated by spaces."""
    path: str
    """`*` is one segment; `/**` at the end matches the path itself and everything below."""
    scopes: tuple[Scope, ...]
    """Any one of them suffices."""

    def fits(self) -> Callable[[str, str], bool]:
        methods = frozenset(self.methods.split())
        stem, _, _ = self.path.partition("/**")
        pattern = "[^/]+".join(re.escape(part) for part in stem.split("*"))
        path = re.compile(pattern + ("(?:/.*)?" if self.path.endswith("/**") else ""), re.DOTALL).fullmatch
        return lambda method, given: method in methods and path(given) is not None


_READS = "GET HEAD"
_WRITES = "POST PUT PATCH DELETE"

TABLE: tuple[Row, ...] = (
    Row(_READS, "/v1/**", ("infer", "read", "deploy")),
    Row(_READS, "/v2/**", ("infer", "read", "deploy")),
    Row(f"POST DELETE {SOCKET}", "/v1/**", ("infer",)),
    Row("POST", "/v2/**", ("infer",)),
    Row(SOCKET, "/ws/v1/tasks/**", ("infer",)),
    Row(SOCKET, "/ws/v1/sessions/**", ("infer",)),
    Row(SOCKET, "/ws/v1/runs/*", ("infer", "read", "deploy")),
    Row(SOCKET, "/ws/v1/telemetry", ("read",)),
    Row(_READS, "/metrics", ("read",)),
    Row(_READS, "/openapi.json", ("infer", "read", "deploy")),
    Row(_READS, "/schemas/**", ("infer", "read", "deploy")),
    Row(f"{_READS} {_WRITES}", "/api/v1/keys/**", ("admin",)),
    Row(f"{_READS} {_WRITES}", "/api/v1/audit/**", ("admin",)),
    Row(f"{_READS} {_WRITES}", "/api/v1/studio/**", ("admin",)),
    Row(_READS, "/api/v1/settings", ("admin",)),
    Row("POST", "/api/v1/runs", ("infer",)),
    Row("POST", "/api/v1/runs/*/replay", ("infer",)),
    Row("POST", "/api/v1/runs/*/steer", ("infer", "deploy")),
    Row("POST", "/api/v1/runs/*/approval", ("infer", "deploy")),
    Row("DELETE", "/api/v1/runs/*", ("infer", "deploy")),
    Row(_READS, "/api/v1/runs/**", ("infer", "read", "deploy")),
    Row(_READS, "/api/v1/queue", ("infer", "read", "deploy")),
    Row("DELETE", "/api/v1/queue", ("infer", "deploy")),
    Row("POST", "/api/v1/queue/*/move", ("infer",)),
    Row(_READS, "/api/v1/**", ("read", "deploy")),
    Row("POST", "/api/v1/plans", ("read", "deploy")),
    Row("POST", "/api/v1/graphs/check", ("read", "deploy")),
    Row("POST", "/api/v1/graphs/python", ("read", "deploy")),
    Row("POST", "/api/v1/graphs/simulate", ("read", "deploy")),
    Row("POST", "/api/v1/blueprints/*", ("read", "deploy")),
    Row(_WRITES, "/api/v1/graphs/**", ("deploy",)),
    Row(_WRITES, "/api/v1/blueprints/**", ("deploy",)),
    Row(_WRITES, "/api/v1/placements/**", ("deploy",)),
    Row(_WRITES, "/api/v1/deployments/**", ("deploy",)),
    Row(_WRITES, "/api/v1/scratch/**", ("deploy",)),
)
_FITS = tuple((row.fits(), row.scopes) for row in TABLE)


def row_for(method: str, path: str) -> tuple[Scope, ...] | None:
    """Scopes of which one is needed; None if no row matches."""
    return next((scopes for fits, scopes in _FITS if fits(method, path)), None)


def needed(method: str, path: str) -> tuple[Scope, ...]:
    return row_for(method, path) or ("admin",)


def named(scopes: Iterable[str]) -> frozenset[Scope]:
    """The scopes of a stored list, without names that this version does not know."""
    return frozenset(scope for scope in SCOPES if scope in set(scopes))
