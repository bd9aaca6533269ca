"""Loops of steps with real processes on two ranks: passes in order, ends by a result, a growing cache, a cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.deployment import Deployment, Standing
from walkgraph.simulation.scenarios import bundled_scenarios
from walkgraph.wire import messages as m

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def passes(standing: Standing) -> AsyncIterator[Deployment]:
    yield await standing("synthetic_passes")


async def test_passes_give_what_plain_python_gives(passes: Deployment) -> None:
    scenario = next(found for found in bundled_scenarios() if found.name == "synthetic_passes/2")
    requests = [request for request in scenario.requests if not request.session]
    asked = [(request, passes.submit(request.task, dict(request.params))) for request in requests]
    for request, run in asked:
        end = await passes.end(run)
        assert end.error is None
        assert request.ends in (None, {one.name: (one.iterations, one.reason) for one in end.loops})
        found = {name: [_number(value) for value in values] for name, values in passes.outputs[run].items()}
        assert found == request.outputs


async def test_a_session_is_kept_from_pass_to_pass(passes: Deployment) -> None:
    scenario = next(found for found in bundled_scenarios() if found.name == "synthetic_passes/2")
    request = next(found for found in scenario.requests if found.session)
    while request is not None:
        run = passes.submit(request.task, dict(request.params), session="loops")
        assert (await passes.end(run)).error is None
        assert [_number(value) for value in passes.outputs[run]["token"]] == request.outputs["token"]
        request = request.following


async def test_a_run_is_cancelled_between_passes(passes: Deployment) -> None:
    run = passes.submit("ramble", {"passes": 100, "times": 20})
    await passes.until(lambda: len(passes.outputs[run]["token"]) > 100)
    passes.process.send(m.Abort(run=run))
    error = (await passes.end(run)).error
    assert error is not None
    assert error.code == "cancelled"
    assert (await passes.end(passes.submit("redraw"))).error is None


def _number(value: int | list[int]) -> int:
    return value[0] if isinstance(value, list) else value
