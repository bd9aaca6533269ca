"""Deployments whose ranks send by NIXL: the same answers, and nothing is lost or held when a worker dies."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment, deployed, plan_named
from tests.support.host_forks import HostForks
from tests.support.tcp_ports import listening
from walkgraph.conductor.client import Limits
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
]


async def outputs(deployment: Deployment, tasks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, list[object]]]:
    runs = [deployment.submit(task, params) for task, params in tasks.items()]
    ends = [await deployment.end(run) for run in runs]
    assert [end.error for end in ends] == [None] * len(runs)
    return [dict(deployment.outputs[run]) for run in runs]


FERRY: dict[str, Any] = {"times": 4, "numbers": 1 << 18}
LOOPS: dict[str, dict[str, Any]] = {
    "nested": {"rows": 3, "columns": 2, "start": 10},
    "climb": {"times": 20, "limit": 5, "passes": 3},
    "ferry": FERRY,
}
STATES: dict[str, dict[str, Any]] = {task: {"prompt": 20, "seed": 5} for task in ("write", "part_ways", "peek")}


@pytest.mark.parametrize(
    ("name", "tasks"),
    [("synthetic_loops", LOOPS), ("synthetic_states", STATES), ("synthetic_streams", {"windows": {"items": 11}})],
)
async def test_answers_are_those_of_one_rank(name: str, tasks: dict[str, dict[str, Any]]) -> None:
    async with deployed(*plan_named(name, 1)) as alone:
        expected = await outputs(alone, tasks)
    graph, plan = plan_named(name, transport="nixl")
    assert {edge.transport for walk in plan.walks for edge in walk.edges} & {"nixl", "shm"} == {"nixl"}
    async with deployed(graph, plan) as deployment:
        assert await outputs(deployment, tasks) == expected


async def test_ranks_listen_on_this_machine_alone() -> None:
    async with deployed(*plan_named("synthetic_loops", transport="nixl")) as deployment:
        found = [address for rank in (0, 1) for address, _ in listening(deployment.pid(rank))]
        assert set(found) == {"127.0.0.1"}


async def test_a_network_that_is_not_there_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "nothing0")
    forks = HostForks(tmp_path, [[]], {0: 0, 1: 0})
    plan = plan_named("synthetic_loops", transport="nixl")
    async with deployed(*plan, Limits(restarts=0), ready=False, forks=forks) as deployment:
        await deployment.until(lambda: deployment.process.status is not None and deployment.status.state == "failed")
        assert "failed: UCX, by which NIXL sends, finds no network here" in (deployment.status.reason or "")
    forks.close()


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_lost_end_fails_its_runs_and_comes_back(lost: int) -> None:
    graph, plan = plan_named("synthetic_loops", transport="nixl")
    async with deployed(graph, plan) as deployment:
        run = deployment.submit("ferry", {"times": 1_000_000, "numbers": 1 << 18})
        assert await outputs(deployment, {"ferry": FERRY})
        os.kill(deployment.pid(lost), signal.SIGKILL)
        error = (await deployment.end(run)).error
        assert error is not None
        assert error.code == "worker_lost"
        await deployment.until(lambda: deployment.status.state == "ready")
        assert await outputs(deployment, {"ferry": FERRY})
