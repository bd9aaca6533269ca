"""Replays of a run, and differences between two runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from walkgraph.ids import Rank, RunId
from walkgraph.service.http import limits
from walkgraph.telemetry.events import Sample, Statistics
from walkgraph.wire import messages as m

PROMPT = {"inputs": {"prompt": "a red circle"}, "params": {"steps": 4}, "outputs": ["image"]}


@pytest.fixture
async def deployed(service: Running) -> Running:
    await service.deploy()
    return service


async def begun(running: Running, **more: Any) -> str:
    body = {"deployment": "shapes", "task": "text_to_image", "request": {**PROMPT, **more}}
    answer = await running.http.post("/api/v1/runs", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


async def finished(running: Running, **more: Any) -> str:
    run = await begun(running, **more)
    await running.services.runs.live(run).ended()
    return run


def submits(running: Running) -> list[m.Submit]:
    return [sent for sent in running.fleet.started[0].sent if isinstance(sent, m.Submit)]


# ── replay ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_replay_asks_the_same_with_the_same_seed(deployed: Running) -> None:
    run = await finished(deployed, stream=True, hold=True, priority=3)
    answer = await deployed.http.post(f"/api/v1/runs/{run}/replay", json={})
    assert answer.status_code == 202, answer.text
    replayed = answer.json()
    assert (replayed["task"], replayed["deployment"], replayed["params"]["seed"]) == ("text_to_image", "shapes", 7)
    first, second = submits(deployed)
    assert (first.run, second.run) == (run, replayed["id"])
    assert (first.inputs, first.outputs, first.priority) == (second.inputs, second.outputs, second.priority)
    assert second.params == {**first.params, "seed": 7}
    assert (first.record, first.hold, second.record, second.hold) == (False, True, True, False)
    # A replay may be replayed.
    await deployed.services.runs.live(replayed["id"]).ended()
    answer = await deployed.http.post(f"/api/v1/runs/{replayed['id']}/replay", json={"record": False})
    third = submits(deployed)[-1]
    assert (third.run, third.params, third.record) == (answer.json()["id"], second.params, False)


async def test_a_replay_may_go_to_another_deployment(deployed: Running) -> None:
    run = await finished(deployed, params={"seed": 11})
    body = {"graph": "shapes", "placement": "shapes_one_cpu", "name": "other"}
    assert (await deployed.http.post("/api/v1/deployments", json=body)).status_code == 202
    await deployed.settled("other")
    answer = await deployed.http.post(f"/api/v1/runs/{run}/replay", json={"deployment": "other"})
    assert (answer.status_code, answer.json()["deployment"]) == (202, "other")
    assert submits(deployed)[-1].run == run
    (sent,) = [sent for sent in deployed.fleet.started[1].sent if isinstance(sent, m.Submit)]
    assert sent.params["seed"] == 11
    answer = await deployed.http.post(f"/api/v1/runs/{run}/replay", json={"deployment": "nobody"})
    assert answer.status_code == 404


async def test_what_can_not_be_replayed_says_why(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(run: str) -> str:
        answer = await deployed.http.post(f"/api/v1/runs/{run}/replay", json={})
        assert answer.status_code == 409, answer.text
        return answer.json()["detail"]

    long = "red " * 100
    monkeypatch.setattr(limits, "ASKED_VALUE_BYTES", 399)
    said = await refused(await finished(deployed, inputs={"prompt": long}))
    assert "`/inputs/prompt`" in said
    assert str(len(long)) in said
    monkeypatch.undo()
    assert "session" in await refused(await finished(deployed, session="s"))
    monkeypatch.setattr(limits, "ASKED_BYTES", 10)
    assert "too large" in await refused(await finished(deployed))
    monkeypatch.undo()
    run = await finished(deployed)
    deployed.services.runs.live(run).seed = None
    assert "has not been accepted" in await refused(run)
    await deployed.services.runs._unsaved.join()
    del deployed.services.runs._runs[RunId(run)]
    assert "no longer kept" in await refused(run)
    assert (await deployed.http.post(f"/api/v1/runs/{'0' * 32}/replay", json={})).status_code == 404


# ── differences ────────────────────────────────────────────────────────────────────────────────


def recorded(run: str, *digests: str, **fields: Any) -> tuple[Sample, ...]:
    nan = Statistics(count=2, nan=1, infinite=0, low=1.0, high=1.0, mean=1.0, std=0.0, histogram=())
    return tuple(
        Sample(
            why="record",
            tap="",
            run=RunId(run),
            rank=Rank(0),
            walk="image_gen",
            step=1,
            source="llm.velocity",
            iteration=(i,),
            at=50.0 + i,
            modality="latents",
            dtype="float32",
            shape=(2,),
            statistics=nan,
            digest=digest,
            picked=(1.0, float(int(digest, 16))),
        )
        for i, digest in enumerate(digests)
    )


def keeps(running: Running, monkeypatch: pytest.MonkeyPatch, kept: dict[str, tuple[Sample, ...]]) -> None:
    async def recording(run: str) -> tuple[Sample, ...] | None:
        return kept.get(run)

    monkeypatch.setattr(running.services.traces, "recording", recording)


async def test_two_recorded_runs_are_compared(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = [await finished(deployed) for _ in range(2)]
    keeps(deployed, monkeypatch, {a: recorded(a, "01", "02", "03", "04"), b: recorded(b, "01", "02", "05")})
    answer = await deployed.http.get(f"/api/v1/runs/{a}/differences/{b}")
    assert answer.status_code == 200, answer.text
    found = json.loads(answer.content)
    assert (found["a"], found["b"], found["recorded"]) == (a, b, True)
    assert (found["compared"], found["equal"], found["missing"]) == (3, 2, {"a": 0, "b": 1})
    (row,) = found["rows"]
    assert found["first"] == row
    assert (row["walk"], row["source"], row["step"], row["iteration"]) == ("image_gen", "llm.velocity", 1, [2])
    assert (row["max_abs"], row["max_rel"], row["at_a"], row["at_b"]) == (2.0, 0.4, 2.0, 2.0)
    assert row["statistics_a"]["nan"] == 1
    names = [(output["name"], output["index"], output["equal"]) for output in found["outputs"]]
    assert names == [("preview", 0, True), ("image", 0, True), ("text", 0, True), ("text", 1, True)]
    same = (await deployed.http.get(f"/api/v1/runs/{a}/differences/{a}")).json()
    assert (same["compared"], same["equal"], same["rows"], same["first"]) == (4, 4, [], None)


async def test_runs_that_were_not_recorded_are_compared_by_their_outputs(
    deployed: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = [await finished(deployed) for _ in range(2)]
    keeps(deployed, monkeypatch, {})
    found = (await deployed.http.get(f"/api/v1/runs/{a}/differences/{b}")).json()
    assert (found["recorded"], found["compared"], found["first"], len(found["outputs"])) == (False, 0, None, 4)
    keeps(deployed, monkeypatch, {a: recorded(a, "01")})
    for path in (f"{a}/differences/{b}", f"{b}/differences/{a}"):
        answer = await deployed.http.get(f"/api/v1/runs/{path}")
        assert answer.status_code == 409
        assert f"`{b}` was not recorded" in answer.json()["detail"]


async def test_only_runs_that_are_over_are_compared(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    keeps(deployed, monkeypatch, {})
    a = await finished(deployed)
    waits = await begun(deployed, params={"seed": 13})
    answer = await deployed.http.get(f"/api/v1/runs/{a}/differences/{waits}")
    assert (answer.status_code, f"`{waits}` isn't over" in answer.json()["detail"]) == (409, True)
    assert (await deployed.http.get(f"/api/v1/runs/{a}/differences/{'0' * 32}")).status_code == 404
    # Its outputs are not kept any more.
    b = await finished(deployed)
    await deployed.services.runs._unsaved.join()
    del deployed.services.runs._runs[RunId(b)]
    found = (await deployed.http.get(f"/api/v1/runs/{b}/differences/{a}")).json()
    assert found["outputs"] == []
