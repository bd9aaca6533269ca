"""The request of a run is kept with it, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.service.conftest import Running
from walkgraph.service.http import limits
from walkgraph.service.runs.kept_requests import remembered

LARGE = "x" * (limits.ASKED_VALUE_BYTES + 1)


def test_a_request_is_remembered_as_it_was_sent() -> None:
    body = {"inputs": {"prompt": ["a", {"type": "text", "text": "b"}], "state": [[1.0, 2], [3]]}, "params": {"seed": 7}}
    found = remembered(body)
    assert (found.body, found.left_out) == (body, ())
    assert found.bytes > 0


@pytest.mark.parametrize(
    ("inputs", "at"),
    [
        ({"image": LARGE}, "/inputs/image"),
        ({"image": {"type": "image", "data": LARGE}}, "/inputs/image/data"),
        ({"parts": [{"type": "text", "text": "a"}, {"type": "image", "data": LARGE}]}, "/inputs/parts/1/data"),
        ({"state": [[1.5] * (limits.ASKED_VALUE_BYTES // 4 + 1)]}, "/inputs/state"),
        ({"a/b~": LARGE}, "/inputs/a~1b~0"),
    ],
)
def test_what_is_large_is_left_out_with_its_size(inputs: dict[str, Any], at: str) -> None:
    found = remembered({"inputs": inputs, "params": {"seed": 7}})
    ((pointer, size),) = found.left_out
    assert pointer == at
    assert size > limits.ASKED_VALUE_BYTES
    assert found.body is not None
    assert found.body["params"] == {"seed": 7}
    assert found.bytes < 1000


def test_a_request_of_many_values_is_left_out_whole() -> None:
    text = "x" * (limits.ASKED_VALUE_BYTES - 64)
    assert remembered({"inputs": {"prompt": [text] * 4}}).body is not None
    found = remembered({"inputs": {"prompt": [text] * 5}})
    assert found.body is None
    assert found.bytes == 0
    ((pointer, size),) = found.left_out
    assert pointer == ""
    assert size > 5 * len(text)


async def test_requests_of_all_runs_are_bounded_the_oldest_go_first(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.deploy()
    runs: list[str] = []

    async def ask(characters: int) -> None:
        request = {"inputs": {"prompt": "x" * characters}, "params": {"seed": 13 if runs else 7}}
        body = {"deployment": "shapes", "task": "text_to_image", "request": request}
        runs.append((await service.http.post("/api/v1/runs", json=body)).json()["id"])

    monkeypatch.setattr(limits, "KEPT_ASKED_BYTES", 10_000)
    for characters in (4000, 4000, 100, 4000):
        await ask(characters)
    asked = [service.services.runs.live(run).asked for run in runs]
    assert [found is not None and found.body is not None for found in asked] == [False, True, True, True]
    assert sum(found.bytes for found in asked if found) <= 10_000
    shown = (await service.http.get(f"/api/v1/runs/{runs[0]}/request")).json()
    assert shown["request"] is None
    assert shown["left_out"][0]["bytes"] > 4000
    answer = await service.http.post(f"/api/v1/runs/{runs[0]}/replay", json={})
    assert (answer.status_code, "make room" in answer.json()["detail"]) == (409, True)
    # The one that has just come stays, even if it alone is too much.
    await ask(20_000)
    asked = [service.services.runs.live(run).asked for run in runs]
    assert [found is not None and found.body is not None for found in asked] == [False] * 4 + [True]


async def test_a_run_tells_what_was_asked(service: Running) -> None:
    await service.deploy()
    request = {"inputs": {"prompt": "a red circle"}, "params": {"steps": 9}}
    body = {"deployment": "shapes", "task": "text_to_image", "request": request}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    found = (await service.http.get(f"/api/v1/runs/{run}/request")).json()
    assert found == {"run": run, **body, "left_out": []}
    answer = (await service.http.post("/v1/tasks/shapes/text_to_image", json=request)).json()
    assert (await service.http.get(f"/api/v1/runs/{answer['run']}/request")).json()["request"] == request
    assert (await service.http.get(f"/api/v1/runs/{'0' * 32}/request")).status_code == 404
