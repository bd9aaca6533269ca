"""Some calls are retried, after a while; others are not."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.unit.client.service import Answer, Memory, either
from walkgraph.client import ClientError, Lost, ProblemError, RunError, Unreachable
from walkgraph.client.connection.retrying import MOST_SECONDS, Attempts

KINDS = ("blocking", "awaiting")
AT_ONCE = {"Retry-After": "0"}


def busy(status: int = 503, headers: dict[str, str] | None = None, **content: Any) -> httpx.Response:
    return httpx.Response(status, json={"code": "overloaded", "detail": "not now", **content}, headers=headers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [busy(503, AT_ONCE), busy(429, AT_ONCE), httpx.RemoteProtocolError("gone")], ids=str)
def test_a_run_is_tried_twice_under_one_key(kind: str, first: Answer) -> None:
    memory = Memory([first, httpx.Response(200, json={"run": "r"})])
    assert either(kind, memory, "run", "d", "t", {"inputs": {}}) == {"run": "r"}
    keys = [request.headers["Idempotency-Key"] for request in memory.asked]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    either(kind, memory, "run", "d", "t", {"inputs": {}})
    assert memory.asked[-1].headers["Idempotency-Key"] != keys[0], "another call is another run"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "answer",
    [
        busy(422, AT_ONCE),
        busy(500, AT_ONCE),
        busy(503, {**AT_ONCE, "x-should-retry": "false"}),
        busy(503, AT_ONCE, error={"code": "worker_lost", "message": "m"}),
        busy(503, {"Retry-After": "61"}),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
    ],
    ids=str,
)
def test_what_another_try_would_not_help_is_told_at_once(kind: str, answer: Answer) -> None:
    memory = Memory([answer])
    with pytest.raises(ClientError):
        either(kind, memory, "run", "d", "t", {})
    assert len(memory.asked) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_not_be_repeated_is_sent_once(kind: str) -> None:
    memory = Memory([busy(503, AT_ONCE)])
    with pytest.raises(ProblemError):
        either(kind, memory, "tap", "d", "walk", "use.port")
    assert len(memory.asked) == 1
    assert "Idempotency-Key" not in memory.asked[0].headers


def test_the_second_refusal_is_the_last_and_says_all() -> None:
    faults = [{"pointer": "/params/steps", "code": "bad_value", "message": "too many"}]
    memory = Memory([busy(503, {**AT_ONCE, "x-request-id": "abc"}, errors=faults, retryable=True)])
    with pytest.raises(ProblemError, match="not now") as found:
        either("blocking", memory, "deployments")
    assert len(memory.asked) == 2
    assert (found.value.status, found.value.code, found.value.request_id) == (503, "overloaded", "abc")
    assert found.value.retryable
    assert [(fault.pointer, fault.message) for fault in found.value.faults] == [("/params/steps", "too many")]


def test_pauses_grow_and_the_service_has_its_say() -> None:
    attempts = Attempts(4, repeatable=True)
    pauses = [attempts.pause(Lost("gone")) for _ in range(3)]
    assert [0.15 < pause / 2**k < 0.35 for k, pause in enumerate(pauses)] == [True] * 3
    with pytest.raises(Lost):
        attempts.pause(Lost("gone"))
    said = ProblemError(429, {}, {"retry-after": "7.5"})
    assert Attempts(2, repeatable=True).pause(said) == 7.5
    with pytest.raises(ProblemError):
        Attempts(2, repeatable=True).pause(ProblemError(429, {}, {"retry-after": str(MOST_SECONDS + 1)}))
    with pytest.raises(ProblemError):
        Attempts(2, repeatable=False).pause(said)


def test_a_date_says_how_long_to_wait_too() -> None:
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    found = ProblemError(503, {}, {"retry-after": later}).retry_after
    assert found is not None
    assert 25 < found <= 30
    assert ProblemError(503, {}, {"retry-after": "soon"}).retry_after is None


@pytest.mark.parametrize("kind", KINDS)
def test_failures_have_their_kinds(kind: str) -> None:
    failed = busy(500, error={"code": "node_error", "message": "m", "node": "llm"})
    with pytest.raises(RunError) as run:
        either(kind, Memory([failed]), "run", "d", "t", {})
    assert run.value.node == "llm"
    with pytest.raises(Unreachable, match="walkgraph up"):
        either(kind, Memory([httpx.ConnectError("refused")]), "deployments")
    with pytest.raises(Lost):
        either(kind, Memory([httpx.ReadError("gone")]), "undeploy", "d")
    with pytest.raises(ClientError, match="not one of a Walkgraph service"):
        either(kind, Memory([httpx.Response(200, text="<html>")]), "deployments")
    with pytest.raises(ProblemError, match="refused the request"):
        either(kind, Memory([httpx.Response(502, text="<html>")]), "deployments")


def test_names_are_quoted() -> None:
    memory = Memory([httpx.Response(200, json={})])
    either("blocking", memory, "deployment", "a/../b?c")
    assert memory.asked[0].url.raw_path == b"/api/v1/deployments/a%2F..%2Fb%3Fc"


def test_a_closed_client_waits_for_nothing() -> None:
    memory = Memory([busy(503, {"Retry-After": "50"})])

    from tests.unit.client.service import blocking

    client = blocking(memory)
    client.close()
    with pytest.raises(RuntimeError):
        client.deployments()
