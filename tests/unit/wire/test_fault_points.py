"""A fault point fails once, at the passage and in the process that are named; without a fault there is none."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import zmq
from pydantic import ValidationError

from walkgraph.engine.kv.allocator import OutOfPages, PageAllocator
from walkgraph.errors import InvalidInput
from walkgraph.settings import Settings
from walkgraph.wire import sockets
from walkgraph.wire.fault_points import RECORD, Fault, FaultPoints, fault_points, read_fault


def points(folder: Path, text: str, process: str = "rank0") -> FaultPoints:
    made = fault_points(read_fault(text), folder, process)
    assert made is not None
    return made


def test_the_named_passage_fails_and_no_other(tmp_path: Path) -> None:
    faults = points(tmp_path, "rank0:send:3")
    assert [faults.due("send") for _ in range(5)] == [False, False, True, False, False]
    assert not faults.due("receive")
    lines = (tmp_path / RECORD).read_text().splitlines()
    assert lines[2:4] == ["rank0 send 3 failed", "rank0 send 4"]
    assert (tmp_path / RECORD).stat().st_mode & 0o777 == 0o600


def test_a_fault_is_of_one_process_and_comes_once_in_a_directory(tmp_path: Path) -> None:
    assert not points(tmp_path, "rank1:send:1", "rank0").due("send")
    assert points(tmp_path, "rank1:send:1", "rank1").due("send")
    assert not points(tmp_path, "rank1:send:1", "rank1").due("send"), "what was started again is sound"


def test_without_a_fault_there_are_no_points(tmp_path: Path) -> None:
    assert fault_points(None, tmp_path, "rank0") is None
    context = sockets.context(None)
    assert type(context) is zmq.Context
    context.term()


@pytest.mark.parametrize(
    "text", ["rank0", "rank:send:1", "other:send:1", "rank0:walk:1", "rank0:send:-1", "rank0:send"]
)
def test_what_names_no_point_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_fault(text)


def test_a_fault_is_set_only_where_a_test_allows_it(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="WALKGRAPH_FAULT_POINTS"):
        Settings(home=tmp_path, fault="rank0:send:1")
    assert Settings(home=tmp_path, fault="rank0:send:1", fault_points=True).fault == "rank0:send:1"
    assert read_fault("conductor:open.process:2") == Fault(process="conductor", point="open.process", number=2)


def test_sockets_fail_as_the_system_does_and_lose_nothing(tmp_path: Path) -> None:
    address = sockets.address(tmp_path, "s")
    context = sockets.context(points(tmp_path, "rank0:receive:2"))
    into, out = sockets.pull(context, address), sockets.push(context, address)
    for number in range(3):
        out.send_multipart([b"head", str(number).encode()])
    into.setsockopt(zmq.RCVTIMEO, 5000)
    assert into.poll(5000)
    assert into.recv_multipart() == [b"head", b"0"]
    assert into.poll(5000)
    with pytest.raises(zmq.ZMQError) as raised:
        into.recv_multipart()
    assert raised.value.errno == errno.ENOMEM
    assert [into.recv_multipart()[1] for _ in range(2)] == [b"1", b"2"]
    context.destroy(linger=0)


def test_telemetry_that_cannot_be_sent_is_lost_and_nothing_else(tmp_path: Path) -> None:
    context = sockets.context(points(tmp_path, "rank0:send:1"))
    send = sockets.offer(sockets.feed(context, sockets.address(tmp_path, "t")))
    assert [send(b"x"), send(b"x")] == [False, True]
    context.destroy(linger=0)


def test_pages_run_out_and_none_is_taken(tmp_path: Path) -> None:
    pages = PageAllocator(4, points(tmp_path, "rank0:allocate.pages:2"))
    pages.take(1)
    with pytest.raises(OutOfPages):
        pages.take(1)
    assert pages.free == 3
    assert len(pages.take(3)) == 3
