"""A service whose deployment has a rank on another host of a Ray cluster, which is cut off or gone: runs end with a
reason, the deployment waits and says for what, and serves again once the host is back. A rank that may run on any host
comes back on another one."""

from __future__ import annotations

import os
import random
import secrets
import select
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.deployment import shared_memory
from tests.support.far_process import FarProcess
from tests.support.namespaces import Host, allowed, hosts, two_hosts
from tests.support.ray_hosts import RayCluster, ray_cluster
from tests.support.served_hosts import served
from tests.support.yardstick import patience
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
LONG: dict[str, Any] = {"times": 400, "numbers": 1 << 12}
FERRY: dict[str, Any] = {"times": 4, "numbers": 1 << 12}
ENDLESS: dict[str, Any] = {"times": 1_000_000, "numbers": 1 << 12}
CUT = {"state": "degraded", "reason": "see that host `host1` runs and is reached"}
GONE = "the cluster has no host `host1` now; start it"


@dataclass
class World:
    far: Host
    ray: RayCluster
    service: FarProcess
    expected: Any
    """The answers of the deployment."""

    def until(self, **wanted: Any) -> Any:
        return self.service.ask("until", "far", wanted)

    def back(self) -> float:
        """Seconds until the deployment serves again."""
        began = time.monotonic()
        self.until(state="ready")
        took = time.monotonic() - began
        assert self.answers() == self.expected
        return took

    def answers(self) -> Any:
        return self.service.ask("answers", "far", {"ferry": FERRY})

    def busy(self) -> None:
        """Have a run that needs both hosts all the time."""
        self.service.ask("begin", "far", "ferry", ENDLESS)
        self.until(running=1)

    def lost(self) -> float:
        """Seconds until the run has ended, as its rank was lost."""
        began = time.monotonic()
        assert self.service.ask("end") == "worker_lost"
        return time.monotonic() - began

    def workers(self) -> int:
        """Workers that run on the other host."""
        commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in self.far.pids()]
        return sum("walkgraph.worker.child" in command for command in commands)


@contextmanager
def world(home: Path) -> Iterator[World]:
    with (
        two_hosts() as (here, there),
        ray_cluster(here, there) as ray,
        served(here, ray, home) as service,
        deployed(ray, service, there) as made,
    ):
        yield made


@contextmanager
def deployed(ray: RayCluster, service: FarProcess, there: Host) -> Iterator[World]:
    service.ask("deploy", "far", "synthetic_loops", there.name)
    service.ask("until", "far", {"state": "ready"})
    made = World(there, ray, service, service.ask("answers", "far", {"ferry": FERRY}))
    yield made
    service.ask("undeploy", "far")


@pytest.mark.safety("R21")
def test_a_deployment_waits_for_a_host_that_is_cut_off_or_gone(tmp_path: Path, scale: Scale, figure: Figure) -> None:
    with world(tmp_path / "home") as w:
        for seconds in scale((), (2.0, 3.0)):
            w.far.plug(into=False)
            w.service.ask("begin", "far", "ferry", FERRY)
            time.sleep(seconds)  # its length is what is tested
            w.far.plug(into=True)
            began = time.monotonic()
            assert w.service.ask("end") == ""
            figure(f"a run ends right after a cut of {seconds:.0f} s", time.monotonic() - began, "s", at_most=2.0)

        w.busy()
        began = time.monotonic()
        w.far.plug(into=False)
        figure("runs of a host that is cut off ended within", w.lost(), "s", at_most=6.0)
        w.until(**CUT)
        time.sleep(max(0.0, scale(0.0, 10.0) - (time.monotonic() - began)))
        w.far.plug(into=True)
        figure("serves again after the cut", w.back(), "s", at_most=60.0)

        w.busy()
        w.far.kill()
        figure("runs of a host whose processes are killed ended within", w.lost(), "s", at_most=1.0)
        w.until(state="degraded", reason=GONE)
        w.ray.start(w.far)
        figure("serves again after the host has joined", w.back(), "s", at_most=60.0)

        w.far.kill()
        w.service.ask("kill")
        w.service.ask("up")
        # Ray takes some seconds to see that it is gone: it is silent until then.
        w.until(state="starting", reason="host `host1`")
        w.ray.start(w.far)
        figure(
            "serves again after the host has joined a service that was killed meanwhile", w.back(), "s", at_most=60.0
        )


@pytest.mark.safety("R21")
def test_a_host_is_killed_at_random_moments(tmp_path: Path, scale: Scale, figure: Figure) -> None:
    """Its runs end right or say why, the deployment beside has no error, and nothing is left or there twice."""
    before, chance, ended, back = shared_memory(), random.Random(21), list[float](), list[float]()
    with world(tmp_path / "home") as w:
        w.service.ask("deploy", "near", "synthetic_loops", None)
        w.service.ask("until", "near", {"state": "ready"})
        w.service.ask("repeat", "near", "spin", {"times": 20})
        codes = Counter[str]()
        for _ in range(scale(1, 20)):
            w.service.ask("begin", "far", "ferry", LONG)
            time.sleep(chance.random())  # a random moment is what is tested
            w.far.kill()
            killed = time.monotonic()
            codes[w.service.ask("end")] += 1
            ended.append(time.monotonic() - killed)
            w.ray.start(w.far)
            back.append(w.back())
            assert w.workers() == 1
        assert codes.keys() <= {"", "worker_lost"}
        assert set(w.service.ask("repeated")) == {""}
        w.service.ask("undeploy", "near")
    assert shared_memory() <= before
    figure("runs ended after a kill at a random moment within", max(ended), "s", at_most=1.0)
    figure("serves again after the host has joined, the longest", max(back), "s", at_most=60.0)


@pytest.mark.safety("R21")
def test_a_cluster_whose_head_is_killed(tmp_path: Path, scale: Scale, figure: Figure) -> None:
    """Runs go on while its nodes wait for the head; once the cluster is there again, the deployment is."""
    with (
        hosts(3) as (head, here, there),
        ray_cluster(head, here, there, served=here) as ray,
        served(here, ray, tmp_path / "home") as service,
        deployed(ray, service, there) as w,
    ):
        killed = time.monotonic()
        head.kill()
        assert w.answers() == w.expected
        ray.await_end(here, there)
        figure("nodes end after their head was killed", time.monotonic() - killed, "s")
        for host in (head, here, there):
            ray.start(host)
        figure("serves again after they have joined a new head", w.back(), "s", at_most=60.0)
        assert w.workers() == 1


@pytest.mark.safety("R21")
@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "killed"])
def test_a_rank_that_may_run_on_any_host_comes_back_on_another_one(tmp_path: Path, figure: Figure, cut: bool) -> None:
    with hosts(3) as made, ray_cluster(*made) as ray, served(made[0], ray, tmp_path / "home") as service:
        # Two ranks of this memory don't fit on the service's host.
        service.ask("deploy", "far", "synthetic_loops", "any", "60%")
        _, rank = service.ask("until", "far", {"state": "ready"})["ranks"]
        lost, third = sorted(made[1:], key=lambda host: host.name != rank["host"])
        assert rank["host"] == lost.name
        w = World(lost, ray, service, service.ask("answers", "far", {"ferry": FERRY}))
        w.busy()
        process = os.pidfd_open(rank["pid"])
        if cut:
            lost.plug(into=False)
        else:
            lost.kill()
        w.lost()
        how = "is cut off" if cut else "is killed"
        figure(f"serves again on another host once one {how}", w.back(), "s", at_most=60.0)
        lost.plug(into=True)
        ended, _, _ = select.select([process], [], [], patience(60.0))
        os.close(process)
        assert ended, "a rank that has lost its service ends"
        _, rank = w.until(state="ready")["ranks"]
        assert rank["host"] == third.name
        assert w.answers() == w.expected
        service.ask("undeploy", "far")


def test_a_service_with_another_token_says_what_it_lacks(tmp_path: Path) -> None:
    wrong = secrets.token_hex(32)
    with (
        hosts(1) as (here,),
        ray_cluster(here) as ray,
        served(here, ray, tmp_path / "home", RAY_AUTH_TOKEN=wrong) as service,
    ):
        _, reason = service.ask("refused", "far", "synthetic_loops", "host1")
        assert "doesn't accept this machine's key; set RAY_AUTH_MODE and RAY_AUTH_TOKEN" in reason
        assert wrong not in reason
