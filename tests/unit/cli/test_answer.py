"""`walkgraph answer`, and runs that wait for a person, against a service that answers from memory."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_service import PICTURE, PNG, TIMES, FakeService, output, sse

RUN = "a" * 32
Call = Callable[..., int]
Output = pytest.CaptureFixture[str]


def asked(**changed: Any) -> dict[str, Any]:
    return {
        "run": RUN,
        "number": 1,
        "label": "Is it red?",
        "goes_on": False,
        "asked_at": time.time(),
        "expires_at": time.time() + 3600,
        "shown": ["draw.picture", "draw.score"],
        "values": {"draw.picture": dict(PICTURE), "draw.score": {"type": "number", "value": 0.5}, "draw.none": None},
    } | changed


@pytest.fixture(autouse=True)
def _answers(service: FakeService) -> None:
    service.answers["GET", f"/api/v1/runs/{RUN}/approval"] = httpx.Response(200, json=asked())
    service.answers["POST", f"/api/v1/runs/{RUN}/approval"] = httpx.Response(202, json={"id": RUN, "state": "running"})


def test_the_question_is_shown_with_its_values(
    walkgraph: Call, service: FakeService, tmp_path: Path, capsys: Output
) -> None:
    assert walkgraph("answer", RUN, "-o", "shown") == 0
    shown = capsys.readouterr()
    assert "Is it red?" in shown.err
    assert f"walkgraph answer {RUN} --approve" in shown.err
    assert "draw.score: 0.5" in shown.out
    assert (tmp_path / "shown" / "draw.picture.png").read_bytes() == PNG
    assert not [call for call in service.asked if call[0] == "POST"]


def test_the_question_is_data_where_it_is_asked_for(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("answer", RUN, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["label"] == "Is it red?"
    assert base64.b64decode(found["values"]["draw.picture"]["data"]) == PNG


@pytest.mark.parametrize(("word", "approved"), [("--approve", True), ("--refuse", False)])
def test_an_answer_counts_for_the_question_that_was_read(
    walkgraph: Call, service: FakeService, capsys: Output, word: str, approved: bool
) -> None:
    assert walkgraph("answer", RUN, word, "--note", "more red") == 0
    method, path, body = service.asked[-1]
    assert (method, path) == ("POST", f"/api/v1/runs/{RUN}/approval")
    assert body == {"approved": approved, "note": "more red", "number": 1}
    assert f"{RUN} is running" in capsys.readouterr().out


def test_a_run_that_waits_tells_how_to_answer_and_goes_on(
    walkgraph: Call, service: FakeService, capsys: Output
) -> None:
    service.answers["POST", "/v1/tasks/shapes/draw"] = sse(
        ("accepted", {"run": RUN, "seed": 7}),
        ("approval", asked(label="")),
        ("decision", {"run": RUN, "number": 1, "approved": True, "note": ""}),
        output("text", 0, {"type": "text", "text": "red"}),
        ("done", {"run": RUN, "seconds": 0.5, "queued": 0.0, "times": TIMES}),
    )
    assert walkgraph("run", "shapes", "draw", "--prompt", "x") == 0
    shown = capsys.readouterr()
    assert "a person must approve this run" in shown.err
    assert f"walkgraph answer {RUN} --approve" in shown.err
    assert "approved\n" in shown.err
    assert "red" in shown.out
