"""Every route is covered by a row of the table of scopes, or needs `admin`."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from tests.unit.service.conftest import Running
from walkgraph.service.access.access import OPEN_PATHS
from walkgraph.service.access.callers import ALL, SCOPES, SOCKET, TABLE, Caller, needed, row_for

ADMIN_ALONE = {
    "DELETE /api/v1/keys/{key}",
    "GET /api/v1/audit",
    "GET /api/v1/keys",
    "GET /api/v1/keys/{key}",
    "POST /api/v1/keys",
    "GET /api/v1/settings",
    "GET /api/v1/studio/access",
    "POST /api/v1/studio/codes",
}
"""Routes that need `admin`. If a new route is here by mistake, add a row to `callers.TABLE`."""


def leaves(found: list[BaseRoute]) -> list[APIRoute | APIWebSocketRoute]:
    """However the routers are nested."""
    known: list[APIRoute | APIWebSocketRoute] = []
    for route in found:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            known.append(route)
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if hasattr(inner, "routes"):
            known.extend(leaves(inner.routes))
    return known


def served(service: Running) -> set[tuple[str, str]]:
    """(method, path) of all that is served, as written in the routes; sockets, and what isn't documented, too."""
    found: set[tuple[str, str]] = set()
    for route in leaves(service.app.routes):
        methods = {SOCKET} if isinstance(route, APIWebSocketRoute) else route.methods
        found |= {(method, route.path) for method in methods}
    documented = service.app.openapi()["paths"].items()
    return found | {(method.upper(), path) for path, methods in documented for method in methods}


async def test_every_route_has_a_row_or_is_the_admins(service: Running) -> None:
    routes = {(method, path) for method, path in served(service) if path not in OPEN_PATHS}
    assert len(routes) > 50
    assert {f"{method} {path}" for method, path in routes if needed(method, path) == ("admin",)} == ADMIN_ALONE
    sockets = {path for method, path in routes if method == SOCKET}
    assert {"/ws/v1/telemetry", "/ws/v1/runs/{run}"} <= sockets


async def test_every_row_is_of_a_route(service: Running) -> None:
    routes = served(service)
    planned = {"/v1/**", "/v2/**"}
    for row in TABLE:
        for method in row.methods.split():
            if method == "HEAD" or row.path in planned or row.path.endswith("/**"):
                continue
            fits = row.fits()
            known = method == "GET" and row.path == "/openapi.json"
            assert known or any(method == found and fits(method, path) for found, path in routes), (method, row.path)


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("POST", "/v1/chat/completions", ("infer",)),
        ("GET", "/v1/models", ("infer", "read", "deploy")),
        (SOCKET, "/v1/realtime", ("infer",)),
        ("POST", "/v2/models/shapes/infer", ("infer",)),
        ("GET", "/metrics", ("read",)),
        ("GET", "/api/v1/deployments", ("read", "deploy")),
        ("POST", "/api/v1/deployments", ("deploy",)),
        ("DELETE", "/api/v1/deployments/x/taps/y", ("deploy",)),
        ("POST", "/api/v1/runs", ("infer",)),
        ("GET", "/api/v1/runs/0/result", ("infer", "read", "deploy")),
        ("GET", "/api/v1/keys", ("admin",)),
        ("GET", "/api/v1/keys/", ("admin",)),
        ("GET", "/api/v1/audit", ("admin",)),
        ("POST", "/api/v1/studio/codes", ("admin",)),
        ("GET", "/api/v1/studio/access", ("admin",)),
    ],
)
def test_the_contract(method: str, path: str, scopes: tuple[str, ...]) -> None:
    assert needed(method, path) == scopes


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"), ("GET", "/studio/"), ("GET", "//v1/models"), ("GET", "/V1/models"), ("GET", "/v1x"),
        ("GET", "/metrics/"), ("GET", "/metrics\n"), ("TRACE", "/v1/models"), ("PUT", "/v1/models"), ("get", "/v1/x"),
        ("OPTIONS", "/api/v1/runs"), (SOCKET, "/ws/v1/other"), (SOCKET, "/ws/v1/runs/a/b"), ("GET", "/nothing"),
    ],
)  # fmt: skip
def test_what_no_row_fits_is_the_admins(method: str, path: str) -> None:
    assert row_for(method, path) is None
    assert needed(method, path) == ("admin",)


def test_admin_is_everything_and_nothing_else_is() -> None:
    for scope in SCOPES:
        caller = Caller("k", "", frozenset([scope]))
        assert [caller.may(other) for other in SCOPES] == [scope in (other, "admin") for other in SCOPES]
    assert all(Caller("t", "", ALL).may(scope) for scope in SCOPES)
    sees = {scope: Caller("k", "", frozenset([scope])).sees_all_runs for scope in SCOPES}
    ends = {scope: Caller("k", "", frozenset([scope])).ends_all_runs for scope in SCOPES}
    assert sees == {"infer": False, "read": True, "deploy": True, "admin": True}
    assert ends == {"infer": False, "read": False, "deploy": True, "admin": True}
