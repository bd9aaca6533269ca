"""`walkgraph keys` and `walkgraph audit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.fake_service import FakeService
from walkgraph.cli.show.spans import moment, seconds
from walkgraph.errors import InvalidInput

Call = Callable[..., int]
Output = pytest.CaptureFixture[str]
SECRET = "wg_0123abcd_" + "s" * 43
KEY: dict[str, Any] = {
    "id": "0123abcd", "name": "robot", "scopes": ["infer"], "requests_per_minute": 600, "concurrent": None,
    "created_at": 1.0, "expires_at": None, "revoked_at": None, "used_at": None, "valid": True, "running": 2,
}  # fmt: skip


def entry(id_: int) -> dict[str, Any]:
    return {
        "id": id_, "at": 1e9 + id_, "caller": "0123abcd", "caller_name": "robot", "address": "10.0.0.1",
        "action": "graph.put", "target": f"g{id_}", "details": {"etag": "e", "over": None}, "outcome": "done",
        "reason": "",
    }  # fmt: skip


def test_a_key_is_printed_alone(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    service.answers["POST", "/api/v1/keys"] = httpx.Response(201, json={**KEY, "secret": SECRET})
    words = ("--scope", "infer", "--scope", "read", "--requests-per-minute", "600", "--concurrent", "8")
    assert walkgraph("keys", "add", "robot", *words, "--expires", "30d") == 0
    told = capsys.readouterr()
    assert told.out == f"{SECRET}\n"
    assert SECRET not in told.err
    assert service.asked[-1][2] == {
        "name": "robot",
        "scopes": ["infer", "read"],
        "requests_per_minute": 600,
        "concurrent": 8,
        "expires_in": 2_592_000.0,
    }
    assert walkgraph("keys", "add", "robot", "--scope", "infer", "--json") == 0
    assert json.loads(capsys.readouterr().out)["secret"] == SECRET


def test_wrong_words_are_refused(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("keys", "add", "robot") == 2
    assert walkgraph("keys", "add", "robot", "--scope", "all") == 2
    assert walkgraph("keys", "add", "robot", "--scope", "infer", "--expires", "soon") == 1
    assert "`soon` is not a duration" in capsys.readouterr().err
    assert service.asked == []


def test_keys_are_listed(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    former = {**KEY, "id": "ffffffff", "valid": False, "revoked_at": 5.0}
    service.answers["GET", "/api/v1/keys"] = httpx.Response(200, json=[KEY, former])
    assert walkgraph("keys", "list", "--former") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["KEY", "NAME", "SCOPES", "A", "MINUTE", "AT", "ONCE", "RUNNING", "LAST", "USED", "ENDS"]
    assert lines[1].split() == ["0123abcd", "robot", "infer", "600", "-", "2", "never", "never"]
    assert "revoked 1970" in lines[2]
    service.answers["GET", "/api/v1/keys"] = httpx.Response(200, json=[])
    assert walkgraph("keys", "list") == 0
    assert "walkgraph keys add" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["robot", "0123abcd"])
def test_a_key_is_revoked_by_name_or_id(service: FakeService, walkgraph: Call, capsys: Output, given: str) -> None:
    service.answers["GET", "/api/v1/keys"] = httpx.Response(200, json=[KEY])
    service.answers["DELETE", "/api/v1/keys/0123abcd"] = httpx.Response(200, json={**KEY, "revoked_at": 5.0})
    assert walkgraph("keys", "revoke", given) == 0
    assert "is revoked" in capsys.readouterr().out


def test_a_key_is_never_named_by_itself(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    service.answers["GET", "/api/v1/keys"] = httpx.Response(200, json=[KEY])
    assert walkgraph("keys", "revoke", "nobody") == 1
    assert walkgraph("keys", "revoke", SECRET) == 1
    assert SECRET not in capsys.readouterr().err
    assert [method for method, _, _ in service.asked] == ["GET"]


def test_the_log_is_read_in_pages_newest_last(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    rows = [entry(number) for number in range(2500, 0, -1)]
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        params = dict(request.url.params)
        asked.append(params)
        older = [row for row in rows if row["id"] < int(params.get("before", 10**9))]
        return httpx.Response(200, json=older[: int(params["limit"])])

    service.answers["GET", "/api/v1/audit"] = answer
    assert walkgraph("audit", "--json", "--limit", "2200", "--action", "graph", "--since", "2w") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in told] == list(range(301, 2501))
    assert [params["limit"] for params in asked] == ["1000", "1000", "200"]
    assert {params["action"] for params in asked} == {"graph"}
    assert walkgraph("audit", "--limit", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[2:] == ["0123abcd", "robot", "10.0.0.1", "graph.put", "g2500", "done", "etag=e"]


def test_spans_are_read_and_moments_written() -> None:
    assert [seconds(text) for text in ("90s", "1.5m", "12h", "30d", "2w")] == [90, 90, 43_200, 2_592_000, 1_209_600]
    for text in ("", "90", "d", "-1d", "1y", "1e3s", "1 d"):
        with pytest.raises(InvalidInput):
            seconds(text)
    assert moment(None) == "-"
    assert len(moment(1e9)) == 19
