"""Access control: one ASGI middleware for HTTP and WebSocket that denies by default.

    all requests       must name a host of this service (421), with headers within limits (431), and an Origin that is
                       absent or the service's own (403)
    all but those for `OPEN_PATHS` and `BOOTSTRAP_PATHS`
                       must have the bearer token or a key or, below `COOKIE_PREFIXES`, the studio's cookie (401);
                       must have the scope that they need (403), and stay within their caller's rate (429); see
                       `admission`
    mutations          must be JSON (415), with a body limited in size (413) and time (408). Where `multipart.PATHS`
                       matches they may be a form, but only with the bearer token or a key: a foreign page could send
                       a form with the cookie (403)

A browser gets the cookie for the one-time code in the printed address. A WebSocket may carry the token as subprotocol
`bearer.<token>`, since browsers can't set its headers.
"""

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any
from urllib.parse import parse_qs

import structlog
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from walkgraph.service.access import hosts
from walkgraph.service.access.admission import Admission
from walkgraph.service.access.callers import Caller
from walkgraph.service.http import limits, multipart
from walkgraph.service.http.body import BodyTooLarge, SlowBody
from walkgraph.service.http.problems import problem
from walkgraph.service.kserve import binary
from walkgraph.telemetry import socket_times, traceparent

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"})
BOOTSTRAP_PATHS = frozenset({"/", "/studio", "/studio/"})
"""Without credentials they answer with a page that explains how to get in; with a code, with the cookie."""
COOKIE_PREFIXES = ("/studio/", "/api/v1/", "/v1/", "/ws/v1/", "/schemas/")
COOKIE_SECONDS = 7 * 24 * 3600
CODE_SECONDS = 3600
MAX_CODES = 64
MAX_QUERY_FIELDS = 8
"""Query fields of an address with a code."""
SUBPROTOCOL = "bearer."
SUBPROTOCOLS = (SUBPROTOCOL, "openai-insecure-api-key.")
"""Prefixes of subprotocols that carry a token; OpenAI's browser clients send the second."""
REQUEST_ID = "request_id"
"""Key in a request's state for the id of its run, used as `X-Request-Id` if the client sends none."""

_CLOSE_FAULT = 1011
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
# Streamlit's page starts from inline scripts, draws with WebAssembly, and shows media from blobs. The editor is a
# module of the same origin: it calls the service, shows and records media as blobs, and opens WebSockets.
_STUDIO_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self' data: blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)

_STUDIO_PERMISSIONS = (
    "camera=(self), microphone=(self), clipboard-read=(self), clipboard-write=(self), fullscreen=(self), "
    "display-capture=(), geolocation=(), midi=(), payment=(), serial=(), usb=()"
)
"""The playground takes pictures and records audio; it needs no other permission."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_API_HEADERS = (*_HEADERS, (b"content-security-policy", _API_POLICY.encode()))
_STUDIO_HEADERS = (
    *_HEADERS,
    (b"content-security-policy", _STUDIO_POLICY.encode()),
    (b"permissions-policy", _STUDIO_PERMISSIONS.encode()),
)
_OURS = frozenset({name for name, _ in _STUDIO_HEADERS} | {b"x-request-id"})

_UNNAMED = "send `Authorization: Bearer TOKEN`: the service's token, in the file `token` of its home, or a key"
_UNKNOWN = (
    "this is neither the service's token nor a valid key: the token is in the file `token` of its home, "
    "`walkgraph keys list` tells which keys have ended or are revoked"
)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")

_log = structlog.get_logger("walkgraph.access")


class Codes:
    """One-time codes for browsers: each works once, for an hour."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._valid: dict[str, float] = {}

    def make(self) -> str:
        if len(self._valid) >= MAX_CODES:
            self._valid.pop(next(iter(self._valid)))
        code = secrets.token_urlsafe(24)
        self._valid[_digest(code)] = self._now() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> bool:
        return self._valid.pop(_digest(code), -1.0) > self._now()


class Cookies:
    """Signed cookies with an expiry. They need no store, so an open studio survives a restart."""

    def __init__(self, token: str, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._key = hmac.digest(token.encode(), b"walkgraph studio cookie", "sha256")
        # All ports of a host share cookies: two services there must not overwrite each other's.
        self.name = f"walkgraph_{_digest(token)[:8]}"

    def make(self) -> str:
        payload = f"{int(self._now()) + COOKIE_SECONDS}.{secrets.token_hex(8)}"
        return f"{payload}.{self._sign(payload)}"

    def valid(self, value: str) -> bool:
        payload, _, signature = value.rpartition(".")
        expiry = payload.partition(".")[0]
        fresh = expiry.isascii() and expiry.isdigit() and len(expiry) < 16 and int(expiry) > self._now()
        return hmac.compare_digest(signature.encode(), self._sign(payload).encode()) and fresh

    def _sign(self, payload: str) -> str:
        return hmac.new(self._key, payload.encode(), "sha256").hexdigest()


class Access:
    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        codes: Codes,
        admission: Admission,
        names: tuple[str, ...] = (),
        origins: tuple[str, ...] = (),
        secure: bool = False,
    ) -> None:
        """`names`: host names, besides the loopback's, that requests may name. `secure`: browsers reach the service
        only over https."""
        self._app = app
        self._token = token.encode()
        self._codes = codes
        self._admission = admission
        self._cookies = Cookies(token)
        self._hosts = hosts.known(names)
        self._origins = frozenset(origins)
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        if scope["type"] == "http":
            socket_times.begin(scope, time.monotonic())
        told: dict[str, Any] = {"status": None}
        finish = _finishing(scope, send, told)
        answer = self._judge(scope)
        caller: Caller | None = scope.get("state", {}).get("caller")
        if answer is not None:
            await _deny(answer, scope, receive, finish)
            if caller is not None:
                await self._admission.told(scope, caller, answer)
        elif caller is None or caller.key is None:
            await self._pass_on(scope, receive, finish)
        else:
            await self._admission.hold(scope, receive, finish, lambda send: self._pass_on(scope, receive, send))
        if scope["path"] not in OPEN_PATHS:
            seconds = time.perf_counter() - began
            _log.debug(
                "request",
                method=scope.get("method", "WEBSOCKET"),
                path=scope["path"],
                status=told["status"],
                ms=round(seconds * 1000, 1),
            )

    def _judge(self, scope: Scope) -> Response | None:
        """The answer that refuses the request; None lets it through."""
        fields: list[tuple[bytes, bytes]] = scope["headers"]
        path: str = scope["path"]
        if (
            len(fields) > limits.HEADER_FIELDS
            or sum(len(key) + len(value) for key, value in fields) > limits.HEADER_BYTES
        ):
            return problem(431, "invalid_input", "send fewer or shorter header fields", path=path)
        headers = _Fields(fields)
        host = _host(headers)
        if host is None or host[0] not in self._hosts:
            return problem(
                421,
                "refused",
                "this service is not known under that name; use localhost or set WALKGRAPH_ALLOWED_HOSTS",
                path=path,
            )
        if not self._origin_is_ours(scope, headers, host):
            return problem(403, "refused", "pages of another origin may not call this service", path=path)
        if path in OPEN_PATHS and scope["type"] == "http":
            return None
        found = self._identified(scope, headers)
        if path in BOOTSTRAP_PATHS and scope["type"] == "http":
            return self._bootstrap(scope, known=found is not None)
        if found is None:
            return problem(
                401,
                "refused",
                _UNKNOWN if headers.all(b"authorization") else _UNNAMED,
                path=path,
                headers={"WWW-Authenticate": "Bearer"},
            )
        way, caller = found
        state: dict[str, Any] = scope.setdefault("state", {})
        state["access"], state["caller"] = way, caller
        return self._admission.judge(scope, caller) or _content_type_fault(scope, headers)

    def _origin_is_ours(self, scope: Scope, headers: "_Fields", host: tuple[str, int | None]) -> bool:
        origins = headers.all(b"origin")
        if not origins:
            return True
        if len(origins) > 1:
            return False
        name, port = host
        scheme = "https" if _is_encrypted(scope) else "http"
        own = f"{scheme}://{name}" if port is None else f"{scheme}://{name}:{port}"
        return origins[0] == own or origins[0] in self._origins

    def _identified(self, scope: Scope, headers: "_Fields") -> tuple[str, Caller] | None:
        """The caller, and how it was identified (`token`, `key`, `cookie`)."""
        shown = headers.all(b"authorization")
        if len(shown) == 1 and shown[0][:7].lower() == "bearer ":
            found = self._bearer(shown[0][7:].strip())
            if found is not None:
                return found
        if scope["type"] == "websocket":
            for prefix, protocol in product(SUBPROTOCOLS, scope.get("subprotocols", ())):
                found = self._bearer(protocol.removeprefix(prefix)) if protocol.startswith(prefix) else None
                if found is not None:
                    return found
        return ("cookie", self._admission.studio) if self._cookie_counts(scope, headers) else None

    def _bearer(self, shown: str) -> tuple[str, Caller] | None:
        if hmac.compare_digest(shown.encode(), self._token):
            return "token", self._admission.token
        caller = self._admission.find(shown)
        return None if caller is None else ("key", caller)

    def _cookie_counts(self, scope: Scope, headers: "_Fields") -> bool:
        """Accepts the cookie only for requests of our own pages: a browser sends it with every request."""
        path: str = scope["path"]
        if not path.startswith(COOKIE_PREFIXES) and path not in BOOTSTRAP_PATHS:
            return False
        cookie = cookie_parser("; ".join(headers.all(b"cookie"))).get(self._cookies.name, "")
        if not self._cookies.valid(cookie):
            return False
        if scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS:
            return bool(headers.all(b"origin"))
        # Pages from another port of the same host are same-site and send the cookie too.
        return all(value in ("same-origin", "none") for value in headers.all(b"sec-fetch-site"))

    def _bootstrap(self, scope: Scope, *, known: bool) -> Response | None:
        query: bytes = scope["query_string"]
        # Bounds the parsing: anyone may send this, and addresses with a code have few fields.
        few = query.count(b"&") < MAX_QUERY_FIELDS
        codes = parse_qs(query.decode("latin-1")).get("code", []) if few else []
        if len(codes) == 1 and scope["method"] == "GET" and self._codes.redeem(codes[0]):
            answer = RedirectResponse("/studio/", status_code=303)
            answer.set_cookie(
                self._cookies.name,
                self._cookies.make(),
                max_age=COOKIE_SECONDS,
                httponly=True,
                samesite="strict",
                secure=self._secure or _is_encrypted(scope),
            )
            return answer
        if known:
            return None if scope["path"] == "/studio/" else RedirectResponse("/studio/", status_code=303)
        return HTMLResponse(_WELCOME, status_code=401)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await _talk(self._app, scope, receive, send)
            return
        started, times = False, socket_times.of(scope)

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            began = time.monotonic()
            await send(message)
            if times is not None:
                times.sent(began, time.monotonic())

        try:
            await self._app(scope, _bounded(scope, receive), watched)
        except BodyTooLarge as error:
            if not started:
                await problem(413, "invalid_input", str(error), path=scope["path"])(scope, receive, send)
        except SlowBody as error:
            if not started:
                await problem(408, "invalid_input", str(error), path=scope["path"])(scope, receive, send)
        except ClientDisconnect:
            _log.info("the client left before its body was whole", method=scope["method"], path=scope["path"])


async def _talk(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the application on a WebSocket. A client that leaves just ends it; an error of the service closes it with
    `_CLOSE_FAULT`."""
    accepted = False

    async def noted(message: Message) -> None:
        nonlocal accepted
        await send(message)
        accepted = accepted or message["type"] == "websocket.accept"

    try:
        await app(scope, receive, noted)
    except WebSocketDisconnect:
        pass
    except Exception:
        if accepted:
            with contextlib.suppress(OSError, RuntimeError):
                await send({"type": "websocket.close", "code": _CLOSE_FAULT})
        raise


class _Fields:
    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._values: dict[bytes, list[str]] = {}
        for name, value in fields:
            self._values.setdefault(name, []).append(value.decode("latin-1"))

    def all(self, name: bytes) -> Sequence[str]:
        return self._values.get(name, ())


def _is_encrypted(scope: Scope) -> bool:
    """True if the server, or a proxy that it trusts, reports https or wss."""
    return scope.get("scheme") in ("https", "wss")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _host(headers: _Fields) -> hosts.Host | None:
    """The host that the Host field names; None if the field is missing, repeated or malformed."""
    values = headers.all(b"host")
    return hosts.read(values[0]) if len(values) == 1 else None


def _content_type_fault(scope: Scope, headers: _Fields) -> Response | None:
    """Refuses mutations that are not JSON: a foreign page can send forms and plain text without a preflight."""
    if scope["type"] == "websocket" or scope["method"] in _SAFE_METHODS or scope["path"].startswith("/studio/"):
        return None
    types = headers.all(b"content-type")
    has_body = headers.all(b"transfer-encoding") or list(headers.all(b"content-length")) not in ([], ["0"])
    if scope["method"] in ("DELETE", "POST") and not has_body and not types:
        return None
    if len(types) == 1 and types[0].partition(";")[0].strip().lower() == "application/json":
        return _length_fault(scope, headers, limits.BODY_BYTES)
    lengths = headers.all(binary.HEADER.encode())
    if binary.takes(scope["method"], scope["path"], lengths, types):
        return _length_fault(scope, headers, limits.BODY_BYTES)
    if not (len(types) == 1 and multipart.is_form(types[0]) and _takes_forms(scope)):
        detail = "send the body as `Content-Type: application/json`"
        return problem(415, "invalid_input", detail, path=scope["path"])
    if scope["state"]["access"] == "cookie":
        detail = "send a form with `Authorization: Bearer TOKEN`; a page's session sends JSON"
        return problem(403, "refused", detail, path=scope["path"])
    return _length_fault(scope, headers, limits.FORM_BYTES)


def _takes_forms(scope: Scope) -> bool:
    return scope["method"] == "POST" and multipart.PATHS.fullmatch(scope["path"]) is not None


def _length_fault(scope: Scope, headers: _Fields, most: int) -> Response | None:
    for length in headers.all(b"content-length"):
        if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > most:
            return problem(413, "invalid_input", _too_large(most), path=scope["path"])
    return None


def _too_large(most: int) -> str:
    return f"a body of this type may have {most} bytes"


def _bounds(scope: Scope) -> tuple[int, float]:
    """(bytes, seconds) that the body of an accepted request may take."""
    if _takes_forms(scope) and any(multipart.is_form(kind) for kind in _Fields(scope["headers"]).all(b"content-type")):
        return limits.FORM_BYTES, limits.FORM_SECONDS
    return limits.BODY_BYTES, limits.BODY_SECONDS


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """Limits a body's size and time as it comes. Once it is complete, only a disconnect can follow, without limit."""
    if scope["method"] in _SAFE_METHODS:
        return receive
    taken, whole = 0, False
    began = asyncio.get_running_loop().time()
    bounds: tuple[int, float] | None = None

    async def bounded() -> Message:
        nonlocal bounds, taken, whole
        if whole:
            return await receive()
        # Not before the body is wanted: a refusal reads none.
        most, seconds = bounds = bounds or _bounds(scope)
        try:
            async with asyncio.timeout_at(began + seconds):
                message = await receive()
        except TimeoutError:
            raise SlowBody(f"the body must arrive within {seconds:.0f} seconds") from None
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if whole and (times := socket_times.of(scope)) is not None:
                times.read = time.monotonic()
            if taken > most:
                raise BodyTooLarge(_too_large(most))
        return message

    return bounded


def _finishing(scope: Scope, send: Send, told: dict[str, Any]) -> Callable[[Message], Awaitable[None]]:
    """Adds the security headers, the request id and the run's span to every answer, and records its status."""
    studio = scope["path"].startswith("/studio")

    async def finish(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            told["status"] = message["status"]
            headers = [field for field in message.get("headers", ()) if field[0] not in _OURS]
            headers += _STUDIO_HEADERS if studio else _API_HEADERS
            headers.append((b"x-request-id", _request_id(scope).encode()))
            span = scope.get("state", {}).get(traceparent.HEADER)
            if span is not None:
                headers.append((traceparent.HEADER.encode(), span.encode()))
            if not (studio or any(name == b"cache-control" for name, _ in headers)):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return finish


def _request_id(scope: Scope) -> str:
    """The client's own request id, else the id of the run that the request started, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    found: str | None = scope.get("state", {}).get(REQUEST_ID)
    return found or secrets.token_hex(16)


async def _deny(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    await answer(scope, receive, send)


_WELCOME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Walkgraph</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1rem;color:#1f2733}
code{background:#eef1f5;border-radius:4px;padding:.1em .4em}</style></head>
<body><h1>Walkgraph</h1><p>This browser is not known here yet, or its address was used before.</p>
<p>Run <code>walkgraph open</code> on the machine of the service: it prints an address that lets one browser in.</p>
</body></html>
"""
