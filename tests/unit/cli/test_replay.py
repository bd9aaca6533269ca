"""`walkgraph replay`, and runs that are recorded or held, against a service that answers from memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_service import PICTURE, PNG, TIMES, FakeService, output, sse
from walkgraph.cli.runs import comparing
from walkgraph.client import Client

FIRST, AGAIN, THIRD = "a" * 32, "b" * 32, "c" * 32
DONE = ("done", {"run": AGAIN, "seconds": 0.5, "queued": 0.01, "times": TIMES})
FAILED = {"code": "numeric_error", "message": "`llm` is not finite", "node": "llm", "retryable": False}
NUMBERS = {"count": 4, "nan": 0, "infinite": 0, "low": -1.0, "high": 2.0, "mean": 0.5, "std": 0.25, "histogram": [],
           "every": 1}  # fmt: skip
ROW = {"walk": "image_gen", "source": "llm.velocity", "step": 1, "iteration": [2], "rank_a": 0, "rank_b": 1,
       "shape_a": [1, 4], "shape_b": [1, 4], "dtype_a": "float32", "dtype_b": "float32", "statistics_a": NUMBERS,
       "statistics_b": {**NUMBERS, "mean": 0.75}, "max_abs": 0.125, "max_rel": 0.01, "at_a": 0.0,
       "at_b": 0.0}  # fmt: skip
SAME: dict[str, Any] = {
    "a": FIRST, "b": AGAIN, "recorded": True, "compared": 12, "equal": 12, "missing": {"a": 0, "b": 0}, "rows": [],
    "outputs": [{"name": "image", "index": 0, "equal": True, "max_abs": 0.0}], "first": None,
}  # fmt: skip
Call = Callable[..., int]
Output = pytest.CaptureFixture[str]


def told(found: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**copy.deepcopy(found), **changed}


OTHER = told(
    SAME,
    equal=0,
    rows=[ROW] * 12,
    first=ROW,
    outputs=[{"name": "image", "index": 0, "equal": False, "max_abs": None}],
    missing={"a": 0, "b": 3},
)


@pytest.fixture(autouse=True)
def _answers(service: FakeService) -> None:
    """The first replay is AGAIN, the next one THIRD."""
    started = iter((AGAIN, THIRD))

    def replay(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        return httpx.Response(
            202, json={"id": next(started), "deployment": asked["deployment"] or "shapes", "task": "draw"}
        )

    events = sse(("accepted", {"run": AGAIN, "seed": 7}), output("image", 0, PICTURE), DONE)
    service.answers |= {
        ("GET", "/api/v1/runs"): httpx.Response(200, json=[{"id": FIRST}]),
        ("POST", f"/api/v1/runs/{FIRST}/replay"): replay,
        ("GET", f"/api/v1/runs/{AGAIN}/events"): events,
        ("GET", f"/api/v1/runs/{THIRD}/events"): sse(DONE),
        ("GET", f"/api/v1/runs/{FIRST}/differences/{AGAIN}"): httpx.Response(200, json=SAME),
    }


def sent(service: FakeService) -> list[Any]:
    return [body for method, _, body in service.asked if method == "POST"]


def test_a_run_is_replayed_and_gives_what_it_gave(
    service: FakeService, walkgraph: Call, capsys: Output, tmp_path: Path
) -> None:
    assert walkgraph("replay", "last", "-o", "again.png") == 0
    assert sent(service) == [{"deployment": None, "record": False}]
    assert (tmp_path / "again.png").read_bytes() == PNG
    assert capsys.readouterr().out == "wrote again.png\n"
    assert ("GET", "/v1/tasks/shapes/draw", None) in service.asked


def test_a_replay_that_is_the_same_says_so(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("replay", FIRST[:6], "--compare", "--on", "other") == 0
    shown = capsys.readouterr()
    assert shown.out == "identical: 12 values, 1 output, all equal\n"
    assert f"replayed on other as {AGAIN}" in shown.err
    assert sent(service) == [{"deployment": "other", "record": True}]


def test_a_replay_that_differs_names_the_first_value_and_exits_with_four(
    service: FakeService, walkgraph: Call, capsys: Output
) -> None:
    service.answers["GET", f"/api/v1/runs/{FIRST}/differences/{AGAIN}"] = httpx.Response(200, json=OTHER)
    assert walkgraph("replay", FIRST, "--compare") == 4
    shown = capsys.readouterr().out
    assert "different: 12 of 12 values, 1 output, not equal: `image` 0" in shown
    assert "3 values of the second run are missing" in shown
    first = "first difference: `llm.velocity` in `image_gen`, step 1, iteration 2, 0.125 apart at most, relatively 0.01"
    assert first in shown
    assert "b: rank 1, 1 x 4 float32, -1 to 2, mean 0.75, deviation 0.25" in shown
    assert shown.count("image_gen llm.velocity") == comparing.ROWS
    assert "and 2 more" in shown


def test_a_comparison_is_told_as_json(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    service.answers["GET", f"/api/v1/runs/{FIRST}/differences/{AGAIN}"] = httpx.Response(200, json=OTHER)
    assert walkgraph("replay", FIRST, "--compare", "--json") == 4
    assert json.loads(capsys.readouterr().out) == OTHER


def test_a_run_that_was_not_recorded_is_replayed_where_it_was_too(
    service: FakeService, walkgraph: Call, capsys: Output
) -> None:
    problem = {"code": "conflict", "detail": "not recorded", "errors": []}
    service.answers |= {
        ("GET", f"/api/v1/runs/{FIRST}/differences/{AGAIN}"): httpx.Response(409, json=problem),
        ("GET", f"/api/v1/runs/{THIRD}/differences/{AGAIN}"): httpx.Response(200, json=SAME),
    }
    assert walkgraph("replay", FIRST, "--compare", "--on", "other") == 0
    assert sent(service) == [{"deployment": "other", "record": True}, {"deployment": None, "record": True}]
    shown = capsys.readouterr()
    assert "identical" in shown.out
    assert "was not recorded" in shown.err


def test_what_can_not_be_replayed_or_compared_exits_with_one(
    service: FakeService, walkgraph: Call, capsys: Output
) -> None:
    service.answers["GET", f"/api/v1/runs/{AGAIN}/events"] = sse(("error", {**DONE[1], "error": FAILED}))
    assert walkgraph("replay", FIRST, "--compare") == 1
    assert "`llm` is not finite (node `llm`)" in capsys.readouterr().err
    problem = {"code": "conflict", "detail": "the run's request was too large", "errors": []}
    service.answers["POST", f"/api/v1/runs/{FIRST}/replay"] = httpx.Response(409, json=problem)
    assert walkgraph("replay", FIRST) == 1
    assert "was too large" in capsys.readouterr().err
    assert walkgraph("replay", FIRST, "--compare", "-o", "x.png") == 2


def test_a_replay_that_nobody_waits_for_any_more_is_cancelled(
    service: FakeService, walkgraph: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_client: Client, _run: str) -> Any:
        raise KeyboardInterrupt

    service.answers["DELETE", f"/api/v1/runs/{AGAIN}"] = httpx.Response(202, json={"state": "cancelling"})
    monkeypatch.setattr(Client, "follow_run", interrupted)
    assert walkgraph("replay", FIRST) == 130
    assert service.asked[-1][:2] == ("DELETE", f"/api/v1/runs/{AGAIN}")


@pytest.mark.parametrize(
    ("changed", "words", "differs"),
    [
        ({"recorded": False, "compared": 0, "equal": 0}, "compared by outputs, 1 output, all equal", False),
        ({"outputs": []}, "identical: 12 values, the outputs of both runs are no longer kept", False),
        ({"missing": {"a": 2, "b": 0}}, "2 values of the first run are missing", True),
        ({"first": {**ROW, "shape_b": [2, 2]}, "rows": [ROW]}, "shape or type differs", True),
        ({"first": {**ROW, "max_abs": None}, "rows": [ROW]}, "not comparable as numbers", True),
        ({"first": {**ROW, "max_abs": 0.0}, "rows": [ROW]}, "equal at the sampled positions", True),
        ({"first": {**ROW, "statistics_b": None}, "rows": [ROW]}, "b: rank 1, 1 x 4 float32", True),
    ],
)
def test_verdicts_are_said_in_words(changed: dict[str, Any], words: str, differs: bool) -> None:
    found = told(SAME, **changed)
    assert words in "\n".join(comparing.verdict(found))
    assert comparing.differ(found) is differs


def test_a_run_is_recorded_and_held_where_it_is_asked(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("run", "shapes", "draw", "--record", "--prompt", "x", "--hold") == 0
    assert sent(service)[-1] == {
        "inputs": {"prompt": ["x"]},
        "params": {},
        "record": True,
        "hold": True,
        "stream": True,
    }
    shown = capsys.readouterr().err
    assert "run r is held before its first call" in shown
    assert "walkgraph replay r --compare" in shown
    assert walkgraph("run", "shapes", "draw", "--prompt", "x") == 0
    assert "record" not in sent(service)[-1]
