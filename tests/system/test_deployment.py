"""A deployment's life with real processes on CPU: it runs, cancels, loses workers, gets them back, and ends whole."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import zmq

from tests.safety.plugin import Figure, Scale
from tests.support.deployment import (
    Deployment,
    Standing,
    children,
    deployed,
    is_gone,
    plan_named,
    shared_memory,
    workers_of,
)
from tests.support.fork_server import shared_forks
from tests.support.yardstick import patience
from walkgraph.conductor.client import DeploymentProcess, DeploymentSpec, Limits
from walkgraph.conductor.fork_server_handle import ForkServerProcess
from walkgraph.graph import codec
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m
from walkgraph.wire.processes import posting

LONG = {"times": 1_000_000, "work": 1, "side": 16}
FOREVER = {"times": 1_000_000}


pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def loops(standing: Standing) -> AsyncIterator[Deployment]:
    found = await standing("synthetic_loops")
    yield found
    await whole(found)


@pytest_asyncio.fixture(loop_scope="session")
async def faults() -> AsyncIterator[Deployment]:
    async with deployed(*plan_named("synthetic_faults")) as deployment:
        yield deployment


async def soon(holds: Callable[[], bool], limit: float) -> None:
    """Something outside the deployment holds, on an idle machine within so many seconds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < patience(limit), "it takes too long"
        await asyncio.sleep(0.002)


async def whole(deployment: Deployment) -> None:
    """It serves, and holds nothing: neither pages nor tickets nor processes that it had before."""
    run = deployment.submit("count", {"stop_at": 3})
    assert (await deployment.end(run)).error is None
    await deployment.until(lambda: deployment.status.running == 0)


# ── runs ───────────────────────────────────────────────────────────────────────────────────────


async def test_values_cross_ranks_and_loops_end(loops: Deployment) -> None:
    nested = loops.submit("nested", {"rows": 3, "columns": 2, "start": 10})
    climb = loops.submit("climb", {"times": 20, "limit": 5, "passes": 3})
    for run in (nested, climb):
        finished = await loops.end(run)
        assert finished.error is None
        assert {time.rank for time in finished.times} == {0, 1}
    assert loops.outputs[nested]["row"] == [21, 65, 155]
    assert loops.outputs[climb]["value"] == [1, 2, 3, 4]


async def test_large_tensors_go_through_shared_memory(loops: Deployment) -> None:
    before = shared_memory()
    run = loops.submit("ferry", {"times": 40, "numbers": 1 << 20})
    assert (await loops.end(run)).error is None
    assert shared_memory() == before


async def test_many_runs_at_once_all_end_well(loops: Deployment) -> None:
    chance = random.Random(2)
    runs = {}
    for _ in range(200):
        rows, columns, start = chance.randrange(1, 5), chance.randrange(1, 5), chance.randrange(100)
        runs[loops.submit("nested", {"rows": rows, "columns": columns, "start": start})] = (rows, columns, start)
    seen: dict[tuple[int, int, int], object] = {}
    for run, key in runs.items():
        assert (await loops.end(run)).error is None
        assert len(loops.outputs[run]["row"]) == key[0]
        assert seen.setdefault(key, loops.outputs[run]) == loops.outputs[run], "equal requests, equal answers"
    await whole(loops)


async def test_streams_between_ranks_deliver_every_chunk(standing: Standing) -> None:
    _, plan = plan_named("synthetic_streams")
    assert plan.streams[0].producers != plan.streams[0].consumers
    deployment = await standing("synthetic_streams")
    runs = [deployment.submit("windows", {"items": 11}) for _ in range(20)]
    for run in runs:
        assert (await deployment.end(run)).error is None
        assert deployment.outputs[run]["windows"] == [[6.0], [14.0], [22.0], [30.0], [34.0]]


@pytest.mark.safety("R20")
async def test_states_move_and_fork_across_ranks(standing: Standing) -> None:
    async with deployed(*plan_named("synthetic_states", 1)) as alone:
        one = await _tokens(alone)
    assert await _tokens(await standing("synthetic_states")) == one


async def _tokens(deployment: Deployment) -> list[dict[str, list[object]]]:
    runs = [deployment.submit(task, {"prompt": 20, "seed": 5}) for task in ("write", "part_ways", "peek")]
    ends = [await deployment.end(run) for run in runs]
    assert [end.error for end in ends] == [None] * 3
    return [dict(deployment.outputs[run]) for run in runs]


async def test_a_session_goes_on_where_it_was(standing: Standing) -> None:
    deployment = await standing("synthetic_states")
    names = ("goes on", "goes on", "goes on elsewhere")
    runs = [deployment.submit("remember", {"first": 3}, session=name) for name in names]
    for run in runs:
        assert (await deployment.end(run)).error is None
    first, second, other = (deployment.outputs[run]["token"] for run in runs)
    assert first == other
    assert second != first


# ── failure of a run ───────────────────────────────────────────────────────────────────────────


@pytest.mark.safety("R13")
async def test_one_failed_run_touches_no_other(faults: Deployment) -> None:
    good = [faults.submit("fail", {"times": 50}) for _ in range(5)]
    bad = [faults.submit("fail", {"times": 50, "at": at}) for at in (0, 7, 49)]
    numbers = faults.submit("nan", {"times": 5, "at": 2})
    for run in good:
        assert (await faults.end(run)).error is None
        assert faults.outputs[run]["value"] == list(range(50))
    for run, at in zip(bad, (0, 7, 49), strict=True):
        error = (await faults.end(run)).error
        assert error is not None
        assert (error.code, error.node, error.iteration) == ("node_error", "fail", (at,))
    error = (await faults.end(numbers)).error
    assert error is not None
    assert (error.code, error.node, error.port, error.iteration) == ("numeric_error", "nan", "items", (2,))
    assert faults.process.alive
    assert [rank.restarts for rank in faults.status.ranks] == [0, 0]


async def test_a_run_is_aborted_in_the_middle_of_its_loop(loops: Deployment) -> None:
    runs = [loops.submit("spin", FOREVER) for _ in range(8)]
    await loops.until(lambda: loops.status.running == 8)
    began = time.monotonic()
    for run in runs:
        loops.process.send(m.Abort(run=m.RunId(run)))
        loops.process.send(m.Abort(run=m.RunId(run)))
    for run in runs:
        error = (await loops.end(run)).error
        assert error is not None
        assert error.code == "cancelled"
    assert time.monotonic() - began < patience(1.0)
    await whole(loops)


async def test_a_deadline_ends_a_run(loops: Deployment) -> None:
    began = time.monotonic()
    error = (await loops.end(loops.submit("spin", FOREVER, deadline=0.5))).error
    assert error is not None
    assert error.code == "deadline_exceeded"
    assert 0.5 <= time.monotonic() - began < patience(1.5)


# ── failure of a worker ────────────────────────────────────────────────────────────────────────


@pytest.mark.safety("R1", "R17")
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_killed_worker_ends_its_runs_at_once_and_serves_again(
    loops: Deployment, rank: int, figure: Figure
) -> None:
    before, restarts = shared_memory(), loops.status.ranks[rank].restarts
    for round_number in range(2):
        runs = [loops.submit("climb", {"times": 10_000, "limit": 10_000, "passes": 64}) for _ in range(4)]
        await loops.until(lambda runs=runs: all(loops.outputs[run]["value"] for run in runs))
        began = time.monotonic()
        os.kill(loops.pid(rank), signal.SIGKILL)
        for run in runs:
            error = (await loops.end(run)).error
            assert error is not None
            assert (error.code, error.retryable, error.rank) == ("worker_lost", True, rank)
        took = time.monotonic() - began
        assert took < patience(1.0)
        figure("runs of a killed peer ended within", took, "s", at_most=1.0)
        await loops.until(lambda: loops.status.state == "degraded", patience(1.0))
        await loops.ready()
        assert time.monotonic() - began < patience(5.0), "it must serve again soon"
        await whole(loops)
        assert loops.status.ranks[rank].restarts == restarts + round_number + 1
        assert len(workers_of(loops.process.pid)) == 2
    assert shared_memory() == before


@pytest.mark.safety("R1")
async def test_workers_outlive_the_fork_server_and_are_replaced_by_the_next_one(tmp_path: Path) -> None:
    forks = ForkServerProcess(tmp_path / "forks")
    try:
        async with deployed(*plan_named("synthetic_loops"), forks=forks) as deployment:
            first = forks.pid
            assert first is not None
            run = deployment.submit("spin", {"times": 3000})
            await deployment.until(lambda: deployment.status.running == 1)
            os.kill(first, signal.SIGKILL)
            await soon(lambda: is_gone(first), 1.0)
            assert (await deployment.end(run)).error is None
            # Nobody knows its exit code, and the next server is still to be started.
            os.kill(deployment.pid(1), signal.SIGKILL)
            await deployment.until(lambda: deployment.status.state == "degraded", patience(1.0))
            await deployment.ready()
            await whole(deployment)
            assert forks.pid not in (None, first)
            family = [deployment.pid(0), deployment.pid(1)]
            await deployment.process.stop(0)
            assert all(map(is_gone, family))
    finally:
        await forks.close()


@pytest.mark.safety("R3")
async def test_a_worker_that_is_asked_for_while_the_fork_server_hangs_is_given_up(tmp_path: Path) -> None:
    forks = ForkServerProcess(tmp_path / "forks")
    try:
        async with deployed(*plan_named("synthetic_loops"), forks=forks) as deployment:
            assert forks.pid is not None
            os.kill(forks.pid, signal.SIGSTOP)
            os.kill(deployment.pid(1), signal.SIGKILL)
            await deployment.until(lambda: deployment.status.state == "degraded")
            await deployment.process.stop(0)
            assert deployment.exit_code == 0
            # It is forked for nobody now.
            os.kill(forks.pid, signal.SIGCONT)
            await soon(lambda: not children(forks.pid or 0), 5.0)
    finally:
        await forks.close()


@pytest.mark.safety("R1")
async def test_runs_that_touch_no_lost_worker_go_on(loops: Deployment) -> None:
    spin = loops.submit("spin", {"times": 20_000})
    assert {walk.name: walk.ranks for walk in plan_named("synthetic_loops")[1].walks}["spin"] == (0,)
    await loops.until(lambda: loops.status.running == 1)
    os.kill(loops.pid(1), signal.SIGKILL)
    await loops.until(lambda: loops.status.state == "degraded")
    assert (await loops.end(spin)).error is None


@pytest.mark.safety("R2")
async def test_a_worker_that_hangs_is_found_and_replaced(scale: Scale, figure: Figure) -> None:
    limits, took = Limits(step_deadline=1.0), list[float]()
    async with deployed(*plan_named("synthetic_loops", 1), limits=limits) as deployment:
        for _ in range(scale(1, 20)):
            run = deployment.submit("spin", FOREVER)
            await deployment.until(lambda: deployment.status.running == 1)
            began = time.monotonic()
            os.kill(deployment.pid(0), signal.SIGSTOP)
            error = (await deployment.end(run)).error
            assert error is not None
            assert error.code == "worker_lost"
            took.append(time.monotonic() - began)
            assert 1.0 <= took[-1] < patience(2.0)
            await deployment.ready()
            await whole(deployment)
    figure("lost, beyond its deadline", max(took) - limits.step_deadline, "s", at_most=1.0)


@pytest.mark.safety("R4")
async def test_a_worker_that_cannot_load_fails_the_deployment_with_the_reason() -> None:
    graph, plan = plan_named("synthetic_states")
    poor = tuple(msgspec.structs.replace(rank, kv_bytes=1) for rank in plan.ranks)
    async with deployed(graph, msgspec.structs.replace(plan, ranks=poor), ready=False) as deployment:
        await deployment.until(lambda: deployment.process.status is not None and deployment.status.state == "failed")
        assert "too few" in (deployment.status.reason or "")
        deployment.submit("write")
        await deployment.until(lambda: bool(deployment.rejected))


# ── the end ────────────────────────────────────────────────────────────────────────────────────


async def test_stop_ends_everything_with_a_word_for_every_run() -> None:
    async with deployed(*plan_named("synthetic_loops")) as deployment:
        runs = [deployment.submit("spin", FOREVER) for _ in range(3)]
        await deployment.until(lambda: deployment.status.running == 3)
        pids = [deployment.process.pid, *workers_of(deployment.process.pid)]
        await deployment.process.stop(0)
        assert deployment.exit_code == 0
        assert all(map(is_gone, pids))
        for run in runs:
            error = deployment.finished[run].error
            assert error is not None
            assert error.code == "shutting_down"
        assert deployment.status.state == "stopped"


async def test_a_terminated_conductor_ends_as_if_it_was_told_to_stop() -> None:
    async with deployed(*plan_named("synthetic_loops", 1)) as deployment:
        run = deployment.submit("spin", FOREVER)
        await deployment.until(lambda: deployment.status.running == 1)
        workers = workers_of(deployment.process.pid)
        os.kill(deployment.process.pid, signal.SIGINT)  # Ctrl-C in the terminal is the service's to answer
        os.kill(deployment.process.pid, signal.SIGTERM)
        error = (await deployment.end(run)).error
        assert error is not None
        assert error.code == "shutting_down"
        await soon(lambda: deployment.exit_code is not None, 5.0)
        assert deployment.exit_code == 0
        assert all(map(is_gone, workers))


async def test_stop_with_grace_lets_runs_finish() -> None:
    async with deployed(*plan_named("synthetic_loops", 1)) as deployment:
        run = deployment.submit("spin", {"times": 3000})
        await deployment.until(lambda: deployment.status.running == 1)
        await deployment.process.stop(30)
        assert deployment.finished[run].error is None
        assert deployment.exit_code == 0


@pytest.mark.safety("R3")
async def test_a_killed_conductor_takes_its_workers_along() -> None:
    async with deployed(*plan_named("synthetic_loops")) as deployment:
        workers = workers_of(deployment.process.pid)
        assert len(workers) == 2
        os.kill(deployment.process.pid, signal.SIGKILL)
        await soon(lambda: all(map(is_gone, workers)), 1.0)
        await deployment.until(lambda: deployment.exit_code is not None)
        assert deployment.exit_code == -signal.SIGKILL


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.support.deployment import deployed, plan_named, workers_of
async def main():
    async with deployed(*plan_named("synthetic_loops")) as deployment:
        print(deployment.process.pid, *workers_of(deployment.process.pid), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.safety("R3")
async def test_a_killed_parent_takes_everything_along(repository: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, cwd=repository, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in (await parent.stdout.readline()).split()]
    assert len(pids) == 3
    parent.kill()
    await soon(lambda: all(map(is_gone, pids)), 1.0)
    await parent.wait()


def posted_garbage(path: Path, frames: Iterable[bytes]) -> None:
    """Send frames to the socket that files of large values come by, over as many connections as their buffers need."""
    with contextlib.ExitStack() as senders:
        sender: socket.socket | None = None
        for frame in frames:
            with contextlib.suppress(BlockingIOError):
                if sender is not None and sender.send(frame):
                    continue
            sender = senders.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            sender.connect(str(path))
            sender.setblocking(False)
            sender.send(frame)


# ── borders ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.safety("S7")
async def test_garbage_on_every_socket_is_counted_and_harms_nothing(
    tmp_path: Path, scale: Scale, figure: Figure
) -> None:
    """Frames of pickle and noise, as one that reached the 0700 directory could send them."""
    graph, plan = plan_named("synthetic_loops")
    messages: list[m.FromConductor] = []
    packets: list[t.Packet] = []
    ended = asyncio.Event()
    context = zmq.Context()
    telemetry = context.socket(zmq.PULL)
    telemetry.bind(f"ipc://{tmp_path}/t")
    spec = DeploymentSpec(name="garbage", graph=codec.dump(graph), plan=plan, telemetry_address=f"ipc://{tmp_path}/t")
    start = DeploymentProcess.start
    process = await start(shared_forks(), tmp_path / "d", spec, messages.append, lambda code: ended.set())
    await soon(lambda: process.status is not None and process.status.state == "ready", 30)
    workers = workers_of(process.pid)
    marker = tmp_path / "executed"
    pickled = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    chance, frames = random.Random(1), scale(300, 1000)
    sockets = [path for path in (tmp_path / "d").iterdir() if path.is_socket()]
    assert len(sockets) == 8
    senders = {"workers": zmq.DEALER, "service": zmq.PAIR}
    for path in sockets:
        if path.name.startswith(posting.SERVICE):
            posted_garbage(path, [pickled, b"noise"] * (frames // 2))
            continue
        sender = context.socket(senders.get(path.name, zmq.PUSH))
        if path.name == "service":  # it has its peer, and takes nobody else: the frames stay with their sender
            sender.setsockopt(zmq.SNDHWM, frames)
        sender.connect(f"ipc://{path}")
        for number in range(frames):
            frame = pickled if number % 2 else chance.randbytes(chance.randrange(200))
            sender.send_multipart([frame] if path.name == "workers" else [chance.randbytes(8), frame])
        sender.close(linger=2000)
    await asyncio.sleep(0.5)
    while telemetry.poll(60_000):
        packets.append(t.decode(telemetry.recv()))
        if any(isinstance(e, t.RankGauge) and e.rejected >= frames for p in packets for e in p.events):
            break
    assert not marker.exists()
    assert workers_of(process.pid) == workers
    process.send(m.Submit(run=m.RunId("a"), task="climb", params={}, inputs={}))
    await soon(lambda: any(isinstance(message, m.Finished) for message in messages), 10)
    await process.stop(0)
    telemetry.close(linger=0)
    context.term()
    assert process.rejected == frames, "those that were posted"
    gauges = [event for packet in packets for event in packet.events if isinstance(event, t.RankGauge)]
    assert max((gauge.rejected for gauge in gauges), default=0) >= frames
    figure("frames refused on each socket of a deployment", frames, at_least=1000)


async def test_telemetry_tells_what_ran_and_numbers_it(tmp_path: Path) -> None:
    context = zmq.Context()
    telemetry = context.socket(zmq.PULL)
    telemetry.bind(f"ipc://{tmp_path}/t")
    async with deployed(*plan_named("synthetic_loops"), telemetry=f"ipc://{tmp_path}/t") as deployment:
        run = deployment.submit("ferry", {"times": 3, "numbers": 4096})
        await deployment.end(run)
        await deployment.until(lambda: deployment.status.running == 0)
    packets: list[t.Packet] = []
    while telemetry.poll(200):
        packets.append(t.decode(telemetry.recv()))
    telemetry.close(linger=0)
    context.term()
    numbers: dict[str, int] = {}
    for packet in packets:
        assert packet.first == numbers.get(packet.source, 0)
        assert packet.dropped == 0
        numbers[packet.source] = packet.first + len(packet.events)
    events = [event for packet in packets for event in packet.events]
    assert {event.phase for event in events if isinstance(event, t.RunPhase)} == {
        "queued", "started", "first_output", "finished"
    }  # fmt: skip
    calls = {event.node: 0 for event in events if isinstance(event, t.Activity)}
    for event in events:
        if isinstance(event, t.Activity):
            calls[event.node] += event.calls
    assert calls["load"] == calls["unload"] == 3
    moved = [event for event in events if isinstance(event, t.Transfer)]
    # Those of one edge since the last packet are summed.
    assert [event.nbytes for event in moved] == [event.count * 4096 * 4 for event in moved]
    assert sum(event.count for event in moved) == 3


@pytest.mark.safety("S16")
async def test_files_of_a_deployment_are_its_owners_alone(tmp_path: Path) -> None:
    graph, plan = plan_named("synthetic_loops", ranks=1)
    spec = DeploymentSpec(name="modes", graph=codec.dump(graph), plan=plan)
    ended = asyncio.Event()
    start = DeploymentProcess.start
    process = await start(shared_forks(), tmp_path / "d", spec, lambda message: None, lambda code: ended.set())
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d" / "spec.json").stat().st_mode & 0o777 == 0o600
    await process.stop(0)
    assert ended.is_set()
