"""Ranks report the resources that they hold; after every kill and cancel all of them are free again."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from tests.safety.plugin import Figure, Scale
from tests.support.deployment import Deployment, deployed, is_gone, plan_named, shared_memory, workers_of
from tests.support.hearing import Hearing
from tests.support.sampling import Held, growth, of_process
from tests.support.yardstick import patience
from walkgraph.wire import messages as m

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Deployment, Hearing]]:
    gauges = Hearing(tmp_path_factory.mktemp("t") / "t")
    async with deployed(*plan_named("synthetic_states"), telemetry=gauges.address) as deployment:
        yield deployment, gauges
    gauges.close()


Watched = tuple[Deployment, Hearing]
LONG = {"prompt": 50, "times": 2000}
STORMS = 40
"""At the long scale. Heaps grow in steps of 2 MB, which get rare: the slopes between storms tell a leak from them."""


def mixed(deployment: Deployment, chance: random.Random) -> str:
    task = chance.choice(["write", "part_ways", "peek"])
    return deployment.submit(task, LONG if task == "write" else {"prompt": chance.randrange(1, 60)})


@pytest.mark.safety("R6")
async def test_a_storm_of_cancels_leaves_nothing(watched: Watched, scale: Scale, figure: Figure) -> None:
    """The first storms grow the heaps of the processes, by less each time; those after them leave no memory."""
    deployment, gauges = watched
    chance, number = random.Random(4), scale(75, 1000)
    processes = [deployment.process.pid, *sorted(workers_of(deployment.process.pid))]
    after, took = list[Held](), list[float]()
    for _ in range(scale(4, STORMS)):
        began = time.monotonic()
        await storm(deployment, gauges, chance, number)
        took.append(time.monotonic() - began)
        after.append(Held(3600.0 * len(after), memory(processes), 0, 0))
    figure("runs started and cancelled", number * len(took))
    figure("until all pages are free, of 1,000", max(took), "s", at_most=60.0)
    figure("memory more, all processes, of 1,000", growth(after), "MB", at_most=0.2)


async def storm(deployment: Deployment, gauges: Hearing, chance: random.Random, number: int) -> None:
    runs: list[str] = []
    for _ in range(number):
        runs.append(mixed(deployment, chance))
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        deployment.process.send(m.Abort(run=m.RunId(chance.choice(runs[-20:]))))
    for run in runs:
        deployment.process.send(m.Abort(run=m.RunId(run)))
    await deployment.until(lambda: all(run in deployment.finished or run in deployment.rejected for run in runs))
    codes = {f.error.code for run in runs if (f := deployment.finished.get(run)) and f.error}
    assert codes == {"cancelled"}
    assert {r.error.code for r in deployment.rejected.values()} <= {"overloaded"}
    assert [status.restarts for status in deployment.status.ranks] == [0, 0]
    await gauges.all_free(2)


def memory(processes: list[int]) -> float:
    """Megabytes."""
    held = [of_process(pid, 0.0) for pid in processes]
    assert None not in held, "a process is gone"
    return sum(one.memory for one in held if one is not None)


@pytest.mark.safety("R1")
async def test_kills_under_load_touch_one_deployment_and_leave_nothing(watched: Watched) -> None:
    """Rounds at random moments, the ranks in turn; a second deployment doesn't notice."""
    deployment, gauges = watched
    await deployment.ready()
    chance, before = random.Random(9), shared_memory()
    async with deployed(*plan_named("synthetic_loops", 1)) as other:
        for round_number in range(3):
            bystander = other.submit("spin", {"times": 3000})
            runs = [deployment.submit("write", LONG) for _ in range(8)]
            runs += [mixed(deployment, chance) for _ in range(8)]
            await deployment.until(lambda: deployment.status.running > 4)
            await asyncio.sleep(chance.random() * 0.2)  # a random moment is what is tested
            rank = round_number % 2
            pid = deployment.pid(rank)
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await deployment.until(lambda: deployment.status.state == "degraded", patience(1.0))
            await deployment.ready()
            # Those that waited for pages or for the rank go on; those that it held have ended with a reason.
            for run in runs:
                finished = await deployment.end(run)
                if finished.error is not None:
                    assert (finished.error.code, finished.error.retryable) == ("worker_lost", True)
            assert is_gone(pid)
            assert (await other.end(bystander)).error is None
            assert time.monotonic() - killed < patience(30)
            await gauges.all_free(2)
        assert len(workers_of(deployment.process.pid)) == 2
        assert [status.restarts for status in other.status.ranks] == [0]
    assert shared_memory() == before


async def test_a_run_larger_than_its_rank_is_refused_and_others_go_on() -> None:
    graph, plan = plan_named("synthetic_states", ranks=1)
    small = tuple(msgspec.structs.replace(rank, kv_bytes=1 << 17) for rank in plan.ranks)
    async with deployed(graph, msgspec.structs.replace(plan, ranks=small)) as deployment:
        error = (await deployment.end(deployment.submit("write", {"prompt": 4096, "times": 100_000}))).error
        assert error is not None
        assert error.code == "refused"
        assert "memory" in error.message
        assert (await deployment.end(deployment.submit("write"))).error is None


@pytest.mark.safety("R20")
async def test_equal_seeds_give_equal_answers_before_and_after_a_restart(watched: Watched) -> None:
    deployment, _ = watched
    await deployment.ready()

    async def tokens() -> object:
        run = deployment.submit("roll", {"seed": 11, "times": 20})
        assert (await deployment.end(run)).error is None
        return deployment.outputs[run]["value"]

    first = await tokens()
    os.kill(deployment.pid(0), signal.SIGKILL)
    await deployment.until(lambda: deployment.status.state == "degraded", patience(1.0))
    await deployment.ready()
    assert await tokens() == first
