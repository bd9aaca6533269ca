"""With real processes, on a pool that holds one run: a run of higher priority overtakes, and neither loses anything."""

import pytest
import pytest_asyncio

from tests.support.deployment import Deployment, Standing
from walkgraph.wire import messages as m

LOW = {"prompt": 40, "times": 1500, "first": 3}
HIGH = {"prompt": 1400, "times": 20, "first": 5}

pytestmark = pytest.mark.asyncio(loop_scope="session")


SMALL = 1 << 15
"""Bytes of a pool that holds one run."""


@pytest_asyncio.fixture(loop_scope="session")
async def small(standing: Standing) -> Deployment:
    return await standing("synthetic_states", SMALL)


async def alone(deployment: Deployment, params: dict[str, int]) -> list[object]:
    run = deployment.submit("write", params)
    assert (await deployment.end(run)).error is None
    return deployment.outputs[run]["token"]


async def test_a_run_of_higher_priority_overtakes_and_both_are_as_if_alone(small: Deployment) -> None:
    low_alone, high_alone = await alone(small, LOW), await alone(small, HIGH)
    low = small.submit("write", LOW)
    await small.until(lambda: len(small.outputs[low]["token"]) >= 20)
    equal = small.submit("write", HIGH)
    high = small.submit("write", HIGH, priority=1)
    assert (await small.end(high)).error is None
    assert low not in small.finished
    assert equal not in small.finished
    for run, wanted in ((low, low_alone), (equal, high_alone), (high, high_alone)):
        assert (await small.end(run)).error is None
        assert small.outputs[run]["token"] == wanted
    assert list(small.finished)[-3:] == [high, low, equal]


async def test_a_suspended_run_that_is_aborted_frees_everything(small: Deployment) -> None:
    low = small.submit("write", LOW)
    await small.until(lambda: len(small.outputs[low]["token"]) >= 20)
    high = small.submit("write", {**LOW, "first": 7}, priority=1)
    await small.until(lambda: len(small.outputs[high]["token"]) >= 20)
    small.process.send(m.Abort(run=m.RunId(low)))
    error = (await small.end(low)).error
    assert error is not None
    assert error.code == "cancelled"
    assert (await small.end(high)).error is None
    assert len(await alone(small, HIGH)) == 20
    await small.until(lambda: small.status.running == 0)
