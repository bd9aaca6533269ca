"""Decides if an identified caller may send a request now: by its scopes, the service's shutdown, and its rate.

Refusals are counted by reason. Changes that a caller lacks the scope for are written to the audit log.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from walkgraph.errors import without_codes
from walkgraph.service.access.auditing import Audit, act
from walkgraph.service.access.callers import ALL, SOCKET, Caller, needed
from walkgraph.service.access.keys import PREFIX, Keyring
from walkgraph.service.access.rates import Meter, RateLimited
from walkgraph.service.http.problems import of_error, problem
from walkgraph.service.shutdown import Shutdown

MAX_RETRY_SECONDS = 30
COUNTED = "counted"
"""Key in a socket's state: its opening counted as a request, so its first run doesn't."""

_READS = frozenset({"GET", "HEAD"})
_CLOSE_POLICY = 1008
_ENDED = "the key was revoked, or has expired"


class Admission:
    def __init__(self, keys: Keyring, audit: Audit, meter: Meter, shutdown: Shutdown, drain_seconds: float) -> None:
        """`meter`: shared by the service's own token and cookie."""
        self._keys, self._audit, self._shutdown = keys, audit, shutdown
        self._retry = max(1, min(MAX_RETRY_SECONDS, round(drain_seconds)))
        self.token = Caller("token", "", ALL, meter)
        self.studio = Caller("studio", "", ALL, meter)
        self.refused: Counter[str] = Counter()
        """Refused requests by reason: `requests_per_minute`, `concurrent_runs`, `scope`, `draining`."""

    def find(self, shown: str) -> Caller | None:
        """The caller with this key; None if it isn't valid."""
        return self._keys.find(shown) if shown.startswith(PREFIX) else None

    def judge(self, scope: Scope, caller: Caller) -> Response | None:
        """The answer that refuses the request; None counts it and lets it through."""
        path: str = scope["path"]
        method: str = SOCKET if scope["type"] == "websocket" else scope["method"]
        if caller.scopes is not ALL:
            scopes = needed(method, path)
            if not caller.may(*scopes):
                self.refused["scope"] += 1
                return _lacking(scopes, path)
        if path.startswith("/studio/"):
            return None
        if self._shutdown.begun and not _goes_on(method, path):
            self.refused["draining"] += 1
            headers = {"Retry-After": str(self._retry), "Connection": "close"}
            detail = "the service is shutting down; try again once it is back, or elsewhere"
            return problem(503, "shutting_down", detail, path=path, retryable=True, headers=headers)
        try:
            caller.meter.take()
        except RateLimited as error:
            self.refused[error.reason] += 1
            return of_error(error, path)
        if method == SOCKET:
            scope["state"][COUNTED] = True
        return None

    async def told(self, scope: Scope, caller: Caller, answer: Response) -> None:
        """Called with the answer to a refused request. Writes an audit entry if it was a change beyond the caller's
        scopes."""
        method: str = scope.get("method", SOCKET)
        if answer.status_code == 403 and method not in _READS and method != SOCKET:
            scopes = " or ".join(f"`{name}`" for name in needed(method, scope["path"]))
            target = f"{method} {without_codes(scope['path'])[:200]}"
            attempt = act(HTTPConnection(scope), "request.deny", target)
            await self._audit.denied(attempt, f"it needs the scope {scopes}")

    async def hold(self, scope: Scope, receive: Receive, send: Send, go: Callable[[Send], Awaitable[None]]) -> None:
        """Answers a request with a key, for as long as the key is valid."""
        caller: Caller = scope["state"]["caller"]
        last: Message | None = None

        async def watched(message: Message) -> None:
            nonlocal last
            last = message
            await send(message)

        limit = asyncio.timeout(None)
        try:
            async with limit:
                with self._keys.during(caller, limit):
                    await go(watched)
        except TimeoutError:
            if not limit.expired():
                raise
            await _cut(scope, receive, send, last)


def count_run(connection: HTTPConnection, caller: Caller) -> None:
    """Called before a run is started. Raises RateLimited if the caller may not start one now. On a socket every run but
    the first counts as a request."""
    if connection.scope["type"] == "websocket" and not connection.scope["state"].pop(COUNTED, False):
        caller.meter.take()
    caller.meter.admit()


def _goes_on(method: str, path: str) -> bool:
    """True for requests that are served while the service drains: following, reading and ending what is under way."""
    if method == SOCKET:
        return path.startswith("/ws/v1/runs/")
    if method in _READS:
        return not path.startswith(("/v1/", "/v2"))
    return method == "DELETE" and path.startswith("/api/v1/runs/")


def _lacking(scopes: tuple[str, ...], path: str) -> Response:
    wanted = " or ".join(f"`{name}`" for name in scopes)
    shown = f'Bearer error="insufficient_scope", scope="{" ".join(scopes)}"'
    detail = f"this key lacks the scope for it: {wanted} is needed"
    return problem(403, "refused", detail, path=path, headers={"WWW-Authenticate": shown})


async def _cut(scope: Scope, receive: Receive, send: Send, last: Message | None) -> None:
    """Ends an answer early; `last` is its last message so far. An answer that has begun gets no regular end, so that
    the client knows that it is incomplete."""
    kind = last["type"] if last is not None else None
    with contextlib.suppress(RuntimeError, OSError):
        if scope["type"] == "websocket":
            if kind in (None, "websocket.accept", "websocket.send"):
                await send({"type": "websocket.close", "code": _CLOSE_POLICY, "reason": _ENDED})
        elif last is None:
            headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            await problem(401, "refused", _ENDED, path=scope["path"], headers=headers)(scope, receive, send)
