"""Deployments of a service that has other hosts."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.support.deployment import ROOT
from tests.unit.service.conftest import serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.placement.hardware import Hardware, find_hardware
from walkgraph.placement.host.host_links import HostLink
from walkgraph.service.deployments import supervisor
from walkgraph.settings import Settings
from walkgraph.wire.processes.host_hardware import HostsUnknown

FAR: dict[str, Any] = {
    "format": "walkgraph/placement@1",
    "name": "far",
    "graph": "shapes",
    "groups": [{"nodes": ["*"], "ranks": [0], "memory": "512MiB", "host": "far"}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}
BODY = {"graph": "shapes", "placement": FAR}


class Cluster:
    """Hosts as the service finds them, or the reason why it doesn't."""

    def __init__(self, *others: str) -> None:
        found = find_hardware()
        far = [replace(found, host=name, address="10.0.0.2") for name in others]
        links = [HostLink(first="near", second=name, bandwidth=1e9, latency=0.001) for name in others]
        self.hardware = replace(found, host="near", address="10.0.0.1", others=tuple(far), links=tuple(links))
        self.unknown = 0
        """How often it can't be asked from now on."""

    async def __call__(self, without: Collection[str] = ()) -> Hardware:
        if self.unknown:
            self.unknown -= 1
            raise HostsUnknown("the cluster is away; start its head")
        return self.hardware


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_LAST", 0.004)


async def test_a_plan_over_hosts_gets_their_network(settings: Settings) -> None:
    async with serving(settings, FakeFleet(), Cluster("far")) as service:
        assert (await service.http.post("/api/v1/plans", json=BODY)).json()["deployable"]
        await service.deploy()
        answer = await service.http.post("/api/v1/deployments", json={**BODY, "name": "spread"})
        assert answer.status_code == 202, answer.text
        await service.settled("spread")
        alone, spread = (deployment.spec for deployment in service.fleet.started)
        assert alone.network is None
        assert spread.network is not None
        assert spread.network.addresses == {"": "10.0.0.1", "far": "10.0.0.2"}
        assert [rank.host for rank in spread.plan.ranks] == ["far"]


async def test_hosts_can_be_planned_for_as_if_nothing_ran_there(settings: Settings) -> None:
    cluster = Cluster("far")
    full = [replace(device, free=0) for device in cluster.hardware.others[0].devices]
    cluster.hardware = replace(cluster.hardware, others=(replace(cluster.hardware.others[0], devices=tuple(full)),))
    async with serving(settings, FakeFleet(), cluster) as service:
        now = (await service.http.post("/api/v1/plans", json=BODY)).json()
        then = (await service.http.post("/api/v1/plans", json={**BODY, "hardware": "cluster"})).json()
    assert (now["ok"], then["ok"], then["deployable"]) == (False, True, True)
    assert [rank["host"] for rank in then["ranks"]] == ["far"]
    assert {device["host"] for device in then["devices"]} == {"near", "far"}
    assert all(device["free"] == device["total"] for device in then["devices"])


async def test_a_state_that_changes_host_says_how_long_it_takes(settings: Settings) -> None:
    apart = {
        "format": "walkgraph/placement@1",
        "name": "apart",
        "groups": [
            {"nodes": ["*"], "ranks": [0], "memory": "2GiB"},
            {"nodes": ["llm"], "walks": ["decode"], "ranks": [1], "memory": "2GiB", "host": "far"},
        ],
        "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
    }
    async with serving(settings, FakeFleet(), Cluster("far")) as service:
        body = {"graph": "shapes", "placement": apart, "hardware": "cluster"}
        plan = (await service.http.post("/api/v1/plans", json=body)).json()
        apart["groups"][1].pop("host")  # type: ignore[attr-defined]
        near = (await service.http.post("/api/v1/plans", json=body)).json()
    assert plan["ok"], plan["problems"]
    assert plan["host_links"] == [{"first": "near", "second": "far", "bandwidth": 1e9, "latency": 0.001}]
    [copy, *_] = [copy for copy in plan["copies"] if copy["bytes"]]
    assert copy["seconds"] == 0.001 + copy["bytes"] / 1e9
    assert {copy["seconds"] for copy in near["copies"]} == {None}


async def test_a_simulated_request_says_what_goes_between_hosts(settings: Settings) -> None:
    document = json.loads((ROOT / "placements" / "synthetic_loops_two_ranks.json").read_text())
    document["groups"][1]["host"] = "far"
    body = {"graph": "synthetic_loops", "task": "ferry", "params": {"times": 4}}
    async with serving(settings, FakeFleet(), Cluster("far")) as service:

        async def simulated(**more: Any) -> dict[str, Any]:
            return (await service.http.post("/api/v1/graphs/simulate", json={**body, **more})).json()

        sizes = {"/walks/ferry/edges/0": 4_000_000}
        found = await simulated(placement=document, hardware="cluster", sizes=sizes)
        near = await simulated()
        assumed = copy.deepcopy(document)
        assumed["groups"][1]["host"] = "host1"
        unknown = await simulated(placement=assumed, hardware="2 hosts")
        document["groups"][1]["host"] = "nowhere"
        refused = await simulated(placement=document)
    assert found["ok"], found["problems"]
    [step] = found["lanes"][0]["steps"]
    # Four times 1 ms, and 4 MB at 1 GB/s.
    seconds = pytest.approx(4 * (0.001 + 0.004))
    assert step["host_costs"] == [
        {
            "pointer": "/walks/ferry/edges/0",
            "what": "load.items -> unload.items",
            "source": "near",
            "target": "far",
            "times": 4,
            "bytes": 4_000_000,
            "seconds": seconds,
        }
    ]
    assert found["between_hosts"] == seconds
    assert (near["between_hosts"], near["lanes"][0]["steps"][0]["host_costs"]) == (None, [])
    [cost] = unknown["lanes"][0]["steps"][0]["host_costs"]
    assert (cost["target"], cost["times"], cost["seconds"], unknown["between_hosts"]) == ("host1", 4, None, None)
    assert not refused["ok"]
    assert all(problem["pointer"].startswith("/placement") for problem in refused["problems"])


async def test_hosts_can_be_assumed(settings: Settings) -> None:
    placed = {**FAR, "groups": [{"nodes": ["*"], "ranks": [0], "host": "host1"}]}
    placed["ranks"] = [{"rank": 0, "device": "cuda:2"}]
    async with serving(settings, FakeFleet(), Cluster("far")) as service:
        body = {"graph": "shapes", "placement": placed}
        plan = (await service.http.post("/api/v1/plans", json={**body, "hardware": "2 hosts x 3x80GB"})).json()
        assert (plan["ok"], plan["deployable"]) == (True, False)
        assert {(device["host"], device["name"]) for device in plan["devices"]} == {
            (f"host{i}", name) for i in (0, 1) for name in ("cpu", "cuda:0", "cuda:1", "cuda:2")
        }
        alone = (await service.http.post("/api/v1/plans", json={"graph": "shapes", "hardware": "1x80GB"})).json()
        assert {device["host"] for device in alone["devices"]} == {find_hardware().host}


async def test_hosts_are_listed_with_the_ranks_that_run_there(settings: Settings) -> None:
    cluster = Cluster("far", "idle")
    async with serving(settings, FakeFleet(), cluster) as service:
        await service.deploy()
        await service.http.post("/api/v1/deployments", json={**BODY, "name": "spread"})
        await service.settled("spread")
        near, far, idle = (await service.http.get("/api/v1/hosts")).json()
        assert [(host["name"], host["address"], host["here"]) for host in (near, far, idle)] == [
            ("near", "10.0.0.1", True),
            ("far", "10.0.0.2", False),
            ("idle", "10.0.0.2", False),
        ]
        assert all(host["alive"] for host in (near, far, idle))
        ready = {"rank": 0, "device": "cpu", "state": "ready"}
        assert near["ranks"] == [{"deployment": "shapes", **ready}]
        assert far["ranks"] == [{"deployment": "spread", **ready}]
        assert idle["ranks"] == []
        way = {"bandwidth": 1e9, "latency": 0.001}
        assert [host["reaches"] for host in (near, far)] == [
            [{"host": "far", **way}, {"host": "idle", **way}],
            [{"host": "near", **way}],
        ]
        assert far["devices"][0]["free"] <= idle["devices"][0]["free"]
        assert idle["devices"][0]["total"] == cluster.hardware.devices[0].total
        cluster.hardware = replace(cluster.hardware, others=cluster.hardware.others[1:])
        _, _, gone = (await service.http.get("/api/v1/hosts")).json()
        assert (gone["name"], gone["alive"], gone["devices"], gone["ranks"]) == ("far", False, [], far["ranks"])
        cluster.unknown = 1
        assert (await service.http.get("/api/v1/hosts")).status_code == 503


async def test_a_service_without_a_cluster_has_one_host(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as service:
        await service.deploy()
        [host] = (await service.http.get("/api/v1/hosts")).json()
    assert (host["name"], host["address"], host["here"]) == (find_hardware().host, "", True)
    assert [rank["deployment"] for rank in host["ranks"]] == ["shapes"]


async def test_a_host_that_is_not_in_the_cluster_is_refused(settings: Settings) -> None:
    async with serving(settings, FakeFleet(), Cluster("other")) as service:
        answer = await service.http.post("/api/v1/deployments", json=BODY)
        assert answer.status_code == 422
        assert [error["code"] for error in answer.json()["errors"]] == ["unknown_host"]
        assert not service.fleet.started


async def test_a_cluster_that_is_away_is_told_and_can_be_asked_again(settings: Settings) -> None:
    cluster = Cluster("far")
    async with serving(settings, FakeFleet(), cluster) as service:
        for path in ("plans", "deployments"):
            cluster.unknown = 1
            answer = await service.http.post(f"/api/v1/{path}", json=BODY)
            assert answer.status_code == 503
            assert answer.json()["detail"] == "the cluster is away; start its head"
            assert answer.json()["retryable"]
        assert not service.fleet.started


@pytest.mark.usefixtures("_impatient")
async def test_stored_deployments_wait_for_the_cluster(settings: Settings) -> None:
    async with serving(settings, FakeFleet(), Cluster("far")) as service:
        assert (await service.http.post("/api/v1/deployments", json={**BODY, "name": "far"})).status_code == 202
        await service.settled("far")
    cluster = Cluster("far")
    cluster.unknown = 3
    async with serving(settings, FakeFleet(), cluster) as service:
        managed, reasons = service.services.deployments.get("far"), set[str | None]()
        while managed.state == "starting":
            await managed.changed.wait()
            reasons.add(managed.serving.status.reason)
        assert managed.state == "ready"
        assert "the cluster is away; start its head; this is tried again" in reasons


@pytest.mark.usefixtures("_impatient")
async def test_stored_deployments_wait_for_their_hosts(settings: Settings) -> None:
    async with serving(settings, FakeFleet(), Cluster("far")) as service:
        assert (await service.http.post("/api/v1/deployments", json={**BODY, "name": "far"})).status_code == 202
        await service.settled("far")
    cluster = Cluster("other")
    async with serving(settings, FakeFleet(), cluster) as service:
        managed = service.services.deployments.get("far")
        while managed.serving.status.reason is None:
            await managed.changed.wait()
        assert managed.state == "starting"
        assert managed.serving.status.reason == "the cluster has no host `far` now; start it; this is tried again"
        cluster.hardware = Cluster("far").hardware
        await service.settled("far")
        assert managed.state == "ready"
