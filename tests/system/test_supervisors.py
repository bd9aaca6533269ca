"""Servers that start workers and end them: by forks of a process of this host, or as actors of a Ray cluster."""

import errno
import os
import secrets
import select
import signal
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.deployment import Deployment, deployed, graph_named, is_gone, plan_named
from tests.support.fork_server import SharedForkServer, actor_server, shared_forks
from tests.support.serving import service
from tests.support.yardstick import patience
from walkgraph.client import ClientError
from walkgraph.cluster.actor_server import NO_ROOM
from walkgraph.conductor.events import Died, Spawned
from walkgraph.conductor.processes import ForkLink, Processes
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.wire.spec import DeploymentSpec, read_spec, write_spec

RAY = pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed")
FERRY: dict[str, Any] = {"times": 4, "numbers": 4096}
RANK = Rank(0)


@pytest.fixture(scope="module", params=["fork_server", pytest.param("actor_server", marks=RAY)])
def supervisor(request: pytest.FixtureRequest) -> Iterator[SharedForkServer]:
    if request.param == "fork_server":
        yield shared_forks()
        return
    made = actor_server("local")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployment's, in which a worker waits for its conductor."""
    graph, plan = plan_named("synthetic_loops")
    write_spec(tmp_path / "d", DeploymentSpec(name="s", graph=codec.dump(graph), plan=plan))
    return tmp_path / "d"


def heard(processes: Processes, count: int) -> list[Spawned | Died]:
    events: list[Spawned | Died] = []
    while len(events) < count:
        assert select.select(list(processes.files()), [], [], patience(120))[0]
        events += processes.events()
    return events


def gone(pid: int) -> bool:
    """True once a process has ended."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([file], [], [], patience(60))[0])
    finally:
        os.close(file)


def test_a_worker_is_started_and_killed(supervisor: SharedForkServer, folder: Path) -> None:
    with closing(ForkLink(supervisor.socket)) as link:
        processes = Processes(folder, link)
        processes.spawn(RANK, 1)
        (spawned,) = heard(processes, 1)
        assert isinstance(spawned, Spawned)
        assert (spawned.rank, spawned.start) == (RANK, 1)
        assert not is_gone(spawned.pid)
        processes.kill(RANK)
        assert heard(processes, 1) == [Died(RANK, 1, -signal.SIGKILL)]
        assert gone(spawned.pid)


def test_a_worker_that_can_not_load_its_plan_has_a_status(supervisor: SharedForkServer, folder: Path) -> None:
    with closing(ForkLink(supervisor.socket)) as link:
        processes = Processes(folder, link)
        processes.spawn(Rank(7), 1)
        events = heard(processes, 1 if supervisor is not shared_forks() else 2)
        assert isinstance(events[-1], Died)
        assert events[-1].code


def test_workers_end_with_their_conductor(supervisor: SharedForkServer, folder: Path) -> None:
    with closing(ForkLink(supervisor.socket)) as link:
        processes = Processes(folder, link)
        for rank in (0, 1):
            processes.spawn(Rank(rank), 1)
        pids = [event.pid for event in heard(processes, 2) if isinstance(event, Spawned)]
        assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_who_is_asked_by_order_kills_that_start_alone(supervisor: SharedForkServer, folder: Path) -> None:
    with closing(ForkLink(supervisor.socket)) as link:
        processes = Processes(folder, link)
        processes.spawn(RANK, 2)
        (spawned,) = heard(processes, 1)
        assert isinstance(spawned, Spawned)
        link.kill(RANK, 1)
        link.kill(Rank(1), 2)
        link.kill(RANK, 2)
        assert heard(processes, 1) == [Died(RANK, 2, -signal.SIGKILL)]


def test_a_rank_that_may_live_is_not_started_again(supervisor: SharedForkServer, folder: Path) -> None:
    """Another conductor of a deployment waits for the actors of the one before."""
    if supervisor is shared_forks():
        pytest.skip("a conductor of this host ends before the next one is started")
    with closing(ForkLink(supervisor.socket)) as before:
        first = Processes(folder, before)
        first.spawn(RANK, 1)
        (spawned,) = heard(first, 1)
        assert isinstance(spawned, Spawned)
        with closing(ForkLink(supervisor.socket)) as link:
            second = Processes(folder, link)
            second.spawn(RANK, 1)
            (died,) = heard(second, 1)
            assert isinstance(died, Died)
            assert not is_gone(spawned.pid)
    with closing(ForkLink(supervisor.socket)) as link:
        third, events, start = Processes(folder, link), list[Spawned | Died](), 0
        while not any(isinstance(event, Spawned) for event in events):
            start += 1
            third.spawn(RANK, start)
            events += heard(third, 1)
        assert gone(spawned.pid)


@RAY
def test_a_rank_that_has_no_room_in_the_cluster_says_so(folder: Path) -> None:
    spec = read_spec(folder)
    ranks = tuple(replace(rank, device="cuda:0") for rank in spec.plan.ranks)
    write_spec(folder, replace(spec, plan=replace(spec.plan, ranks=ranks)))
    with (
        closing(actor_server("local", "--room", "1", CUDA_VISIBLE_DEVICES="")) as full,
        closing(ForkLink(full.socket)) as link,
    ):
        processes = Processes(folder, link)
        for start in (1, 2):
            processes.spawn(RANK, start)
            assert heard(processes, 1) == [Died(RANK, start, errno.EHOSTUNREACH, NO_ROOM)]


@pytest.mark.asyncio(loop_scope="session")
async def test_answers_are_the_same_and_a_lost_worker_comes_back(supervisor: SharedForkServer) -> None:
    async with deployed(*plan_named("synthetic_loops"), forks=supervisor) as deployment:
        first = await ferried(deployment)
        pids = [deployment.pid(rank) for rank in (0, 1)]
        run = deployment.submit("ferry", {"times": 1_000_000, "numbers": 4096})
        os.kill(pids[1], signal.SIGKILL)
        error = (await deployment.end(run)).error
        assert error is not None
        assert error.code == "worker_lost"
        await deployment.until(lambda: deployment.status.state == "ready")
        assert await ferried(deployment) == first
        pids += [deployment.pid(rank) for rank in (0, 1)]
    assert all(gone(pid) for pid in pids)


async def ferried(deployment: Deployment) -> dict[str, list[Any]]:
    run = deployment.submit("ferry", FERRY)
    assert (await deployment.end(run)).error is None
    return dict(deployment.outputs[run])


@RAY
def test_a_service_deploys_to_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with service(tmp_path / "home", studio="false", backend="ray", ray_address="local") as found:
        found.up("--no-deploy")
        with found.deployed(codec.dump(graph_named("synthetic_loops")), "loops") as client:
            pids = [rank["pid"] for rank in found.wait_ready("loops")["ranks"]]
            commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]
            assert all("walkgraph.worker.child" in command for command in commands)
            assert client.run("loops", "ferry", {"params": FERRY})
        assert all(gone(pid) for pid in pids)
        assert found.down() == 0


@RAY
def test_a_cluster_that_does_not_answer_is_an_error_that_says_so(tmp_path: Path) -> None:
    with service(tmp_path / "home", studio="false", backend="ray", ray_address="127.0.0.1:1") as found:
        found.up("--no-deploy")
        with found.client() as client, pytest.raises(ClientError, match="start it, or correct WALKGRAPH_RAY_ADDRESS"):
            client.deploy(codec.dump(graph_named("synthetic_loops")), None, "loops")
        assert found.down() == 0
