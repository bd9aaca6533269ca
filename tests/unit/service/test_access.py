"""Denied by default: every route, every socket, every origin, host and content type that isn't known."""

from __future__ import annotations

import httpx
import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from pydantic import SecretStr
from starlette.routing import BaseRoute

from tests.unit.service.conftest import BASE, TOKEN, Running, serving
from tests.unit.service.fakes import FakeFleet
from tests.unit.service.sockets import Refused, connect
from walkgraph.client.shown import Access
from walkgraph.service.access.access import CODE_SECONDS, COOKIE_SECONDS, OPEN_PATHS, Codes, Cookies
from walkgraph.service.http import multipart
from walkgraph.service.kserve import binary
from walkgraph.service.routes.studio import access_of
from walkgraph.settings import Settings, standard_home

OWN = "http://127.0.0.1:8421"
SOCKETS = (
    "/ws/v1/telemetry",
    "/ws/v1/tasks/shapes/text_to_image",
    "/ws/v1/sessions/shapes/text_to_image",
    "/ws/v1/runs/" + "0" * 32,
)
ORIGINS = (
    "http://evil.example",
    "null",
    "file://",
    "http://localhost.evil.example:8421",
    "http://127.0.0.1.evil.example:8421",
    "http://127.0.0.1:9000",
    "HTTP://127.0.0.1:8421",
    "http://127.0.0.1.:8421",
    "http://[::1]:8421",
    "https://127.0.0.1:8421",
    "http://127.0.0.1",
    "http://127.0.0.1:8421/",
    "http://localhost:8421",
    "",
)
HOSTS = (
    "evil.example", "evil.example:8421", "127.0.0.1.evil.example", "localhost.evil.example", "evil-localhost",
    "127.0.0.2", "0.0.0.0", "localhost.", "127.0.0.1.", "127.1", "2130706433", "0x7f.1", "[::]", "[::2]", "::1",
    "user@127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1/x", "127.0.0.1?x", "127.0.0.1#x", "127.0.0.1\\x",
    "a/v1/models?", "127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1,evil.example", "127.0.0.1 evil", "", " ",
    "xn--lcalhost-34a", "localhost%00", "localhost%2eevil", "*", "[", "]", "[::1", "::ffff:127.0.0.1",
    "[::1]]", "[::1]x", "[::1]:8421x", "[[::1]]", "localhost:", "localhost:0", "localhost:+80",
)  # fmt: skip


def routes(found: list[BaseRoute]) -> list[APIRoute | APIWebSocketRoute]:
    """All leaves, however the routers are nested."""
    leaves: list[APIRoute | APIWebSocketRoute] = []
    for route in found:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            leaves.append(route)
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if hasattr(inner, "routes"):
            leaves.extend(routes(inner.routes))
    return leaves


def filled(path: str) -> str:
    for name, value in (("{run}", "0" * 32), ("{number}", "1"), ("{name}", "shapes")):
        path = path.replace(name, value)
    return path.replace("{deployment}", "shapes").replace("{task}", "text_to_image")


def paths(service: Running) -> dict[str, set[str]]:
    """Path -> methods, as documented; `WS` for a socket."""
    found: dict[str, set[str]] = {}
    for path, methods in service.app.openapi()["paths"].items():
        found.setdefault(filled(path), set()).update(method.upper() for method in methods)
    return found


@pytest.mark.safety("S4")
async def test_every_route_is_closed_without_a_token(service: Running) -> None:
    documented = paths(service)
    assert len(documented) > 25
    for path, methods in documented.items():
        if path in OPEN_PATHS:
            continue
        for method in methods:
            answer = await service.anybody.request(method, path, json={} if method != "GET" else None)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/openapi.json", "/nothing", "/studio/_stcore/health", "/studio/..", "//health/live", "/health/live/"):
        assert (await service.anybody.get(path)).status_code == 401, path


@pytest.mark.safety("S4")
@pytest.mark.parametrize("path", SOCKETS)
async def test_every_socket_is_closed_without_a_token(service: Running, path: str) -> None:
    for headers, protocols in (({}, ()), ({"authorization": "Bearer wrong"}, ()), ({}, ("bearer.wrong",))):
        with pytest.raises(Refused) as refused:
            async with connect(service.app, path, headers, token=False, protocols=protocols):
                pass
        assert refused.value.status == 401
    async with connect(service.app, path, token=False, protocols=(f"bearer.{TOKEN}",)):
        pass


@pytest.mark.parametrize("shown", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"{TOKEN}, {TOKEN}", "é"])
async def test_only_the_token_is_the_token(service: Running, shown: str) -> None:
    headers = {"Authorization": f"Bearer {shown}".encode()}
    assert (await service.anybody.get("/v1/limits", headers=headers)).status_code == 401
    assert (await service.anybody.get(f"/v1/limits?token={TOKEN}")).status_code == 401


async def test_two_authorizations_are_none(service: Running) -> None:
    headers = [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {TOKEN}")]
    assert (await service.anybody.get("/v1/limits", headers=headers)).status_code == 401


@pytest.mark.safety("S5")
@pytest.mark.parametrize("origin", ORIGINS)
async def test_foreign_origins_are_refused_everywhere(service: Running, origin: str) -> None:
    headers = {"Origin": origin}
    for method, path in (("POST", "/api/v1/plans"), ("PUT", "/api/v1/graphs/x"), ("GET", "/v1/limits")):
        answer = await service.http.request(method, path, json={}, headers=headers)
        assert answer.status_code == 403, (method, path)
    assert (await service.http.delete("/api/v1/graphs/x", headers=headers)).status_code == 403
    assert (await service.anybody.get("/health/live", headers=headers)).status_code == 403
    for path in SOCKETS:
        with pytest.raises(Refused) as refused:
            async with connect(service.app, path, {"origin": origin}):
                pass
        assert refused.value.status == 403


@pytest.mark.safety("S5")
async def test_doubled_origins_are_refused(service: Running) -> None:
    headers = [("Origin", OWN), ("Origin", OWN)]
    assert (await service.http.get("/v1/limits", headers=headers)).status_code == 403


@pytest.mark.parametrize(
    ("host", "origin"),
    [("127.0.0.1:8421", OWN), ("localhost:8421", "http://localhost:8421"), ("[::1]:8421", "http://[::1]:8421"),
     ("LOCALHOST:9000", "http://localhost:9000"), ("localhost", "http://localhost")],
)  # fmt: skip
async def test_our_own_pages_may_call(service: Running, host: str, origin: str) -> None:
    headers = {"Host": host, "Origin": origin}
    assert (await service.http.get("/v1/limits", headers=headers)).status_code == 200
    assert (await service.http.post("/api/v1/graphs/check", json={}, headers=headers)).status_code == 200


@pytest.mark.safety("S5")
@pytest.mark.parametrize("host", HOSTS)
async def test_foreign_hosts_are_misdirected(service: Running, host: str) -> None:
    for path in ("/health/live", "/v1/limits", "/studio/"):
        assert (await service.http.get(path, headers={"Host": host})).status_code == 421
    with pytest.raises(Refused) as refused:
        async with connect(service.app, SOCKETS[0], {"host": host}):
            pass
    assert refused.value.status == 421


async def test_configured_hosts_and_origins_are_known(settings: Settings) -> None:
    named = settings.model_copy(
        update={"allowed_hosts": ("studio.example",), "allowed_origins": ("https://studio.example",)}
    )
    async with serving(named, FakeFleet()) as service:
        headers = {"Host": "studio.example", "Origin": "https://studio.example"}
        assert (await service.http.get("/v1/limits", headers=headers)).status_code == 200
        headers["Origin"] = "https://studio.evil.example"
        assert (await service.http.get("/v1/limits", headers=headers)).status_code == 403


@pytest.mark.safety("S5")
@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None, "json",
                     "application/jsonx", "text/json", "application/json, text/plain"],
)  # fmt: skip
async def test_mutations_are_json_alone(service: Running, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    for path, methods in paths(service).items():
        for method in methods - {"GET"}:
            answer = await service.http.request(method, path, content=b"{}", headers=headers)
            # Where forms are taken this is none: see test_multipart.py.
            taken = "multipart" in str(content_type) and multipart.PATHS.fullmatch(path)
            # Cookies don't count below these: a page has nothing to send with a body of no type.
            taken = taken or (content_type is None and binary.PATHS.fullmatch(path))
            assert answer.status_code in ((400, 404, 422) if taken else (415,)), (method, path)


@pytest.mark.safety("S5")
async def test_reading_changes_nothing(service: Running, settings: Settings) -> None:
    await service.deploy()
    await service.services.runs._unsaved.join()

    def contents() -> bytes:
        import sqlite3

        with sqlite3.connect(settings.home / "walkgraph.db") as connection:
            found = "\n".join(connection.iterdump()).encode()
        connection.close()
        return found

    before = contents()
    for path, methods in paths(service).items():
        if "GET" in methods and "events" not in path:
            wrong = 400 if path.startswith("/v2/") else 422
            assert (await service.http.get(path)).status_code in (200, 404, wrong), path
    assert contents() == before


async def test_a_code_lets_one_browser_in_once(service: Running) -> None:
    made = (await service.http.post("/api/v1/studio/codes", json={})).json()
    assert (await service.anybody.get("/studio/")).status_code == 401
    first = await service.anybody.get(made["path"])
    assert first.status_code == 303
    assert first.headers["location"] == "/studio/"
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    service.anybody.cookies.clear()
    again = await service.anybody.get(made["path"])
    assert again.status_code == 401
    assert "set-cookie" not in again.headers
    assert "walkgraph open" in again.text


async def test_who_may_know_is_told_where_the_token_lies(service: Running) -> None:
    settings = service.services.settings
    told = (await service.http.get("/api/v1/studio/access")).json()
    assert told == {"home": str(settings.home), "own_home": True, "token_file": str(settings.token_file)}
    given = settings.model_copy(update={"token": SecretStr("a token of its owner's"), "home": standard_home()})
    assert access_of(given) == Access(home=str(standard_home()), own_home=False, token_file=None)
    assert (await service.anybody.get("/api/v1/studio/access")).status_code == 401


async def test_the_cookie_counts_only_for_our_own_page(service: Running) -> None:
    made = (await service.http.post("/api/v1/studio/codes", json={})).json()
    value = (await service.anybody.get(made["path"])).headers["set-cookie"].partition(";")[0]
    service.anybody.cookies.clear()

    async def status(method: str, path: str, **headers: str) -> int:
        body = {} if method != "GET" else None
        answer = await service.anybody.request(method, path, json=body, headers={"Cookie": value, **headers})
        return answer.status_code

    assert await status("GET", "/v1/limits") == 200
    assert await status("GET", "/v1/limits", **{"Sec-Fetch-Site": "same-origin"}) == 200
    assert await status("GET", "/v1/limits", **{"Sec-Fetch-Site": "same-site"}) == 401
    assert await status("GET", "/v1/limits", **{"Sec-Fetch-Site": "cross-site"}) == 401
    assert await status("GET", "/openapi.json") == 401
    assert await status("POST", "/api/v1/graphs/check") == 401
    assert await status("POST", "/api/v1/graphs/check", Origin=OWN) == 200
    for headers, code in (({}, 401), ({"origin": "http://evil.example"}, 403)):
        with pytest.raises(Refused) as refused:
            async with connect(service.app, SOCKETS[0], {"cookie": value, **headers}, token=False):
                pass
        assert refused.value.status == code
    async with connect(service.app, SOCKETS[0], {"cookie": value, "origin": OWN}, token=False) as socket:
        assert (await socket.receive())["type"] == "welcome"


def test_cookies_are_signed_and_expire() -> None:
    now = [1000.0]
    cookies = Cookies(TOKEN, lambda: now[0])
    value = cookies.make()
    assert cookies.valid(value)
    assert not Cookies("another token", lambda: now[0]).valid(value)
    for forged in ("", ".", "..", value[:-1] + ("0" if value[-1] != "0" else "1"), "9" + value, value + "0"):
        assert not cookies.valid(forged), forged
    now[0] += COOKIE_SECONDS + 1
    assert not cookies.valid(value)


def test_codes_expire_and_work_once() -> None:
    now = [0.0]
    codes = Codes(lambda: now[0])
    first, second = codes.make(), codes.make()
    assert codes.redeem(first)
    assert not codes.redeem(first)
    now[0] += CODE_SECONDS + 1
    assert not codes.redeem(second)
    assert not codes.redeem("")


async def test_headers_are_bounded(service: Running) -> None:
    many = [("X-Y", "1")] * 101
    assert (await service.http.get("/v1/limits", headers=many)).status_code == 431
    assert (await service.http.get("/v1/limits", headers={"X-Y": "1" * 33_000})).status_code == 431


async def test_every_answer_has_its_security_headers(service: Running) -> None:
    for path in ("/v1/limits", "/health/live", "/nothing", "/studio/"):
        headers = (await service.anybody.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_the_studio_may_do_what_the_editor_needs(service: Running) -> None:
    headers = (await service.anybody.get("/studio/")).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    for directive, sources in (
        ("script-src", {"'self'"}),  # the bundle, a module
        ("style-src", {"'self'", "'unsafe-inline'"}),  # of a shadow root
        ("connect-src", {"'self'", "blob:"}),  # the service, its sockets, and blobs read back
        ("img-src", {"'self'", "data:", "blob:"}),
        ("media-src", {"blob:"}),
        ("worker-src", {"blob:"}),
    ):
        assert sources <= set(policy[directive].split()), directive
        assert "*" not in policy[directive]
        assert "http" not in policy[directive]
    allowed = dict(part.strip().split("=") for part in headers["permissions-policy"].split(","))
    for feature in ("camera", "microphone", "clipboard-read", "clipboard-write"):
        assert allowed[feature] == "(self)"
    assert allowed["geolocation"] == "()"
    assert "permissions-policy" not in (await service.http.get("/v1/limits")).headers


async def test_a_post_that_says_nothing_needs_no_type(service: Running) -> None:
    await service.deploy()
    assert (await service.http.post("/api/v1/deployments/shapes/restart")).status_code == 202
    assert (await service.anybody.post("/api/v1/deployments/shapes/restart")).status_code == 401
    foreign = {"Origin": "http://evil.example"}
    assert (await service.http.post("/api/v1/deployments/shapes/restart", headers=foreign)).status_code == 403
    assert (await service.http.post("/api/v1/graphs/check")).status_code in (400, 422)


async def test_the_base_is_what_the_tests_think(service: Running) -> None:
    assert str(service.http.base_url).rstrip("/") == BASE == OWN


async def test_over_https_our_own_pages_are_of_https(service: Running) -> None:
    transport = httpx.ASGITransport(app=service.app)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url=OWN.replace("http", "https"), headers=headers) as client:
        for origin, status in ((OWN.replace("http", "https"), 200), (OWN, 403)):
            assert (await client.get("/v1/limits", headers={"Origin": origin})).status_code == status
        made = (await client.post("/api/v1/studio/codes", json={})).json()
        assert "Secure" in (await client.get(made["path"])).headers["set-cookie"]
    made = (await service.http.post("/api/v1/studio/codes", json={})).json()
    assert "Secure" not in (await service.anybody.get(made["path"])).headers["set-cookie"]
