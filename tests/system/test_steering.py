"""Runs that are paused, stepped and let go on by real processes: across ranks, in sessions, with streams, suspended."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.support.deployment import Deployment, Standing
from tests.system.test_priority import HIGH, LOW, SMALL, alone
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Break, HeldCall, Steer, Watch

CLIMB = {"times": 20, "limit": 5, "passes": 3}

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def loops(standing: Standing) -> Deployment:
    return await standing("synthetic_loops")


def steer(here: Deployment, run: str, action: Any, call: HeldCall | None = None) -> None:
    here.process.send(Steer(run=m.RunId(run), action=action, call=call))


def told(here: Deployment, run: str) -> m.Paused | None:
    """How a run is paused; None: it goes on."""
    said = [one for one in here.messages if isinstance(one, m.Paused | m.Resumed) and one.run == run]
    return said[-1] if said and isinstance(said[-1], m.Paused) else None


async def paused(here: Deployment, run: str, holds: Callable[[m.Paused], Any] = lambda said: said.held) -> m.Paused:
    await here.until(lambda: (said := told(here, run)) is not None and bool(holds(said)))
    said = told(here, run)
    assert said is not None
    return said


async def walked(here: Deployment, run: str, seed: int, most: int = 12) -> None:
    """Step a paused run at random, then let it go on to its end."""
    chance = random.Random(seed)
    for _ in range(most):
        await here.until(lambda: run in here.finished or bool((said := told(here, run)) and said.held))
        said = told(here, run)
        if run in here.finished or said is None:
            break
        call = chance.choice(said.held)
        steer(here, run, "iteration" if call.iteration and chance.random() < 0.2 else "step", call)
        await here.until(lambda said=said: run in here.finished or told(here, run) != said)
    steer(here, run, "resume")
    assert (await here.end(run)).error is None


@pytest.mark.parametrize("seed", range(3))
async def test_a_run_is_stepped_across_ranks(loops: Deployment, seed: int) -> None:
    run = loops.submit("climb", CLIMB, hold=True)
    said = await paused(loops, run)
    assert said.breakpoint == ""
    await walked(loops, run, seed)
    assert loops.outputs[run]["value"] == [1, 2, 3, 4]


async def test_a_breakpoint_is_come_to_at_its_iteration(loops: Deployment) -> None:
    loops.process.send(Watch(breaks=(Break(id="b", walk="climb", use="grow", iteration=2),)))
    run = loops.submit("climb", CLIMB)
    said = await paused(loops, run, lambda said: any((c.use, c.iteration) == ("grow", (2,)) for c in said.held))
    assert said.breakpoint == "b"
    # Another rank sends the values.
    await loops.until(lambda: len(loops.outputs[run]["value"]) > 1)
    assert loops.outputs[run]["value"] == [1, 2]
    loops.process.send(Watch())
    steer(loops, run, "resume")
    assert (await loops.end(run)).error is None
    assert loops.outputs[run]["value"] == [1, 2, 3, 4]


async def test_a_paused_run_is_aborted_and_others_go_on(loops: Deployment) -> None:
    run = loops.submit("climb", CLIMB, hold=True)
    await paused(loops, run)
    other = loops.submit("climb", CLIMB)
    assert (await loops.end(other)).error is None
    loops.process.send(m.Abort(run=m.RunId(run)))
    error = (await loops.end(run)).error
    assert error is not None
    assert error.code == "cancelled"
    await loops.until(lambda: loops.status.running == 0)


async def test_a_session_goes_on_after_a_run_that_was_paused(standing: Standing) -> None:
    here = await standing("synthetic_states")
    plain = [here.submit("remember", {"first": 3}, session="never paused") for _ in range(2)]
    steered = here.submit("remember", {"first": 3}, session="paused", hold=True)
    behind = here.submit("remember", {"first": 3}, session="paused")
    await paused(here, steered)
    assert behind not in here.finished
    await walked(here, steered, 1)
    for run, wanted in zip((steered, behind), plain, strict=True):
        assert (await here.end(run)).error is None
        assert (await here.end(wanted)).error is None
        assert here.outputs[run]["token"] == here.outputs[wanted]["token"]


async def test_streams_of_a_paused_run_wait_and_go_on(standing: Standing) -> None:
    here = await standing("synthetic_streams")
    run = here.submit("windows", {"items": 11}, hold=True)
    await paused(here, run)
    await walked(here, run, 3, 25)
    assert here.outputs[run]["windows"] == [[6.0], [14.0], [22.0], [30.0], [34.0]]


async def test_a_paused_run_is_suspended_and_comes_back_paused(standing: Standing) -> None:
    here = await standing("synthetic_states", SMALL)
    wanted = await alone(here, LOW)
    low = here.submit("write", LOW)
    await here.until(lambda: len(here.outputs[low]["token"]) >= 20)
    steer(here, low, "pause")
    await paused(here, low)
    high = here.submit("write", HIGH, priority=1)
    assert (await here.end(high)).error is None
    had = len(here.outputs[low]["token"])
    assert low not in here.finished
    assert had < len(wanted)
    steer(here, low, "resume")
    assert (await here.end(low)).error is None
    assert here.outputs[low]["token"] == wanted
