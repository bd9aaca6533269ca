"""A deployment reserves what its ranks need in a Ray cluster, and is told while there is none."""

import asyncio
import contextlib
import errno
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.deployment import plan_named
from walkgraph.cluster.actor_server import ActorServer, bundles
from walkgraph.cluster.joining import Joining
from walkgraph.errors import InvalidInput, Refused
from walkgraph.ids import Rank
from walkgraph.placement.tables import RankPlan
from walkgraph.wire.processes import forks


def node(name: str, address: str, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": f"id of {name}", "NodeName": name, "NodeManagerAddress": address, "Alive": alive}


NODES = [node("head", "10.0.0.1"), node("far", "10.0.0.2"), node("gone", "10.0.0.3", alive=False)]
HERE = "id of head"


def ranks(*places: tuple[str, str]) -> tuple[RankPlan, ...]:
    one = plan_named("synthetic_loops", 1)[1].ranks[0]
    return tuple(replace(one, rank=Rank(rank), host=host, device=device) for rank, (host, device) in enumerate(places))


def test_each_rank_has_a_bundle_on_its_host() -> None:
    found = bundles(ranks(("", "cpu"), ("far", "cpu"), ("far", "cuda:0")), NODES, HERE)
    assert [set(bundle) for bundle in found] == [{"node:10.0.0.1"}, {"node:10.0.0.2"}, {"node:10.0.0.2", "GPU"}]


def test_ranks_of_one_gpu_share_it() -> None:
    places = ("far", "cuda:0"), ("far", "cuda:0"), ("far", "cuda:1"), ("", "cuda:0")
    assert [bundle["GPU"] for bundle in bundles(ranks(*places), NODES, HERE)] == [0.5, 0.5, 1, 1]


@pytest.mark.parametrize("host", ["gone", "other"])
def test_a_host_that_is_not_there_says_what_to_do(host: str) -> None:
    with pytest.raises(InvalidInput, match=f"no host `{host}` now; start it"):
        bundles(ranks(("", "cpu"), (host, "cpu")), NODES, HERE)


def test_hosts_of_one_name_are_not_taken_for_each_other() -> None:
    twice = [*NODES, {**node("far", "10.0.0.4"), "NodeID": "another"}]
    assert len(bundles(ranks(("", "cpu")), twice, HERE)) == 1
    with pytest.raises(InvalidInput, match=r"several hosts are called `far`; .* --node-name"):
        bundles(ranks(("", "cpu"), ("far", "cpu")), twice, HERE)


async def test_without_a_cluster_each_question_is_answered_with_the_reason(tmp_path: Path) -> None:
    def join(address: str) -> Any:
        raise Refused(f"start the head at {address}")

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        serving = asyncio.create_task(ActorServer(Joining("here", join), listener).serve())
        answers = await asyncio.to_thread(asked, tmp_path / "s")
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    reason = "start the head at here"
    assert answers == [forks.NoHosts(reason), (forks.Forked(3, 1, 0, errno.EHOSTUNREACH, reason), [])]


def asked(server: Path) -> list[Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(60)
        connection.connect(str(server))
        forks.send(connection, forks.AskHosts())
        hosts = forks.receive_host(connection)
        forks.send(connection, forks.Kill(3, 1))
        forks.send(connection, forks.Fork("d", 3, 1))
        return [hosts, forks.receive_answer(connection)]
