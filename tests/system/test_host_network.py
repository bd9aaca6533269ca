"""Deployments whose ranks are on two hosts: addresses of this machine that share no sockets but those of a network."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.support.contexts import contexts
from tests.support.deployment import Deployment, deployed, plan_named
from tests.support.tcp_ports import listening
from tests.support.yardstick import patience
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import declared_transports
from walkgraph.telemetry import events as t
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_network import HostNetwork, make_keys

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
]
HERE, THERE = "127.0.0.1", "127.0.0.2"
NUMBERS = 1 << 15


def network() -> HostNetwork:
    return HostNetwork({"": HERE, "there": THERE}, make_keys())


def spread(plan: Plan) -> Plan:
    """The plan with its second rank on the other host."""
    first, second = plan.ranks
    return msgspec.structs.replace(plan, ranks=(first, msgspec.structs.replace(second, host="there")))


async def outputs(deployment: Deployment, tasks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, list[object]]]:
    runs = [deployment.submit(task, params) for task, params in tasks.items()]
    ends = [await deployment.end(run) for run in runs]
    assert [end.error for end in ends] == [None] * len(runs)
    return [dict(deployment.outputs[run]) for run in runs]


FERRY: dict[str, Any] = {"times": 4, "numbers": NUMBERS}
STATES: dict[str, dict[str, Any]] = {task: {"prompt": 20, "seed": 5} for task in ("write", "part_ways", "peek")}


async def test_states_move_to_another_host() -> None:
    async with deployed(*plan_named("synthetic_states", 1)) as alone:
        expected = await outputs(alone, STATES)
    graph, plan = plan_named("synthetic_states")
    async with deployed(graph, spread(plan), network=network()) as deployment:
        assert await outputs(deployment, STATES) == expected


async def test_a_rank_on_another_host_tells_what_it_does_and_comes_back(tmp_path: Path) -> None:
    graph, plan = plan_named("synthetic_loops")
    context = zmq.Context()
    telemetry = sockets.pull(context, f"ipc://{tmp_path}/t")
    joined = network()
    async with deployed(graph, spread(plan), telemetry=f"ipc://{tmp_path}/t", network=joined) as deployment:
        expected = await outputs(deployment, {"ferry": FERRY})
        conductor, near, far = deployment.process.pid, deployment.pid(0), deployment.pid(1)
        assert {at for at, _ in listening(conductor)} == {HERE}
        assert len(listening(conductor)) == 2, "for messages of ranks, and for their telemetry"
        assert HERE in {at for at, _ in listening(near)}
        assert THERE in {at for at, _ in listening(far)}
        run = deployment.submit("ferry", {"times": 1_000_000, "numbers": NUMBERS})
        os.kill(far, signal.SIGKILL)
        error = (await deployment.end(run)).error
        assert error is not None
        assert error.code == "worker_lost"
        await deployment.until(lambda: deployment.status.state == "ready")
        assert await outputs(deployment, {"ferry": FERRY}) == expected
        await deployment.until(lambda: deployment.status.running == 0)
    packets: list[t.Packet] = []
    while telemetry.poll(200):
        packets.append(t.decode(telemetry.recv()))
    ran = {packet.source for packet in packets if any(isinstance(event, t.Activity) for event in packet.events)}
    assert ran == {"rank 0.1", "rank 1.2", "rank 1.3"}
    context.destroy(linger=0)


async def test_a_rank_that_was_replaced_is_never_heard_again() -> None:
    """A partition may hide it for long: it has the keys, its name, and what it computed."""
    graph, plan = plan_named("synthetic_loops")
    joined = network()
    async with deployed(graph, spread(plan), network=joined) as deployment:
        expected = await outputs(deployment, {"ferry": FERRY})
        os.kill(deployment.pid(1), signal.SIGKILL)
        await deployment.until(lambda: deployment.status.ranks[1].restarts == 1)
        await deployment.until(lambda: deployment.status.state == "ready")
        run = deployment.submit("ferry", {"times": 1_000_000, "numbers": NUMBERS})
        await deployment.until(lambda: deployment.status.running == 1)
        ours = sockets.context(None, joined.keys)
        try:
            ghosts = [sockets.dealer(ours, f"tcp://{HERE}:{port}", b"1.2") for port in ports_of(deployment)]
            for ghost in ghosts:
                assert ghost.poll(1000 * patience(60), zmq.POLLOUT)
                for message in (
                    m.Hello(rank=Rank(1), peer=m.Peer(address="", start=2, port=9)),
                    m.Emit(rank=Rank(1), run=RunId(run), name="value", value=m.Small(value=1), iteration=()),
                    m.RankFailed(rank=Rank(1), run=RunId(run), error=ErrorInfo(code="internal_error", message="")),
                    m.RankDone(rank=Rank(1), run=RunId(run), times=()),
                    m.Parted(rank=Rank(1), peer=Rank(0), start=1),
                ):
                    ghost.send(codec.encode(message))
            assert await outputs(deployment, {"ferry": FERRY}) == [*expected]
        finally:
            ours.destroy(linger=0)
        assert run not in deployment.finished
        assert run not in deployment.outputs
        assert [rank.restarts for rank in deployment.status.ranks] == [0, 1]


def ports_of(deployment: Deployment) -> list[int]:
    """Those on which the conductor listens."""
    return [port for _, port in listening(deployment.process.pid)]


async def test_a_conductor_takes_nobody_without_its_keys() -> None:
    graph, plan = plan_named("synthetic_loops")
    async with deployed(graph, spread(plan), network=network()) as deployment:
        others = sockets.context(None, make_keys())
        try:
            for at, port in listening(deployment.process.pid):
                told = ends_of(sockets.dealer(others, f"tcp://{at}:{port}", b"1.1"))
                assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in told
        finally:
            others.destroy(linger=0)
        assert await outputs(deployment, {"ferry": FERRY})


def ends_of(socket: sockets.Socket) -> set[int]:
    """The fate of the first connections of a socket, which is closed then."""
    told: list[int] = []
    with socket.get_monitor_socket():  # which tells of losses alone
        socket.disable_monitor()
    with socket, socket.get_monitor_socket(addr=f"inproc://ends{socket.FD}") as monitor:
        while told.count(zmq.EVENT_DISCONNECTED) < 2 and zmq.EVENT_HANDSHAKE_SUCCEEDED not in told:
            assert monitor.poll(1000 * patience(60)), "nothing becomes of them"
            told.append(int(recv_monitor_message(monitor)["event"]))
        socket.disable_monitor()
    return set(told)


async def test_one_that_is_too_busy_to_read_is_not_taken_for_lost(tmp_path: Path) -> None:
    """ZeroMQ's own threads answer for it."""
    keys = make_keys()
    with contexts(keys, keys) as (ours, theirs):
        desk = sockets.router(theirs, sockets.address(tmp_path, "workers"))
        busy = sockets.dealer(ours, f"tcp://{HERE}:{sockets.listen(desk, HERE)}", b"1.1")
        cut = sockets.partings(busy)
        assert cut is not None
        assert busy.poll(1000 * patience(60), zmq.POLLOUT)
        busy.send(b"before")
        assert desk.poll(1000 * patience(60))
        desk.recv_multipart()
        await asyncio.sleep(sockets.SILENT_SECONDS + 2 * sockets.HEARTBEAT_SECONDS)  # nobody reads for so long
        assert sockets.drop(cut) == 0
        desk.send_multipart([b"1.1", b"after"])
        assert busy.poll(1000 * patience(60))
        assert busy.recv() == b"after"
