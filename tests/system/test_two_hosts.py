"""Deployments over two hosts, which are network namespaces: the same answers, and what becomes of a cut cable."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import deployed, plan_named
from tests.support.far_deployment import far_deployment
from tests.support.namespaces import Faults, Host, allowed, two_hosts
from tests.support.namespaces import hosts as connected
from tests.support.ray_hosts import ray_cluster
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
TASKS: dict[str, dict[str, Any]] = {"windows": {"items": 11}, "chain": {}, "padded": {}}
LARGE: dict[str, Any] = {"times": 4, "numbers": 1 << 18}
SMALL: dict[str, Any] = {"times": 4, "numbers": 1 << 10}
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
    networks, far, near, refused, listed = json.loads(told)
    assert len(set(networks)) == len(networks) == 2
    assert far == near
    assert "there is no host `nowhere`; have it join the cluster" in refused
    assert [(host["name"], host["address"], host["here"]) for host in listed] == [
        (here.name, here.address, True),
        (there.name, there.address, False),
    ]
    assert [[(rank["rank"], rank["state"]) for rank in host["ranks"]] for host in listed] == [
        [(0, "ready")],
        [(1, "ready")],
    ]
    for host, other in ((0, there), (1, here)):
        [reach] = listed[host]["reaches"]
        assert reach["host"] == other.name
        assert reach["bandwidth"] > 0 < reach["latency"]


@pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed")
async def test_doctor_says_what_is_wrong_with_a_cluster(hosts: Sequence[Host], tmp_path: Path) -> None:
    here, there = hosts
    roots, walkgraph = tmp_path / "checkpoints", str(Path(sys.executable).parent / "walkgraph")
    roots.mkdir()
    with ray_cluster(*hosts) as ray:
        named = {"WALKGRAPH_BACKEND": "ray", "WALKGRAPH_RAY_ADDRESS": ray.address}
        named |= {"WALKGRAPH_HOME": str(tmp_path / "home"), "WALKGRAPH_CHECKPOINT_ROOTS": json.dumps([str(roots)])}
        found: list[dict[str, dict[str, str]]] = []
        for changed in ({}, {"RAY_AUTH_TOKEN": "f" * 64}):
            process = await asyncio.create_subprocess_exec(
                *here.command(walkgraph, "doctor", "--cluster", "--json"),
                env={**ray.environment, **named, **changed},
                stdout=asyncio.subprocess.PIPE,
            )
            told, _ = await process.communicate()
            found.append({finding["what"]: finding for finding in json.loads(told)})
    well, refused = found
    assert "cluster" not in well
    assert well[f"host {here.name}"]["level"] == "ok"
    lacking = well[f"host {there.name}"]
    # It has a folder of its own for temporary files.
    assert lacking["level"] == "warn"
    assert str(roots) in lacking["detail"]
    assert refused["cluster"]["level"] == "fail"
    assert "RAY_AUTH_TOKEN" in refused["cluster"]["do"]


@pytest.mark.parametrize(("place", "seconds"), [(0, 2.8), (1, 2.0)])
async def test_a_cut_of_up_to_three_seconds_loses_nothing(hosts: Sequence[Host], place: int, seconds: float) -> None:
    expected, length = await alone("synthetic_loops", {"ferry": LARGE}), float("inf")
    # On a busy machine a cut may come out longer than it was meant: then it shows nothing, and is made again.
    while length > 3.0:
        with far_deployment(*hosts, "synthetic_loops", step_deadline=60.0) as deployment:
            assert deployment.answers({"ferry": LARGE}) == expected
            began = time.monotonic()
            hosts[place].plug(into=False)
            run = deployment.ask("submit", "ferry", LARGE)
            ended = deployment.ask("ended", run, seconds)
            hosts[place].plug(into=True)
            length = time.monotonic() - began
            end, starts = deployment.ask("end", run), deployment.ask("starts")
    assert not ended, "it needs both hosts"
    assert ([end], starts) == (expected, [1, 1])


@pytest.mark.parametrize("faults", [Faults(loss=0.2, delay=0.0), Faults(loss=0.0, delay=0.05)], ids=["loss", "delay"])
async def test_runs_over_a_bad_cable_end_right_or_say_that_their_rank_is_lost(faults: Faults) -> None:
    expected = await alone("synthetic_loops", {"ferry": SMALL})
    with connected(2, faults=faults) as bad, far_deployment(*bad, "synthetic_loops", step_deadline=60.0) as deployment:
        ends: list[Any] = []
        while len(ends) < 8:
            ends += deployment.answers({"ferry": SMALL})
            assert deployment.ask("ready")
    right = [end for end in ends if end == expected[0]]
    # Five frames in a row that are lost take TCP longer than a cable may be cut.
    assert len(right) == len(ends) if faults.loss == 0.0 else right
    assert {end[0] for end in ends} <= {None, "worker_lost"}


async def test_a_longer_cut_ends_runs_and_the_rank_behind_it_is_started_anew(hosts: Sequence[Host]) -> None:
    """The rank is found to be lost although no deadline comes near: it may work at a step for ten minutes."""
    expected = await alone("synthetic_loops", {"ferry": LARGE})
    with far_deployment(*hosts, "synthetic_loops", step_deadline=600.0) as deployment:
        for cut in hosts:
            run = deployment.ask("submit", "ferry", ENDLESS)
            cut.plug(into=False)
            assert deployment.ask("end", run)[0] == "worker_lost"
            state, reason = deployment.ask("lost")
            assert (state, "see that host `host1` runs and is reached" in reason) == ("degraded", True)
            cut.plug(into=True)
            assert deployment.ask("ready")
            assert deployment.answers({"ferry": LARGE}) == expected
        assert deployment.ask("starts")[0] == 1, "a rank that can be reached goes on"


@pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed")
async def test_a_checkpoint_comes_to_a_host_that_lacks_it(hosts: Sequence[Host]) -> None:
    here, there = hosts
    # Each host has a folder of its own for temporary files.
    with tempfile.TemporaryDirectory() as folder, ray_cluster(*hosts) as ray:
        command = here.command(sys.executable, "-m", "tests.support.cluster_checkpoint", folder, there.name)
        environment = {**ray.environment, "WALKGRAPH_BACKEND": "ray", "WALKGRAPH_RAY_ADDRESS": ray.address}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
        told, _ = await process.communicate()
    far, near = json.loads(told)
    assert far == near
