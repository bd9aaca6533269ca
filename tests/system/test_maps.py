"""Maps with real processes on two ranks: items side by side with caches of their own, maps in maps, a failing item and
a cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.deployment import Deployment, Standing
from walkgraph.simulation.scenarios import bundled_scenarios
from walkgraph.wire import messages as m

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def maps(standing: Standing) -> AsyncIterator[Deployment]:
    yield await standing("synthetic_maps")


async def test_maps_give_what_plain_python_gives(maps: Deployment) -> None:
    scenario = next(found for found in bundled_scenarios() if found.name == "synthetic_maps/2")
    requests = [request for request in scenario.requests if not request.fails]
    asked = [(request, maps.submit(request.task, dict(request.params))) for request in requests]
    for request, run in asked:
        assert (await maps.end(run)).error is None
        found = {name: [_number(value) for value in values] for name, values in maps.outputs[run].items()}
        assert found == request.outputs


async def test_the_width_changes_nothing_but_the_order_of_work(maps: Deployment) -> None:
    runs = [maps.submit("write", {"items": 20, "times": 6, "width": width}) for width in (1, 3, 20)]
    for run in runs:
        assert (await maps.end(run)).error is None
    one, *others = [[_number(value) for value in maps.outputs[run]["token"]] for run in runs]
    assert len(one) == 120
    assert all(other == one for other in others)


async def test_a_failing_item_fails_its_run_alone(maps: Deployment) -> None:
    failing = maps.submit("write", {"items": 40, "width": 4, "fail_at": 20})
    other = maps.submit("write", {"items": 10, "width": 4})
    error = (await maps.end(failing)).error
    assert error is not None
    assert (error.code, error.node) == ("node_error", "guard")
    assert (await maps.end(other)).error is None


async def test_a_run_is_cancelled_among_its_items(maps: Deployment) -> None:
    run = maps.submit("write", {"items": 4096, "width": 4, "times": 20})
    await maps.until(lambda: len(maps.outputs[run]["token"]) > 100)
    maps.process.send(m.Abort(run=run))
    error = (await maps.end(run)).error
    assert error is not None
    assert error.code == "cancelled"
    assert (await maps.end(maps.submit("add"))).error is None


def _number(value: int | list[int]) -> int:
    return value[0] if isinstance(value, list) else value
