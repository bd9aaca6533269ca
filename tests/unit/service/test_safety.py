"""Rules for every surface; routes and sockets are found in the application."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest
import structlog
from fastapi.routing import APIWebSocketRoute

from tests.support.storm.judge import UNTOLD, Ask, ask, typed
from tests.unit.service.conftest import TOKEN, Running
from tests.unit.service.sockets import Refused, connect
from tests.unit.service.test_access import HOSTS, ORIGINS, filled, routes
from walkgraph.service.access.access import BOOTSTRAP_PATHS, OPEN_PATHS
from walkgraph.service.http import limits

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW")
NASTY = (
    b"a\r\nset-cookie: x=1", b"a\nb", b"a\x00b", b"\xff\xfe", b"${jndi:ldap://x}", b"<script>", b"a b", b"",
    b"x" * 4000,
    b"../../etc/passwd", b"'; DROP TABLE runs;--", b"%0d%0aset-cookie:%20x", b"\x1b[31m",
)  # fmt: skip
CHAT = {"model": "shapes", "messages": [{"role": "user", "content": "x"}]}
SURFACES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/images/generations", {"model": "shapes", "prompt": "a red circle"}),
    ("POST", "/v1/audio/speech", {"model": "shapes", "input": "x"}),
    ("POST", "/v1/tasks/shapes/text_to_image", {"inputs": {"prompt": "x"}}),
    ("POST", "/v2/models/shapes/infer", {"inputs": []}),
    ("POST", "/api/v1/runs", {"deployment": "shapes", "task": "text_to_image", "request": {"inputs": {"prompt": "x"}}}),
    ("GET", "/api/v1/deployments", None),
)


def all_paths(service: Running) -> set[str]:
    documented = {re.sub(r"[{}]", "", filled(path)) for path in service.app.openapi()["paths"]}
    return {*documented, *sockets(service), "/openapi.json", "/docs", "/redoc", "/v1/images/variations", "/nothing"}


def sockets(service: Running) -> set[str]:
    found = {filled(route.path) for route in routes(service.app.routes) if isinstance(route, APIWebSocketRoute)}
    assert len(found) >= 5, found
    return found


@pytest.mark.safety("S4")
async def test_no_method_of_any_path_answers_a_stranger(service: Running) -> None:
    for path in all_paths(service) - OPEN_PATHS - BOOTSTRAP_PATHS:
        for method in METHODS:
            answer = await ask(service.app, Ask(method, path))
            assert answer.status == 401, (method, path, answer)
            assert UNTOLD.search(answer.body.decode()) is None, answer


@pytest.mark.safety("S10")
async def test_no_method_of_any_path_fails_for_those_who_may_call(service: Running) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\nx\r\n--b--\r\n'
    bodies = (("multipart/form-data; boundary=b", form), ("application/json; charset=utf-16", b"\xff\xfe{}"))
    for number, path in enumerate(sorted(all_paths(service) - OPEN_PATHS)):
        for method in METHODS:
            kind, body = bodies[number % 2]
            headers = (("authorization", f"Bearer {TOKEN}"), ("content-type", kind))
            answer = await ask(service.app, Ask(method, f"{path}?x=1&x=2&%ff=%00&{'y' * 3000}", headers, body))
            assert answer.status < 500, (method, path, answer)
            assert answer.status < 400 or typed(path, answer) == [], (method, path, answer)


async def test_what_is_open_tells_nothing_else(service: Running) -> None:
    await service.deploy()
    for path in OPEN_PATHS:
        for method in METHODS:
            answer = await ask(service.app, Ask(method, path))
            assert answer.status in (200, 405), (method, path)
            assert b"shapes" not in answer.body
    for path in BOOTSTRAP_PATHS:
        for query in ("", "&".join(["code=x"] * 20), "&" * 100, "code=" + "x" * 9000, "code=%00", "code=\u00e9"):
            answer = await ask(service.app, Ask("GET", f"{path}?{query}"))
            assert answer.status == 401, (path, query)
            assert "set-cookie" not in answer.headers


@pytest.mark.safety("S5")
@pytest.mark.parametrize(("field", "values", "status"), [("origin", ORIGINS, 403), ("host", HOSTS, 421)])
async def test_every_socket_asks_whose_page_it_is(
    service: Running, field: str, values: tuple[str, ...], status: int
) -> None:
    for path in sockets(service):
        for value in values:
            with pytest.raises(Refused) as refused:
                async with connect(service.app, path, {field: value}):
                    pass
            assert refused.value.status == status, (path, value)
    for path in sockets(service):
        with pytest.raises(Refused) as refused:
            async with connect(service.app, path, token=False):
                pass
        assert refused.value.status == 401, path


@pytest.mark.safety("S10")
async def test_no_header_of_a_request_comes_back_as_it_is(service: Running) -> None:
    """On any surface; nor does it change what is answered into something that isn't typed."""
    await service.deploy()
    for method, path, body in SURFACES:
        for name in ("x-request-id", "idempotency-key", "traceparent", "tracestate", "accept", "if-match"):
            for value in NASTY:
                given = ((name, value.decode("latin-1")), ("authorization", f"Bearer {TOKEN}"))
                kind = (("content-type", "application/json"),) if body is not None else ()
                data = json.dumps(body).encode() if body is not None else b""
                answer = await ask(service.app, Ask(method, path, (*given, *kind), data))
                assert answer.status < 500, (path, name, value, answer)
                told = "".join(f"{key}: {text}" for key, text in answer.headers.items()).encode("latin-1")
                assert not value or value not in told, (path, name, value)
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", answer.headers["x-request-id"])
                assert "set-cookie" not in answer.headers


@pytest.mark.safety("S15")
async def test_no_line_of_the_log_tells_a_secret_or_is_two(service: Running) -> None:
    lines = io.StringIO()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(lines),
    )
    await service.deploy()
    made = (await service.http.post("/api/v1/keys", json={"name": "mine", "scopes": ["infer"]})).json()
    code = (await service.http.post("/api/v1/studio/codes", json={})).json()["code"]
    for shown in (TOKEN, made["secret"], made["secret"] + "x", "x"):
        headers = {"Authorization": f"Bearer {shown}", "Idempotency-Key": "private-key-of-mine"}
        for method, path, body in SURFACES:
            await service.anybody.request(method, path, json=body, headers=headers)
        await service.anybody.get(f"/v1/models?token={shown}&api_key={shown}", headers=headers)
        for prefix in ("bearer.", "openai-insecure-api-key."):
            try:
                async with connect(service.app, "/v1/realtime?model=shapes", token=False, protocols=(prefix + shown,)):
                    pass
            except Refused:
                pass
    await service.anybody.get(f"/studio/?code={code}")
    await ask(service.app, Ask("GET", "/v1/a%0d%0a%1b%5b31mb%00", (("authorization", f"Bearer {TOKEN}"),)))
    told = lines.getvalue()
    assert "/v1/chat/completions" in told
    for secret in (TOKEN, made["secret"], made["secret"].rpartition("_")[2], code, "private-key-of-mine"):
        assert secret not in told
    for line in told.splitlines():
        assert isinstance(json.loads(line), dict), line


async def test_a_key_for_retries_keeps_no_request(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is kept for ten minutes; what was asked only for as long as its run can be followed."""
    monkeypatch.setattr(limits, "KEPT_RUNS", 3)
    await service.deploy()
    text = "x" * 10_000
    for number in range(8):
        answer = await service.http.post(
            "/v1/tasks/shapes/text_to_image",
            json={"inputs": {"prompt": f"{number}{text}"}},
            headers={"Idempotency-Key": f"key-{number}"},
        )
        assert answer.status_code == 200, answer.text
    held = [run for entry in service.services.idempotency._entries.values() for run in entry.runs]
    assert len(held) == 8
    assert sum(run.asked.bytes for run in held if run.asked) < 4 * len(text)
