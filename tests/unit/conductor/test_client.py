"""A deployment's process as the service sees it."""

from __future__ import annotations

import asyncio
import errno
import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.support import nested
from walkgraph.conductor import client
from walkgraph.conductor.client import DeploymentProcess, DeploymentSpec, open_files
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes import posting
from walkgraph.wire.processes.posting import PostOffice, PostSender, WorkerPost

SPEC = DeploymentSpec(name="s", graph={}, plan=nested.plan())


class Lasting:
    """A process that goes on until it is ended."""

    pid = 1
    returncode = None

    def __init__(self, code: int = -9) -> None:
        self.over = asyncio.Event()
        self.code = code

    async def wait(self) -> int:
        await self.over.wait()
        return self.code

    def kill(self) -> None:
        self.over.set()


@pytest.mark.asyncio
async def test_a_message_that_can_not_be_handled_loses_no_other_of_its_frame(tmp_path: Path) -> None:
    finished = [m.Finished(run=RunId(name)) for name in "abc"]
    heard: list[m.FromConductor] = []
    all_heard = asyncio.Event()

    def take(message: m.FromConductor) -> None:
        heard.append(message)
        if len(heard) == len(finished):
            all_heard.set()
        if message == finished[0]:
            raise KeyError("a")

    lasting: Any = Lasting()
    exited = asyncio.Event()
    bind = sockets.address(tmp_path, "service")
    process = DeploymentProcess(lasting, tmp_path, take, lambda code: exited.set())
    context: sockets.Context = zmq.Context()
    conductor = sockets.pair(context, bind)
    count, frame = codec.together([codec.encode(message) for message in finished])
    assert count == len(finished)
    conductor.send(frame)
    await asyncio.wait_for(all_heard.wait(), 60)
    assert heard == finished
    lasting.over.set()
    await asyncio.wait_for(exited.wait(), 60)
    assert process.rejected == 0
    context.destroy(linger=0)


@pytest.mark.asyncio
async def test_the_first_message_of_a_turn_leaves_at_once_and_the_others_together(tmp_path: Path) -> None:
    lasting: Any = Lasting()
    exited = asyncio.Event()
    process = DeploymentProcess(lasting, tmp_path, lambda message: None, lambda code: exited.set())
    context: sockets.Context = zmq.Context()
    conductor = sockets.pair(context, sockets.address(tmp_path, "service"))
    conductor.setsockopt(zmq.RCVTIMEO, 60_000)

    def abort(*runs: str) -> list[m.Abort]:
        return [m.Abort(run=RunId(run)) for run in runs]

    process.send(m.Drain())
    assert codec.to_conductor.decode_all(await asyncio.to_thread(conductor.recv)) == [m.Drain()]
    for one in abort("a", "b", "c"):
        process.send(one)
    # The loop makes no turn meanwhile.
    assert codec.to_conductor.decode_all(conductor.recv()) == abort("a")
    assert codec.to_conductor.decode_all(await asyncio.to_thread(conductor.recv)) == abort("b", "c")
    process.send(abort("d")[0])
    assert codec.to_conductor.decode_all(conductor.recv()) == abort("d")
    lasting.over.set()
    await asyncio.wait_for(exited.wait(), 60)
    context.destroy(linger=0)


@pytest.mark.asyncio
async def test_large_values_of_requests_are_posted_up_to_what_a_conductor_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MOST_POSTED", 1)
    heard: list[m.FromConductor] = []
    lasting: Any = Lasting()
    exited, told = asyncio.Event(), asyncio.Event()

    def take(message: m.FromConductor) -> None:
        heard.append(message)
        told.set()

    process = DeploymentProcess(lasting, tmp_path, take, lambda code: exited.set())
    context: sockets.Context = zmq.Context()
    conductor = sockets.pair(context, sockets.address(tmp_path, "service"))
    conductor.setsockopt(zmq.RCVTIMEO, 60_000)
    office = PostOffice(tmp_path / posting.CONDUCTOR)
    blob = m.Blob(data=bytes(range(256)) * 1024)
    ends = [m.Finished(run=RunId("a")), m.Rejected(run=RunId("c"), error=ErrorInfo(code="refused", message="no"))]
    posted: list[bool] = []
    for run in "abcd":
        process.send(m.Submit(run=RunId(run), task="t", params={}, inputs={"a": (blob,)}))
        (asked,) = codec.to_conductor.decode_all(await asyncio.to_thread(conductor.recv))
        assert isinstance(asked, m.Submit)
        (value,) = asked.inputs["a"]
        posted.append(isinstance(value, m.Posted))
        assert (office.opened(value) if isinstance(value, m.Posted) else value) == blob
        if run in "bc":
            told.clear()
            conductor.send(codec.encode(ends.pop(0)))
            await asyncio.wait_for(told.wait(), 60)
    assert posted == [True, False, True, True], "the end of a run, or its rejection, leaves room for others"
    answer = m.TaskAnswer(run=RunId("a"), rank=Rank(0), step=0, use=0, iteration=(), outputs={"o": blob})
    process.send(answer)
    assert codec.to_conductor.decode_all(await asyncio.to_thread(conductor.recv)) == [answer], "nobody is there"
    post = WorkerPost(tmp_path, Rank(0), 1)
    process.send(answer)
    (passed,) = codec.to_conductor.decode_all(await asyncio.to_thread(conductor.recv))
    assert isinstance(passed, m.TaskAnswer)
    value = passed.outputs["o"]
    assert isinstance(value, m.Posted)
    assert post.opener("a")(value) == blob
    lasting.over.set()
    await asyncio.wait_for(exited.wait(), 60)
    office.close()
    post.close()
    context.destroy(linger=0)


@pytest.mark.asyncio
async def test_outputs_come_with_their_posted_values_and_a_run_ends_where_one_is_lost(tmp_path: Path) -> None:
    heard: list[m.FromConductor] = []
    all_heard = asyncio.Event()

    def take(message: m.FromConductor) -> None:
        heard.append(message)
        if len(heard) == 3:
            all_heard.set()

    lasting: Any = Lasting()
    exited = asyncio.Event()
    DeploymentProcess(lasting, tmp_path, take, lambda code: exited.set())
    context: sockets.Context = zmq.Context()
    conductor = sockets.pair(context, sockets.address(tmp_path, "service"))
    sender = PostSender(tmp_path / posting.SERVICE, "0.1")
    data = bytes(range(256)) * 1024
    found, dropped = (sender.post(RunId("a"), data) for _ in range(2))
    assert found is not None
    assert dropped is not None
    lost = m.Posted(sender="0.1", number=9, nbytes=1)
    outputs = [m.Output(run=RunId(run), name="o", index=0, value=value) for run, value in (("a", found), ("b", lost))]
    for message in (*outputs, m.Finished(run=RunId("a"))):
        conductor.send(codec.encode(message))
    await asyncio.wait_for(all_heard.wait(), 60)
    assert heard[0] == msgspec.structs.replace(outputs[0], value=m.Blob(data=data))
    assert isinstance(heard[1], m.Finished)
    assert heard[1].error is not None
    assert (heard[1].error.code, heard[1].error.retryable) == ("worker_lost", True)
    conductor.setsockopt(zmq.RCVTIMEO, 5000)
    assert await asyncio.to_thread(conductor.recv) == codec.encode(m.Abort(run=RunId("b")))
    lasting.over.set()
    await asyncio.wait_for(exited.wait(), 60)
    sender.close()
    context.destroy(linger=0)


@pytest.mark.asyncio
async def test_a_process_that_has_sent_nothing_is_killed_without_waiting(tmp_path: Path) -> None:
    lasting: Any = Lasting()
    exited = asyncio.Event()
    bind = sockets.address(tmp_path, "service")
    process = DeploymentProcess(lasting, tmp_path, lambda message: None, lambda code: exited.set())
    context: sockets.Context = zmq.Context()
    conductor = sockets.pair(context, bind)
    await asyncio.wait_for(process.stop(3600), 60)
    assert exited.is_set()
    assert conductor.poll(0) == 0, "it is asked for nothing"
    context.destroy(linger=0)


@pytest.mark.asyncio
async def test_the_last_message_of_a_process_that_stopped_is_waited_for(tmp_path: Path) -> None:
    lasting: Any = Lasting(0)
    events: list[str] = []
    exited, waiting = asyncio.Event(), asyncio.Event()

    def take(message: m.FromConductor) -> None:
        assert isinstance(message, m.Status)
        events.append(message.state)
        waiting.set()

    def leave(code: int) -> None:
        events.append(f"exit {code}")
        exited.set()

    bind = sockets.address(tmp_path, "service")
    DeploymentProcess(lasting, tmp_path, take, leave)
    context: sockets.Context = zmq.Context()
    conductor = sockets.pair(context, bind)
    conductor.send(codec.encode(m.Status(state="draining", ranks=())))
    await asyncio.wait_for(waiting.wait(), 60)
    lasting.over.set()
    # The exit is seen many turns of the loop before the message comes.
    for _ in range(20):
        await asyncio.sleep(0)
    conductor.send(codec.encode(m.Status(state="stopped", ranks=())))
    await asyncio.wait_for(exited.wait(), 60)
    assert events == ["draining", "stopped", "exit 0"]
    context.destroy(linger=0)


@pytest.mark.asyncio
@pytest.mark.safety("R19")
async def test_no_process_is_started_that_could_use_up_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeroMQ would end the service where the process connects."""
    opened = open_files()
    monkeypatch.setattr(resource, "getrlimit", lambda what: (opened + 20, opened + 20))
    with pytest.raises(OSError, match="a deployment needs") as refused:
        await DeploymentProcess.start(Forks(), tmp_path, SPEC, lambda message: None, lambda code: None)
    assert refused.value.errno == errno.EMFILE


class Forks:
    async def running(self) -> Path:
        return Path("forks")


@pytest.mark.asyncio
async def test_a_process_without_a_socket_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lasting: Any = Lasting()

    async def started(*words: object, **how: object) -> Any:
        return lasting

    def refuse(*given: object) -> Any:
        raise zmq.ZMQError(errno.EMFILE)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    monkeypatch.setattr(sockets, "pair_for", refuse)
    with pytest.raises(OSError, match="no socket") as refused:
        await DeploymentProcess.start(Forks(), tmp_path, SPEC, lambda message: None, lambda code: None)
    assert refused.value.errno == errno.EMFILE
    assert lasting.over.is_set()
