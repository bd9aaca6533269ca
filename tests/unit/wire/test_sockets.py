"""Sockets are made in one place with every default that bites overridden; paths and specs are their owner's alone."""

import signal
import threading
from pathlib import Path

import pytest
import zmq

from tests.support.deployment import plan_named
from walkgraph.errors import InvalidInput
from walkgraph.graph import codec as graph_codec
from walkgraph.ids import RunId
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.spec import DeploymentSpec, read_spec, write_spec


def dealer(context: sockets.Context, connect: str) -> sockets.Socket:
    return sockets.dealer(context, connect, b"0")


@pytest.mark.parametrize("make", [sockets.router, dealer, sockets.pair_for, sockets.pair, sockets.pull, sockets.push])
def test_no_socket_keeps_a_default_that_bites(make, tmp_path: Path) -> None:
    context = zmq.Context()
    socket = make(context, sockets.address(tmp_path, "s"))
    assert socket.getsockopt(zmq.LINGER) == 0
    assert socket.getsockopt(zmq.MAXMSGSIZE) == codec.MAX_BYTES
    assert 0 < socket.getsockopt(zmq.SNDHWM) <= sockets.MAX_QUEUED
    assert 0 < socket.getsockopt(zmq.RCVHWM) <= sockets.MAX_QUEUED
    assert socket.getsockopt(zmq.IMMEDIATE) == 1
    socket.close()
    context.term()


def test_a_path_too_long_for_a_socket_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="shorter state directory"):
        sockets.address(tmp_path / ("x" * 100), "workers")


def test_an_offer_never_waits(tmp_path: Path) -> None:
    context = zmq.Context()
    send = sockets.offer(sockets.push(context, sockets.address(tmp_path, "nobody")))
    assert send(b"x") is False
    context.destroy(linger=0)


def test_a_feed_keeps_the_first_packets_and_not_many(tmp_path: Path) -> None:
    context = zmq.Context()
    send = sockets.offer(sockets.feed(context, sockets.address(tmp_path, "late")))
    taken = [send(str(number).encode()) for number in range(500)]
    assert taken == [True] * sockets.MAX_FEED + [False] * (500 - sockets.MAX_FEED)
    into = sockets.pull(context, sockets.address(tmp_path, "late"))
    into.setsockopt(zmq.RCVTIMEO, 5000)
    assert into.recv() == b"0"
    context.destroy(linger=0)


def test_reading_skips_and_counts_what_is_no_message(tmp_path: Path) -> None:
    context = zmq.Context()
    into = sockets.pull(context, sockets.address(tmp_path, "s"))
    out = sockets.push(context, sockets.address(tmp_path, "s"))
    good = codec.encode(m.Freed(ticket=4))
    for frames in ([b"a", good], [b"a"], [b"a", b"\x00"], [b"a", good, good], [b"b", good]):
        out.send_multipart(frames)
    reader = sockets.Reader(into, codec.between_workers, frames=2)
    found: list[tuple[bytes, object]] = []
    while len(found) < 2:
        into.poll(1000)
        found.extend(reader.drain())
    assert found == [(b"a", m.Freed(ticket=4)), (b"b", m.Freed(ticket=4))]
    assert reader.rejected == 3
    context.destroy(linger=0)


def test_what_a_reader_did_not_come_to_is_given_first_the_next_time(tmp_path: Path) -> None:
    context = zmq.Context()
    into = sockets.pull(context, sockets.address(tmp_path, "s"))
    out = sockets.push(context, sockets.address(tmp_path, "s"))
    reader = sockets.Reader(into, codec.to_conductor)
    sent = [m.Abort(run=RunId(str(number))) for number in range(5)]
    for some in sent[:3], sent[3:]:
        count, frame = codec.together([codec.encode(message) for message in some])
        assert count == len(some)
        out.send(frame)
    found: list[object] = []
    while len(found) < len(sent):
        if not reader.waiting:
            assert into.poll(5000)
        for _, message in reader.drain(limit=1):
            found.append(message)
            break
        assert reader.waiting == (len(found) not in (3, 5))
    assert found == sent
    context.destroy(linger=0)


def test_a_spec_comes_back_as_it_was(tmp_path: Path) -> None:
    graph, plan = plan_named("synthetic_streams")
    spec = DeploymentSpec(name="s", graph=graph_codec.dump(graph), plan=plan, checkpoint_roots=("/models",))
    write_spec(tmp_path / "d", spec)
    assert read_spec(tmp_path / "d") == spec
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d" / "spec.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", [b"", b"{}", b"[1", b'{"name": "x", "more": 1}'])
def test_a_spec_that_cannot_be_read_says_what_to_do(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "spec.json").write_bytes(text)
    with pytest.raises(InvalidInput, match="deploy again"):
        read_spec(tmp_path)


def test_a_context_is_closed_whole_whatever_signals_come(tmp_path: Path) -> None:
    """libzmq gives up on closing a context when a signal interrupts it; a service gets one for each child that ends."""
    done, here = threading.Event(), threading.main_thread().ident
    assert here is not None

    def interrupt() -> None:
        while not done.wait(0.0003):
            signal.pthread_kill(here, signal.SIGUSR1)

    heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    former = signal.signal(signal.SIGUSR1, hear)
    thread = threading.Thread(target=interrupt)
    before = len(list(Path("/proc/self/fd").iterdir()))
    thread.start()
    try:
        for number in range(200):
            context: sockets.Context = zmq.Context()
            socket = sockets.pair_for(context, sockets.address(tmp_path, f"s{number}"))
            sockets.end(context)
            assert socket.closed
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGUSR1, former)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert heard > 0
