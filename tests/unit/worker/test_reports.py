"""A worker's reports leave with a flush, together and in order; a report that can't be sent fails alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import zmq

from walkgraph.ids import Rank, RunId
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes import posting
from walkgraph.wire.processes.posting import POST_BYTES, PostOffice, PostSender
from walkgraph.worker.io import values
from walkgraph.worker.io.reports import Reports

Pair = tuple[Reports, sockets.Socket]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    context: sockets.Context = zmq.Context()
    address = sockets.address(tmp_path, "reports")
    conductor = sockets.pair_for(context, address)
    conductor.setsockopt(zmq.RCVTIMEO, 5000)
    yield Reports(sockets.pair(context, address)), conductor
    context.destroy(linger=0)


def emit(number: int) -> m.Emit:
    return m.Emit(rank=Rank(0), run=RunId("r"), name="o", value=m.Absent(), iteration=(number,))


def flushed(told: Reports) -> None:
    told.flush()
    while told.blocked:
        told.socket.poll(5000, zmq.POLLOUT)
        told.flush()


def test_what_was_told_since_the_last_flush_is_one_frame(pair: Pair) -> None:
    told, conductor = pair
    for number in range(5):
        told.send(emit(number), number)
    assert not conductor.poll(50)
    flushed(told)
    heard: list[Any] = codec.from_worker.decode_all(conductor.recv())
    assert [(one.iteration, one.value.value) for one in heard] == [((number,), number) for number in range(5)]
    told.send(m.Pong(rank=Rank(0), number=1, at=0.0))
    told.flush()
    assert codec.from_worker.decode_all(conductor.recv()) == [m.Pong(rank=Rank(0), number=1, at=0.0)]


def test_what_can_not_travel_is_told_and_the_rest_goes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    told, conductor = pair
    monkeypatch.setattr(codec, "MAX_BYTES", 1000)
    told.send(emit(0), object())
    told.send(emit(1), "x" * 2000)
    told.send(emit(2), "x")
    assert [message.iteration for message, _ in told.failed] == [(0,), (1,)]
    flushed(told)
    assert [one.iteration for one in codec.from_worker.decode_all(conductor.recv())] == [(2,)]


def test_large_outputs_are_posted_and_all_else_goes_inside_its_message(tmp_path: Path) -> None:
    context: sockets.Context = zmq.Context()
    address = sockets.address(tmp_path, "reports")
    conductor = sockets.pair_for(context, address)
    conductor.setsockopt(zmq.RCVTIMEO, 5000)
    office, sender = PostOffice(tmp_path / posting.SERVICE), PostSender(tmp_path / posting.SERVICE, "0.1")
    told = Reports(sockets.pair(context, address), sender)
    naive = Reports(told.socket)
    tensor = torch.arange(2 * POST_BYTES).to(torch.bfloat16).view(2, -1)[:, ::2]
    given = [tensor, b"x" * POST_BYTES, [tensor, 1], torch.zeros(3), b"x", torch.zeros(0), "x" * POST_BYTES]
    heard: list[list[Any]] = []
    for one in (told, naive):
        for value in given:
            one.send(emit(0), value)
        flushed(one)
        found: list[Any] = []
        while len(found) < len(given):
            found += codec.from_worker.decode_all(conductor.recv())
        heard.append(found)
    posted = [isinstance(message.value, m.Posted) for message in heard[0]]
    assert posted == [True, True, False, False, False, False, False]
    fetched = [office.fetch(m.Output(run=RunId("r"), name="o", index=0, value=one.value)).value for one in heard[0]]
    assert fetched == [message.value for message in heard[1]]
    told.send(m.LegResult(rank=Rank(0), run=RunId("r"), name="n", value=m.Absent()), tensor)
    told.flush()
    kept: Any = codec.from_worker.decode(conductor.recv())
    assert isinstance(kept.value, m.InlineTensor), "the conductor keeps it"
    sender.close()
    office.close()
    context.destroy(linger=0)


def test_large_values_of_a_call_are_posted(tmp_path: Path) -> None:
    context: sockets.Context = zmq.Context()
    address = sockets.address(tmp_path, "reports")
    conductor = sockets.pair_for(context, address)
    conductor.setsockopt(zmq.RCVTIMEO, 5000)
    office = PostOffice(tmp_path / posting.SERVICE)
    sender = PostSender(tmp_path / posting.SERVICE, "0.1")
    told = Reports(sockets.pair(context, address), sender)
    call = m.CallTask(
        run=RunId("r"),
        rank=Rank(0),
        step=0,
        use=0,
        iteration=(),
        task="g/t",
        walk="w",
        node="n",
        name="n",
        seed=0,
        params={},
        outputs=(),
    )
    large = torch.arange(POST_BYTES)
    told.send(call, {"a": large, "b": 5})
    flushed(told)
    heard: Any = codec.from_worker.decode(conductor.recv())
    assert isinstance(heard.value.items["a"], m.Posted)
    assert office.fetch(heard).value == values.pack({"a": large, "b": 5})
    sender.close()
    office.close()
    context.destroy(linger=0)


def test_nothing_is_lost_while_the_other_end_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MOST_TOGETHER", 1)
    context: sockets.Context = zmq.Context()
    address = sockets.address(tmp_path, "reports")
    told = Reports(sockets.pair(context, address))
    for number in range(10):
        told.send(emit(number))
        told.flush()
    assert told.blocked
    conductor = sockets.pair_for(context, address)
    conductor.setsockopt(zmq.RCVTIMEO, 5000)
    flushed(told)
    heard = [codec.from_worker.decode(conductor.recv()) for _ in range(10)]
    assert heard == [emit(number) for number in range(10)]
    context.destroy(linger=0)
