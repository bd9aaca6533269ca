"""Runs that are started and cancelled leave nothing in the service: no run, no task, no client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.safety.plugin import Figure, Scale
from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.settings import Settings
from walkgraph.store.session import Store

AT_ONCE = 8
WAITS = {
    "deployment": "shapes",
    "task": "text_to_image",
    "request": {"inputs": {"prompt": "x"}, "params": {"seed": 13}},
}


async def started_and_cancelled(service: Running) -> None:
    answer = await service.http.post("/api/v1/runs", json=WAITS)
    assert answer.status_code == 202, answer.text
    run = answer.json()["id"]
    assert (await service.http.delete(f"/api/v1/runs/{run}")).status_code == 202
    told = await service.http.get(f"/api/v1/runs/{run}/events")
    assert "cancelled" in told.text


async def tasks() -> int:
    """How many there are once those that are about to end have: a service at rest has always as many."""
    for _ in range(200):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks())


@pytest.mark.safety("R6")
async def test_no_task_of_a_cancelled_run_is_left(tmp_path: Path, scale: Scale, figure: Figure) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    settings = Settings(home=tmp_path / "home", studio=False)
    Store.open(settings.database).close()
    async with serving(settings, FakeFleet()) as service:
        await service.deploy()
        await started_and_cancelled(service)
        before = await tasks()
        number = scale(64, 1000)
        for _ in range(number // AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(started_and_cancelled(service))
        left = max(0, await tasks() - before)
        assert service.services.runs.unfinished == []
        assert service.services.admission.token.meter.running == 0
        assert left == 0
        figure("requests of a service, cancelled", number)
        figure("tasks left", left, at_most=0)
