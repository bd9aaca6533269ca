"""Deployments over two hosts, which are network namespaces: the same answers, and what becomes of a cut cable."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import deployed, plan_named
from tests.support.far_deployment import far_deployment
from tests.support.namespaces import Host, allowed, two_hosts
from tests.support.ray_hosts import ray_cluster
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
TASKS: dict[str, dict[str, Any]] = {"windows": {"items": 11}, "chain": {}, "padded": {}}
LARGE: dict[str, Any] = {"times": 4, "numbers": 1 << 18}
ENDLESS: dict[str, Any] = {"times": 1_000_000, "numbers": 1 << 12}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Sequence[Host]]:
    with two_hosts() as made:
        yield made


async def alone(name: str, tasks: dict[str, dict[str, Any]]) -> list[Any]:
    """The answers of one rank on one host."""
    async with deployed(*plan_named(name, 1)) as deployment:
        runs = [deployment.submit(task, params) for task, params in tasks.items()]
        assert [(await deployment.end(run)).error for run in runs] == [None] * len(runs)
        return [[None, dict(deployment.outputs[run])] for run in runs]


async def test_answers_are_those_of_one_rank(hosts: Sequence[Host]) -> None:
    expected = await alone("synthetic_streams", TASKS)
    with far_deployment(*hosts, "synthetic_streams") as deployment:
        assert deployment.answers(TASKS) == expected


@pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed")
async def test_actors_of_a_cluster_give_the_same_answers(hosts: Sequence[Host]) -> None:
    expected = await alone("synthetic_streams", TASKS)
    with ray_cluster(*hosts) as ray, far_deployment(*hosts, "synthetic_streams", ray) as deployment:
        assert deployment.answers(TASKS) == expected


@pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed")
async def test_a_service_deploys_over_two_hosts(hosts: Sequence[Host], tmp_path: Path) -> None:
    here, there = hosts
    with ray_cluster(*hosts) as ray:
        given = str(tmp_path / "home"), "synthetic_streams", there.name, json.dumps(TASKS)
        command = here.command(sys.executable, "-m", "tests.support.cluster_service", *given)
        environment = {**ray.environment, "WALKGRAPH_BACKEND": "ray", "WALKGRAPH_RAY_ADDRESS": ray.address}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
        told, _ = await process.communicate()
    networks, far, near, refused = json.loads(told)
    assert len(set(networks)) == len(networks) == 2
    assert far == near
    assert "there is no host `nowhere`; have it join the cluster" in refused


async def test_a_cut_cable_stops_runs_or_ends_them(hosts: Sequence[Host]) -> None:
    """A cut that is mended soon loses nothing; after a longer one the rank behind it is started anew."""
    here, _ = hosts
    expected = await alone("synthetic_loops", {"ferry": LARGE})
    with far_deployment(*hosts, "synthetic_loops", step_deadline=60.0) as deployment:
        assert deployment.answers({"ferry": LARGE}) == expected
        here.plug(into=False)
        run = deployment.ask("submit", "ferry", LARGE)
        assert not deployment.ask("ended", run, 0.5)
        here.plug(into=True)
        assert [deployment.ask("end", run)] == expected
    with far_deployment(*hosts, "synthetic_loops", step_deadline=1.0) as deployment:
        run = deployment.ask("submit", "ferry", ENDLESS)
        here.plug(into=False)
        assert deployment.ask("end", run)[0] == "worker_lost"
        here.plug(into=True)
        assert deployment.ask("ready")
        assert deployment.answers({"ferry": LARGE}) == expected
