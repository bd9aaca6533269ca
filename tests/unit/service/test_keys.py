"""Keys: scopes, limits and expiry."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import httpx
import pytest

from tests.unit.service.conftest import BASE, TOKEN, Running, serving
from tests.unit.service.fakes import FakeFleet
from tests.unit.service.sockets import Refused, connect
from walkgraph.service.access import keys
from walkgraph.settings import Settings
from walkgraph.store import keys as stored

DRAW = "/v1/tasks/shapes/text_to_image"
PROMPT: dict[str, Any] = {"inputs": {"prompt": "a red circle"}}
WAITING: dict[str, Any] = {**PROMPT, "params": {"seed": 13}}


async def make(service: Running, name: str, *scopes: str, **more: Any) -> dict[str, Any]:
    answer = await service.http.post("/api/v1/keys", json={"name": name, "scopes": list(scopes), **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


@asynccontextmanager
async def holder(service: Running, made: dict[str, Any]) -> AsyncGenerator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=service.app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {made['secret']}"}
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        yield client


async def test_a_key_is_shown_once_and_lets_in_until_it_is_revoked(service: Running) -> None:
    made = await make(service, "robot", "infer", "read")
    assert made["secret"].startswith(f"wg_{made['id']}_")
    assert len(made["secret"]) == 3 + 8 + 1 + 43
    listed = (await service.http.get("/api/v1/keys")).json()
    assert [row["name"] for row in listed] == ["robot"]
    assert listed[0]["scopes"] == ["infer", "read"]
    one = await service.http.get(f"/api/v1/keys/{made['id']}")
    for answer in (one, await service.http.get("/api/v1/keys"), await service.http.get("/api/v1/audit")):
        assert made["secret"] not in answer.text
        assert made["secret"][12:] not in answer.text
    async with holder(service, made) as client:
        assert (await client.get("/v1/limits")).status_code == 200
        assert (await service.http.delete(f"/api/v1/keys/{made['id']}")).json()["valid"] is False
        assert (await client.get("/v1/limits")).status_code == 401
    assert (await service.http.delete(f"/api/v1/keys/{made['id']}")).status_code == 409
    assert (await service.http.get("/api/v1/keys")).json() == []
    assert len((await service.http.get("/api/v1/keys?former=true")).json()) == 1
    assert (await service.http.delete("/api/v1/keys/00000000")).status_code == 404


async def test_the_store_keeps_no_secret(service: Running) -> None:
    made = await make(service, "robot", "infer")
    rows = await service.services.store.read(stored.list_keys)
    assert made["secret"][12:] not in rows[0].model_dump_json()


async def test_only_the_whole_key_is_the_key(service: Running) -> None:
    made = await make(service, "robot", "read")
    other = await make(service, "other", "read")
    secret = made["secret"]
    for shown in (
        secret[:-1], secret + "A", secret.upper(), secret.replace(made["id"], other["id"]), f"wg_{made['id']}_",
        f"wg_{made['id']}", "wg_", secret[3:], secret + "\x00", f"wg_ffffffff_{'A' * 43}", secret.replace("wg_", "wG_"),
    ):  # fmt: skip
        answer = await service.anybody.get("/v1/limits", headers={"Authorization": f"Bearer {shown}".encode()})
        assert answer.status_code == 401, shown


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("infer", {"tasks", "own runs"}),
        ("read", {"tasks", "own runs", "deployments", "metrics"}),
        ("deploy", {"tasks", "own runs", "deployments", "put", "undeploy"}),
        ("admin", {"tasks", "own runs", "deployments", "metrics", "put", "undeploy", "keys", "code"}),
    ],
)
async def test_a_scope_opens_what_it_says(service: Running, scope: str, allowed: set[str]) -> None:
    await service.deploy()
    made = await make(service, "robot", scope)
    asked = {
        "tasks": ("GET", "/v1/tasks/shapes"),
        "own runs": ("GET", "/api/v1/runs"),
        "deployments": ("GET", "/api/v1/deployments"),
        "metrics": ("GET", "/metrics"),
        "put": ("PUT", "/api/v1/graphs/mine"),
        "keys": ("GET", "/api/v1/keys"),
        "code": ("POST", "/api/v1/studio/codes"),
        "undeploy": ("DELETE", "/api/v1/deployments/shapes"),
    }
    async with holder(service, made) as client:
        for name, (method, path) in asked.items():
            answer = await client.request(method, path, json={} if method in ("PUT", "POST") else None)
            assert (answer.status_code < 400) == (name in allowed), (name, answer.text)
            if name not in allowed:
                assert answer.status_code == 403
                assert answer.headers["www-authenticate"].startswith('Bearer error="insufficient_scope", scope="')
        ran = await client.post(DRAW, json=PROMPT)
        assert (ran.status_code != 403) == (scope in ("infer", "admin"))


async def test_refusals_are_written_in_the_paths_dialect(service: Running) -> None:
    made = await make(service, "robot", "deploy", requests_per_minute=1)
    async with holder(service, made) as client:
        answer = await client.post("/v1/chat/completions", json={})
        assert answer.json()["error"]["type"] == "permission_error"
        assert (await client.get("/v1/models")).status_code == 200
        refused = await client.get("/v1/models")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "rate_limited"
    assert refused.json()["error"]["type"] == "rate_limit_error"


async def test_a_rate_is_the_keys_own(service: Running) -> None:
    one = await make(service, "one", "infer", requests_per_minute=18)
    two = await make(service, "two", "infer", requests_per_minute=18)
    async with holder(service, one) as first, holder(service, two) as second:
        statuses = [(await first.get("/v1/limits")).status_code for _ in range(5)]
        assert statuses == [200] * 3 + [429] * 2
        refused = await first.get("/v1/limits")
        assert refused.json()["code"] == "rate_limited"
        assert refused.json()["retryable"] is True
        assert refused.headers["content-type"] == "application/problem+json"
        assert (await second.get("/v1/limits")).status_code == 200
    for _ in range(20):
        assert (await service.http.get("/v1/limits")).status_code == 200
    text = (await service.http.get("/metrics")).text
    assert 'walkgraph_requests_refused_total{reason="requests_per_minute"} 3.0' in text
    assert one["id"] not in text


async def test_runs_at_once_are_the_keys_own(service: Running) -> None:
    await service.deploy()
    made = await make(service, "robot", "infer", concurrent=2)
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITING}
    async with holder(service, made) as client:
        runs = [(await client.post("/api/v1/runs", json=body)).json()["id"] for _ in range(2)]
        refused = await client.post("/api/v1/runs", json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.headers["retry-after"] == "1"
        assert (await service.http.get(f"/api/v1/keys/{made['id']}")).json()["running"] == 2
        assert (await service.http.post("/api/v1/runs", json=body)).status_code == 202
        for _ in range(3):
            await asyncio.wait_for(service.fleet.started[0].waiting.get(), 60)
        service.fleet.started[0].finish(runs[0])
        assert (await client.post("/api/v1/runs", json=body)).status_code == 202
    text = (await service.http.get("/metrics")).text
    assert 'walkgraph_requests_refused_total{reason="concurrent_runs"} 1.0' in text


async def test_a_key_that_may_only_infer_sees_its_own_runs(service: Running) -> None:
    await service.deploy()
    one, two = await make(service, "one", "infer"), await make(service, "two", "infer")
    reader = await make(service, "reader", "read", "infer")
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITING}
    async with holder(service, one) as first, holder(service, two) as second, holder(service, reader) as third:
        mine = (await first.post("/api/v1/runs", json=body)).json()
        theirs = (await second.post("/api/v1/runs", json=body)).json()
        roots = (await service.http.post("/api/v1/runs", json=body)).json()
        assert (mine["caller"], roots["caller"]) == (one["id"], None)
        assert [row["id"] for row in (await first.get("/api/v1/runs")).json()] == [mine["id"]]
        assert len((await third.get("/api/v1/runs")).json()) == 3
        await service.services.runs._unsaved.join()
        assert [row["id"] for row in (await first.get("/api/v1/runs")).json()] == [mine["id"]]
        for other in (theirs["id"], roots["id"]):
            for path in ("", "/result", "/request", "/trace", "/why", f"/differences/{mine['id']}"):
                assert (await first.get(f"/api/v1/runs/{other}{path}")).status_code == 404, path
            assert (await first.get(f"/api/v1/runs/{mine['id']}/differences/{other}")).status_code == 404
            assert (await first.delete(f"/api/v1/runs/{other}")).status_code == 404
            assert (await first.post(f"/api/v1/runs/{other}/replay", json={})).status_code == 404
            assert (await first.post(f"/api/v1/runs/{other}/steer", json={"action": "pause"})).status_code == 404
            async with connect(
                service.app, f"/ws/v1/runs/{other}", token=False, protocols=(f"bearer.{one['secret']}",)
            ) as socket:
                assert (await socket.receive())["error"]["code"] == "not_found"
        assert (await third.get(f"/api/v1/runs/{theirs['id']}")).status_code == 200
        assert (await third.delete(f"/api/v1/runs/{theirs['id']}")).status_code == 404
        assert (await first.get(f"/api/v1/runs/{mine['id']}")).json()["caller"] == one["id"]
        assert (await first.delete(f"/api/v1/runs/{mine['id']}")).json() == {"state": "cancelling"}


async def test_revoking_ends_what_is_open(service: Running) -> None:
    await service.deploy()
    made = await make(service, "robot", "infer", "read")
    protocols = (f"bearer.{made['secret']}",)
    fleet = service.fleet.started[0]
    async with (
        connect(service.app, "/ws/v1/telemetry", token=False, protocols=protocols) as telemetry,
        connect(service.app, "/ws/v1/tasks/shapes/text_to_image", token=False, protocols=protocols) as task,
        holder(service, made) as client,
    ):
        await task.send(WAITING)
        assert (await task.receive())["event"] == "accepted"
        stream = asyncio.create_task(client.post(DRAW, json={**WAITING, "stream": True}))
        waiting = asyncio.create_task(client.post(DRAW, json=WAITING))
        for _ in range(3):
            await asyncio.wait_for(fleet.waiting.get(), 60)
        await service.http.delete(f"/api/v1/keys/{made['id']}")
        # An answer without an end: a server breaks the connection. This transport finds it wrong by an assert, which is
        # gone where Python is optimized.
        [ended] = await asyncio.wait_for(asyncio.gather(stream, return_exceptions=True), 60)
        if isinstance(ended, httpx.Response):
            assert not __debug__
            assert "event: done" not in ended.text
        else:
            assert isinstance(ended, AssertionError)
        assert (await asyncio.wait_for(waiting, 60)).status_code == 401
        await task.rest()
        await telemetry.rest()
        assert (task.close_code, telemetry.close_code) == (1008, 1008)
    while service.services.runs.unfinished:
        await asyncio.wait_for(service.services.runs.unfinished[0].ended(), 60)
    with pytest.raises(Refused) as refused:
        async with connect(service.app, "/ws/v1/telemetry", token=False, protocols=protocols):
            pass
    assert refused.value.status == 401


async def test_what_expires_counts_no_more(service: Running) -> None:
    clock = [time.time()]
    service.services.keys._now = lambda: clock[0]
    made = await make(service, "robot", "read", expires_in=60)
    async with holder(service, made) as client:
        assert (await client.get("/v1/limits")).status_code == 200
        clock[0] += 59.99
        async with connect(
            service.app, "/ws/v1/telemetry", token=False, protocols=(f"bearer.{made['secret']}",)
        ) as socket:
            await socket.rest()
            assert socket.close_code == 1008
        clock[0] += 0.02
        assert (await client.get("/v1/limits")).status_code == 401
    await make(service, "robot", "read")


async def test_runs_over_a_socket_count_as_requests(service: Running) -> None:
    await service.deploy("synthetic_states", "synthetic_states_two_ranks")
    made = await make(service, "robot", "infer", requests_per_minute=12)
    path = "/ws/v1/sessions/synthetic_states/remember?session=mine"
    async with connect(service.app, path, token=False, protocols=(f"bearer.{made['secret']}",)) as socket:
        assert (await socket.receive())["session"] == "mine"
        for _ in range(3):
            await socket.send({})
        errors = []
        ended = 0
        while ended + len(errors) < 3:
            told = await socket.receive()
            ended += told["event"] == "done"
            errors += [told["error"]["code"]] if told["event"] == "error" else []
    assert (ended, errors) == (2, ["rate_limited"])
    sessions = {run.session for run in service.services.runs._runs.values()}
    assert sessions == {f"{made['id']}:mine"}, "nobody's name reaches the session of another key"


async def test_a_session_of_a_key_is_nobody_elses(service: Running) -> None:
    await service.deploy("synthetic_states", "synthetic_states_two_ranks")
    task, path = "/v1/tasks/synthetic_states/remember", "/v1/sessions/synthetic_states"
    one, two = await make(service, "one", "infer"), await make(service, "two", "infer")
    boss = await make(service, "boss", "admin")

    async def seen(client: httpx.AsyncClient) -> list[str]:
        return [session["name"] for session in (await client.get(path)).json()["sessions"]]

    async with holder(service, one) as first, holder(service, two) as second, holder(service, boss) as third:
        for client in (first, second, service.http):
            assert (await client.post(task, json={"session": "robot"})).status_code == 200
        assert await seen(first) == await seen(second) == ["robot"]
        everybodys = sorted(["robot", f"{one['id']}:robot", f"{two['id']}:robot"])
        assert sorted(await seen(service.http)) == sorted(await seen(third)) == everybodys
        assert (await first.delete(f"{path}/{two['id']}:robot")).status_code == 404
        assert (await first.delete(f"{path}/robot")).status_code == 202
        assert (await first.delete(f"{path}/robot")).status_code == 404
        assert sorted(await seen(service.http)) == sorted(["robot", f"{two['id']}:robot"])
        assert (await third.delete(f"{path}/{two['id']}:robot")).status_code == 202
        assert await seen(service.http) == ["robot"]


@pytest.mark.parametrize("shared", ["key", "deployment"])
async def test_each_key_owns_its_runs_and_a_setting_lets_them_share_pages(settings: Settings, shared: str) -> None:
    chosen = settings.model_copy(update={"shared_pages": shared})
    async with serving(chosen, FakeFleet()) as service:
        await service.deploy("synthetic_states", "synthetic_states_two_ranks")
        one, two = await make(service, "one", "infer"), await make(service, "two", "infer")
        salts: list[str] = []
        async with holder(service, one) as first, holder(service, two) as second:
            for client in (first, second, service.http):
                answer = await client.post("/v1/tasks/synthetic_states/remember", json={})
                salts.append(service.services.runs._runs[answer.json()["run"]].salt)
        assert salts == [one["id"], two["id"], ""]
        assert service.fleet.started[0].spec.shared_pages is (shared == "deployment")


async def test_the_last_use_is_written_behind(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as service:
        made = await make(service, "robot", "read")
        async with holder(service, made) as client:
            await client.get("/v1/limits")
        rows = await service.services.store.read(stored.list_keys)
        assert rows[0].used_at is None
        assert (await service.http.get("/api/v1/keys")).json()[0]["used_at"] is not None
    async with serving(settings, FakeFleet()) as service:
        assert (await service.http.get("/api/v1/keys")).json()[0]["used_at"] == pytest.approx(time.time(), abs=60)
        async with holder(service, made) as client:
            assert (await client.get("/v1/limits")).status_code == 200, "it outlives the service"


async def test_a_request_asks_the_store_nothing(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await make(service, "robot", "infer", requests_per_minute=1000, concurrent=5)

    def asked(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(service.services.store, "read_now", asked)
    monkeypatch.setattr(service.services.store, "write_now", asked)
    async with holder(service, made) as client:
        assert (await client.get("/v1/limits")).status_code == 200


async def test_the_token_can_have_a_rate_too(settings: Settings) -> None:
    limited = settings.model_copy(update={"token_requests_per_minute": 12, "token_concurrent_runs": 1})
    async with serving(limited, FakeFleet()) as service:
        statuses = [(await service.http.get("/v1/limits")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert (await service.http.get("/health/live")).status_code == 200
        assert service.services.admission.token.meter.concurrent == 1


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x"}, {"name": "", "scopes": ["infer"]}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["all"]},
        {"name": "x", "scopes": ["infer"], "requests_per_minute": 0}, {"name": "x\n", "scopes": ["infer"]},
        {"name": "x", "scopes": ["infer"], "concurrent": 10**9}, {"name": "x", "scopes": ["infer"], "expires_in": -1},
        {"name": "x", "scopes": ["infer"], "secret": "mine"},
    ],
)  # fmt: skip
async def test_bad_keys_are_refused(service: Running, body: dict[str, Any]) -> None:
    assert (await service.http.post("/api/v1/keys", json=body)).status_code == 422


def test_the_form_of_a_key_is_what_is_made() -> None:
    assert keys._FORM.fullmatch(f"wg_0123abcd_{'a-Z_9' * 8}abc") is not None
    assert not TOKEN.startswith(keys.PREFIX)


@pytest.mark.safety("S4")
async def test_guesses_at_keys_do_the_same_work(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matter whether the id of a key is known, how much of the secret is right, and however many keys there are: one
    hash and one comparison of whole digests, none of the texts of keys."""
    known = [await make(service, f"key{number}", "infer") for number in range(5)]
    right = known[2]["secret"]
    guesses = {
        "right": right,
        "its last letter wrong": right[:-1] + ("A" if right[-1] != "A" else "B"),
        "its first letter wrong": right[:12] + ("A" if right[12] != "A" else "B") + right[13:],
        "no such id": f"wg_{'0' * 8}_{right[12:]}",
        "another key's id": known[3]["secret"][:12] + right[12:],
    }
    work: dict[str, list[tuple[str, int, int]]] = {}
    compare, sha256 = hmac.compare_digest, hashlib.sha256
    for name, guess in guesses.items():
        done = work.setdefault(name, [])
        with monkeypatch.context() as patched:
            patched.setattr(
                keys.hmac,
                "compare_digest",
                lambda a, b, to=done: to.append(("compare", len(a), len(b))) or compare(a, b),
            )
            patched.setattr(
                keys.hashlib, "sha256", lambda data, to=done: to.append(("hash", len(data), 0)) or sha256(data)
            )
            found = service.services.keys.find(guess)
        assert (found is not None) == (name == "right"), name
    assert work["right"] == [("hash", len(right), 0), ("compare", 32, 32)]
    assert all(done == work["right"] for done in work.values()), work


async def test_no_request_is_compared_with_keys_one_after_the_other(service: Running) -> None:
    """The lines that run are as many with a hundred keys as with one."""
    right = (await make(service, "one", "infer"))["secret"]
    guess = right[:-1] + ("A" if right[-1] != "A" else "B")
    one = lines(lambda: service.services.keys.find(guess))
    for number in range(100):
        await make(service, f"more{number}", "infer")
    assert lines(lambda: service.services.keys.find(guess)) == one


def lines(act: Callable[[], object]) -> int:
    count = 0

    def on(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return on

    before = sys.gettrace()
    sys.settrace(on)
    try:
        act()
    finally:
        sys.settrace(before)
    return count
