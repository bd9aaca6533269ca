"""A host of a cluster is lost: ranks that may run on any host come back on another one, and others wait for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeDeployment, FakeFleet
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.service.deployments.moving import lost_hosts
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.wire import messages as m

GIB = 2**30
DEPLOYMENT = "shapes"
PATH = f"/api/v1/deployments/{DEPLOYMENT}"
DRAW = f"/v1/tasks/{DEPLOYMENT}/text_to_image"
WAITS = {"inputs": {"prompt": "a red circle"}, "params": {"seed": 13}}
AWAY = "rank 1 has ended or is cut off"


@dataclass
class Cluster:
    """`a`, the service's, and `b` and `c` with so many bytes of memory; every rank of the tests takes a gibibyte."""

    memory: dict[str, int] = field(default_factory=lambda: {"a": GIB, "b": 9 * GIB, "c": 9 * GIB})
    gone: set[str] = field(default_factory=set[str])
    asked: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    """The hosts that were left out, question by question."""

    async def __call__(self, without: Collection[str] = ()) -> Hardware:
        self.asked.append(frozenset(without))
        first, *others = [
            Hardware(
                host=name,
                cores=8,
                shm=GIB,
                devices=(Device(name="cpu", total=size, free=size),),
                address=f"10.0.0.{place}",
            )
            for place, (name, size) in enumerate(self.memory.items(), 1)
            if name not in self.gone and name not in without
        ]
        return replace(first, others=tuple(others))


def placed(*hosts: str | None) -> dict[str, Any]:
    """Rank 0 with everything, and one more rank for each host."""
    nodes = ["llm_cfg_text", "llm_cfg_img"]
    entries = [{"rank": 0, "device": "cpu"}]
    entries += [
        {"rank": i, "device": "cpu", **({} if host is None else {"host": host})} for i, host in enumerate(hosts, 1)
    ]
    groups = [{"nodes": ["*"], "ranks": [0], "memory": "1GiB"}]
    groups += [{"nodes": [nodes[i]], "ranks": [i + 1], "memory": "1GiB"} for i in range(len(hosts))]
    return {"format": "walkgraph/placement@1", "name": "p", "groups": groups, "ranks": entries}


@dataclass
class World:
    service: Running
    cluster: Cluster

    async def deploy(self, placement: dict[str, Any]) -> FakeDeployment:
        body = {"graph": "shapes", "placement": placement}
        answer = await self.service.http.post("/api/v1/deployments", json=body)
        assert answer.status_code == 202, answer.text
        await self.service.settled(DEPLOYMENT)
        return self.service.fleet.started[-1]

    async def until(self, holds: Any) -> dict[str, Any]:
        found = self.service.services.deployments.get(DEPLOYMENT)
        while not holds(found):
            await found.changed.wait()
        return (await self.service.http.get(PATH)).json()


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    cluster = Cluster()
    async with serving(settings.model_copy(update={"move_after": 0.0}), FakeFleet(), cluster) as running:
        yield World(running, cluster)


def hosts(of: FakeDeployment) -> list[str]:
    return [rank.host for rank in of.spec.plan.ranks]


def lose(process: FakeDeployment, *lost: int, away: bool = True) -> None:
    """The conductor says that ranks wait for their host; `away` false: they are only started again."""
    ranks = tuple(
        m.RankStatus(rank=one.rank, state="lost", reason=AWAY, away=away)
        if one.rank in lost
        else m.RankStatus(rank=one.rank, state="ready")
        for one in process.spec.plan.ranks
    )
    process.say(m.Status(state="degraded", ranks=ranks, reason=AWAY))


async def test_it_comes_back_on_another_host_beside_what_still_serves(world: World) -> None:
    first = await world.deploy(placed("any"))
    assert hosts(first) == ["", "b"]
    shown = (await world.service.http.get(PATH)).json()
    assert [rank["host"] for rank in shown["ranks"]] == [None, "b"]
    world.cluster.memory["a"] = 3 * GIB
    world.service.fleet.ready = False
    waiting = asyncio.create_task(world.service.http.post(DRAW, json=WAITS))
    run = await first.waiting.get()
    lose(first, 1)
    second = await world.service.fleet.until(2)
    assert hosts(second) == ["", ""], "the service's own has room now"
    assert first.alive
    assert world.cluster.asked[-1] == {"b"}, "a host that is lost is not waited for"
    second.ready()
    after = await world.until(lambda found: found.next is None)
    assert (after["state"], after["reason"]) == ("ready", None)
    assert not waiting.done(), "runs of other ranks go on"
    first.finish(run)
    assert (await waiting).status_code == 200
    await first.gone.wait()
    (row,) = await world.service.services.store.read(queries.list_deployments)
    assert '"host":"any"' in row.placement_text
    entries = (await world.service.http.get("/api/v1/audit", params={"action": "deployment.move"})).json()
    (entry,) = entries["entries"] if isinstance(entries, dict) else entries
    assert (entry["outcome"], entry["details"]["without"]) == ("done", ["b"])


async def test_where_there_is_no_room_for_both_the_former_version_ends_first(world: World) -> None:
    first = await world.deploy(placed("any"))
    lose(first, 1)
    second = await world.service.fleet.until(2)
    assert not first.alive
    assert hosts(second) == ["", "c"]
    assert (await world.until(lambda found: found.state == "ready"))["next"] is None
    assert len(set(world.service.fleet.directories)) == 2, "nothing of one is taken for the other's"
    keys = [one.spec.network.keys for one in (first, second) if one.spec.network]
    assert len(set(map(repr, keys))) == 2


async def test_a_rank_that_is_only_started_again_stays(world: World) -> None:
    first = await world.deploy(placed("any"))
    lose(first, 1, away=False)
    await world.until(lambda found: found.state == "degraded")
    assert not lost_hosts(world.service.services.deployments.get(DEPLOYMENT))


async def test_ranks_whose_host_is_named_wait_for_it(world: World) -> None:
    first = await world.deploy(placed("b"))
    lose(first, 1)
    await world.until(lambda found: found.state == "degraded")
    assert not lost_hosts(world.service.services.deployments.get(DEPLOYMENT))


async def test_a_deployment_that_names_the_lost_host_too_waits_and_says_so(world: World) -> None:
    world.cluster.memory["c"] = 1
    first = await world.deploy(placed("b", "any"))
    assert hosts(first) == ["", "b", "b"]
    lose(first, 1, 2)
    shown = await world.until(lambda found: found.unmoved is not None)
    assert shown["reason"].startswith(f"{AWAY}; its ranks are not brought to another host: there is no host `b`")
    assert first.alive
    first.ready()
    shown = await world.until(lambda found: found.unmoved is None)
    assert (shown["state"], shown["reason"]) == ("ready", None)


async def test_too_little_room_elsewhere_is_told(world: World) -> None:
    first = await world.deploy(placed("any"))
    world.cluster.memory["c"] = 1
    lose(first, 1)
    shown = await world.until(lambda found: found.unmoved is not None)
    assert "no host has room for rank 1: `a` `cpu` has 1.0 GiB free" in shown["reason"]
    assert first.alive


async def test_replicas_that_serve_are_not_ended_for_want_of_room(world: World) -> None:
    placement = placed("any", "c")
    placement["groups"] = [
        {"nodes": ["*"], "ranks": [0], "memory": "1GiB"},
        {"nodes": ["llm_cfg_text"], "ranks": [1, 2], "replicas": 2, "memory": "1GiB"},
    ]
    first = await world.deploy(placement)
    assert hosts(first) == ["", "b", "c"]
    lose(first, 1)
    shown = await world.until(lambda found: found.unmoved is not None)
    assert first.alive
    assert shown["state"] == "degraded"
    assert len(world.service.fleet.started) == 1


async def test_the_next_version_of_a_switch_moves_too(world: World) -> None:
    world.cluster.memory["a"] = 9 * GIB
    await world.deploy(placed(None))
    world.cluster.memory["a"] = 3 * GIB
    world.service.fleet.ready = False
    answer = await world.service.http.put(PATH, json={"graph": "shapes", "placement": placed("any", "any")})
    assert answer.status_code == 202, answer.text
    second = await world.service.fleet.until(2)
    moved = [host for host in hosts(second) if host]
    assert moved
    assert set(moved) == {"b"}
    lose(second, *(rank.rank for rank in second.spec.plan.ranks if rank.host == "b"))
    third = await world.service.fleet.until(3)
    assert "b" not in hosts(third)
    third.ready()
    await world.until(lambda found: found.next is None)
    assert not second.alive


async def test_a_process_that_starts_again_is_planned_anew_if_a_host_is_gone(world: World) -> None:
    first = await world.deploy(placed("any"))
    world.cluster.gone.add("b")
    first.die(1)
    second = await world.service.fleet.until(2)
    assert hosts(second) == ["", "c"]


async def test_a_service_that_comes_back_plans_elsewhere_at_once_or_waits_for_room(settings: Settings) -> None:
    cluster = Cluster()
    async with serving(settings, FakeFleet(), cluster) as running:
        assert hosts(await World(running, cluster).deploy(placed("any"))) == ["", "b"]
    cluster.gone.add("b")
    async with serving(settings, FakeFleet(), cluster) as running:
        assert hosts(await running.fleet.until(1)) == ["", "c"]
    cluster.gone.add("c")
    async with serving(settings, FakeFleet(), cluster) as running:
        world = World(running, cluster)
        shown = await world.until(lambda found: found.serving.status.reason is not None)
        assert shown["state"] == "starting"
        assert "no host has room for rank 1" in shown["reason"]
        assert "tried again" in shown["reason"]
