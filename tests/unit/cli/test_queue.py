"""`walkgraph queue`, against a service that answers from memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.fake_service import FakeService
from tests.support.yardstick import patience
from walkgraph.cli import completing
from walkgraph.settings import Settings, only_one, prepare_home

FIRST, SECOND, THIRD = "a" * 32, "b" * 32, "c" * 32
Call = Callable[..., int]
Output = pytest.CaptureFixture[str]


def queued(run: str, place: int | None, **changed: Any) -> dict[str, Any]:
    head = {"run": run, "task": "draw", "created_at": 1_700_000_000.0, "place": place}
    state = "running" if place is None else "waiting"
    return {**head, "state": state, "said": "a red circle", "up": False, "down": False} | changed


def queue(*runs: dict[str, Any], waiting: int = 3) -> dict[str, Any]:
    return {"deployment": "shapes", "waiting": waiting, "runs": list(runs)}


@pytest.fixture(autouse=True)
def _answers(service: FakeService) -> None:
    listed = queue(queued(FIRST, None), queued(SECOND, 1), queued(THIRD, 3, said="a \x1b[31mblue\nsquare"))
    service.answers["GET", "/api/v1/queue"] = httpx.Response(200, json=listed)
    moved = queue(queued(FIRST, None), queued(THIRD, 1), queued(SECOND, 3))
    service.answers["POST", f"/api/v1/queue/{THIRD}/move"] = httpx.Response(200, json=moved)
    service.answers["DELETE", f"/api/v1/runs/{SECOND}"] = httpx.Response(202, json={})
    service.answers["DELETE", "/api/v1/queue"] = httpx.Response(202, json={"cancelling": 2})


def test_the_queue_is_listed_in_its_order(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("queue", "list", "shapes") == 0
    told = capsys.readouterr()
    head, *rows = told.out.splitlines()
    assert head.split() == ["DEPLOYMENT", "PLACE", "RUN", "TASK", "STATE", "CAME", "ASKED"]
    assert [row.split()[1:3] for row in rows] == [["-", FIRST], ["1", SECOND], ["3", THIRD]]
    assert "\x1b" not in told.out
    assert "1 more of other callers waits at shapes" in told.err


def test_all_deployments_are_asked(walkgraph: Call, service: FakeService, capsys: Output) -> None:
    assert walkgraph("queue", "list", "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in found["runs"]] == [FIRST, SECOND, THIRD]
    assert [path for _, path, _ in service.asked] == ["/api/v1/deployments", "/api/v1/queue"]


def test_nobody_waits(walkgraph: Call, service: FakeService, capsys: Output) -> None:
    service.answers["GET", "/api/v1/queue"] = httpx.Response(200, json=queue(waiting=0))
    assert walkgraph("queue", "list") == 0
    assert capsys.readouterr().out == "no run of yours waits or goes on\n"


def test_a_run_moves(walkgraph: Call, service: FakeService, capsys: Output) -> None:
    assert walkgraph("queue", "move", THIRD, "up") == 0
    assert service.asked[-1] == ("POST", f"/api/v1/queue/{THIRD}/move", {"direction": "up"})
    assert [row.split()[2] for row in capsys.readouterr().out.splitlines()[1:]] == [FIRST, THIRD, SECOND]
    assert walkgraph("queue", "move", THIRD, "up", "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][1]["run"] == THIRD
    assert walkgraph("queue", "move", THIRD, "sideways") == 2


def test_a_move_that_can_not_be_says_why(walkgraph: Call, service: FakeService, capsys: Output) -> None:
    problem = {"code": "conflict", "detail": "no waiting run of yours before it can exchange places", "errors": []}
    service.answers["POST", f"/api/v1/queue/{SECOND}/move"] = httpx.Response(409, json=problem)
    assert walkgraph("queue", "move", SECOND, "up") == 1
    assert "can exchange places" in capsys.readouterr().err


def test_one_run_is_cancelled_or_all(walkgraph: Call, service: FakeService, capsys: Output) -> None:
    assert walkgraph("queue", "cancel", SECOND) == 0
    assert capsys.readouterr().out == "cancelling 1 run\n"
    assert walkgraph("queue", "cancel", "--all", "shapes") == 0
    assert capsys.readouterr().out == "cancelling 2 runs\n"
    assert [(method, path) for method, path, _ in service.asked] == [
        ("DELETE", f"/api/v1/runs/{SECOND}"),
        ("DELETE", "/api/v1/queue"),
    ]
    assert walkgraph("queue", "cancel", "--all", "shapes", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"cancelling": 2}


@pytest.mark.parametrize("words", [(), (SECOND, "--all", "shapes")])
def test_what_to_cancel_must_be_said(walkgraph: Call, service: FakeService, words: tuple[str, ...]) -> None:
    assert walkgraph("queue", "cancel", *words) == 2
    assert service.asked == []


@pytest.mark.usefixtures("service")
def test_ids_of_the_queue_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "PATIENCE", patience(completing.PATIENCE))
    settings = Settings()
    prepare_home(settings)
    with only_one(settings):
        assert completing.queued_runs("b") == [SECOND]
        assert completing.queued_runs("") == [FIRST, SECOND, THIRD]
