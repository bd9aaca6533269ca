"""Documents are judged beside the event loop, a few at once: others' requests don't wait for them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.unit.service.conftest import Running
from walkgraph.graph.problems import Report
from walkgraph.service.deployments.judging import JUDGES
from walkgraph.service.routes import graphs


@pytest.mark.safety("S2")
async def test_only_so_many_documents_are_judged_at_once(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def judge(*given: object) -> Report:
        begun.release()
        go.wait(60)
        return Report((), None)

    monkeypatch.setattr(graphs, "check_here", judge)
    asked = [
        asyncio.create_task(service.http.post("/api/v1/graphs/check", json={"number": number}))
        for number in range(3 * JUDGES)
    ]
    for _ in range(JUDGES):
        assert await asyncio.to_thread(begun.acquire, timeout=60)
    assert not await asyncio.to_thread(begun.acquire, timeout=0.5), "one more has begun"
    assert (await service.anybody.get("/health/live")).status_code == 200
    go.set()
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
