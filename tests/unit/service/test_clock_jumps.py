"""The wall clock jumps: durations, ends of taps and lists of runs don't follow it."""

from __future__ import annotations

import asyncio
import time
from itertools import count

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.service.conftest import Running
from walkgraph.service.access import auditing
from walkgraph.store import keys

pytestmark = pytest.mark.safety("R19")
YEAR = 365 * 86_400.0
DRAW = "/v1/tasks/shapes/text_to_image"
ASK = {"inputs": {"prompt": "a red circle"}}
real = time.time


def jump(monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    monkeypatch.setattr(time, "time", lambda: real() + years * YEAR)


@pytest.mark.parametrize("years", [-20, 20])
async def test_a_run_that_is_lost_took_as_long_as_it_took(
    service: Running, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    await service.deploy()
    body = {"deployment": "shapes", "task": "text_to_image", "request": {**ASK, "params": {"seed": 13}}}
    run = (await service.http.post("/api/v1/runs", json=body)).json()["id"]
    jump(monkeypatch, years)
    service.fleet.started[0].die(-9)
    end = await service.services.runs.live(run).ended()
    assert 0 <= end.seconds < YEAR


async def test_no_measurement_is_of_years(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await service.deploy()
    calls = count()
    monkeypatch.setattr(time, "time", lambda: real() + (next(calls) % 2) * YEAR)
    for _ in range(4):
        assert (await service.http.post(DRAW, json=ASK)).status_code == 200
    monkeypatch.undo()
    text = (await service.http.get("/metrics")).text
    sums = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_seconds_sum")
    }
    assert sums
    assert all(0 <= value < YEAR / 2 for value in sums.values()), sums


@pytest.mark.parametrize("years", [-20, 20])
async def test_a_tap_ends_when_it_was_to_end(service: Running, monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    await service.deploy()
    asked = {"walk": "decode", "source": "llm.token", "seconds": 100}
    made = await service.http.post("/api/v1/deployments/shapes/taps", json=asked)
    assert made.status_code == 201, made.text
    jump(monkeypatch, years)
    managed = service.services.deployments.get("shapes")
    managed._expire()
    assert managed.watched.places == 1
    assert managed._expiry is not None
    assert managed._expiry.when() - asyncio.get_running_loop().time() <= 100
    assert managed.watched.expire(time.monotonic() + 101)


async def test_runs_of_before_the_clock_was_set_back_are_listed(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.deploy()
    jump(monkeypatch, 20)
    assert (await service.http.post(DRAW, json=ASK)).status_code == 200
    jump(monkeypatch, 0)
    (run,) = (await service.http.get("/api/v1/runs")).json()
    assert run["state"] == "done"


async def test_a_clock_that_jumps_ahead_empties_no_audit_log(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the service runs; entries that are old by both clocks go."""
    monkeypatch.setattr(auditing, "PRUNE_SECONDS", 0.0)
    store, audit = service.services.store, service.services.audit
    await service.deploy()
    there = await store.read(keys.count_entries)
    assert there > 0
    jump(monkeypatch, 20)
    await audit.close()
    pruned = await _pruned(service, monkeypatch)
    assert pruned < real()
    assert await store.read(keys.count_entries) == there
    audit._began -= 21 * YEAR
    assert await _pruned(service, monkeypatch) < real()
    jump(monkeypatch, 0)
    audit._began += 42 * YEAR
    await _pruned(service, monkeypatch)
    assert await store.read(keys.count_entries) == there, "nor one that says that it is now"


async def _pruned(service: Running, monkeypatch: pytest.MonkeyPatch) -> float:
    """Lets the audit log be pruned once. Returns the time before which entries were old."""
    oldest = asyncio.get_running_loop().create_future()
    write = service.services.store.write

    async def noted(query: object, *args: object) -> object:
        found = await write(query, *args)  # type: ignore[arg-type]
        if query is keys.prune_entries and not oldest.done():
            oldest.set_result(args[0])
        return found

    monkeypatch.setattr(service.services.store, "write", noted)
    service.services.audit.start()
    found = await oldest
    await service.services.audit.close()
    monkeypatch.setattr(service.services.store, "write", write)
    return found
