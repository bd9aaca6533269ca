"""Sockets are made in one place with every default that bites overridden; paths and specs are their owner's alone."""

import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zmq

from tests.support.contexts import contexts
from tests.support.deployment import plan_named
from walkgraph.errors import InvalidInput
from walkgraph.graph import codec as graph_codec
from walkgraph.ids import RunId
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_network import Keys, make_keys
from walkgraph.wire.spec import DeploymentSpec, read_spec, write_spec

HERE = "127.0.0.1"
PATIENCE = 60_000
"""Milliseconds that nothing takes."""


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


def test_a_feed_keeps_the_first_packets_and_not_many(tmp_path: Path) -> None:
    context = zmq.Context()
    send = sockets.offer(sockets.feed(context, sockets.address(tmp_path, "late")))
    taken = [send(str(number).encode()) for number in range(500)]
    assert taken == [True] * sockets.MAX_FEED + [False] * (500 - sockets.MAX_FEED)
    into = sockets.pull(context, sockets.address(tmp_path, "late"))
    into.setsockopt(zmq.RCVTIMEO, 5000)
    assert into.recv() == b"0"
    context.destroy(linger=0)


# ── the same on one host and between hosts ─────────────────────────────────────────────────────


class Ways(NamedTuple):
    """Two processes of a deployment: contexts, and how the second one finds a socket of the first."""

    here: sockets.Context
    there: sockets.Context
    folder: Path
    between_hosts: bool

    def bound(self, make: Callable[[sockets.Context, str], sockets.Socket]) -> tuple[sockets.Socket, str]:
        """A socket and its address."""
        address = sockets.address(self.folder, "s")
        socket = make(self.here, address)
        return socket, f"tcp://{HERE}:{sockets.listen(socket, HERE)}" if self.between_hosts else address


@pytest.fixture(params=["ipc", "tcp"])
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ways]:
    keys = make_keys() if request.param == "tcp" else None
    with contexts(keys, keys) as (here, there):
        yield Ways(here, there, tmp_path, keys is not None)


def test_reading_skips_and_counts_what_is_no_message(ways: Ways) -> None:
    into, address = ways.bound(sockets.pull)
    out = sockets.push(ways.there, address)
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


def test_what_a_reader_did_not_come_to_is_given_first_the_next_time(ways: Ways) -> None:
    into, address = ways.bound(sockets.pull)
    out = sockets.push(ways.there, address)
    reader = sockets.Reader(into, codec.to_conductor)
    sent = [m.Abort(run=RunId(str(number))) for number in range(5)]
    for some in sent[:3], sent[3:]:
        count, frame = codec.together([codec.encode(message) for message in some])
        assert count == len(some)
        out.send(frame)
    found: list[object] = []
    while len(found) < len(sent):
        if not reader.waiting:
            assert into.poll(PATIENCE)
        for _, message in reader.drain(limit=1):
            found.append(message)
            break
        assert reader.waiting == (len(found) not in (3, 5))
    assert found == sent


def test_messages_keep_their_order_and_their_bytes(ways: Ways) -> None:
    into, address = ways.bound(sockets.pull)
    out = sockets.push(ways.there, address)
    sent = [random.Random(number).randbytes(number**2) for number in range(200)]
    found: list[bytes] = []
    for frame in sent:
        out.send(frame)
        while into.poll(0):
            found.append(into.recv())
    while len(found) < len(sent):
        assert into.poll(PATIENCE)
        found.append(into.recv())
    assert found == sent


def test_a_router_knows_its_peers_by_their_names(ways: Ways) -> None:
    desk, address = ways.bound(sockets.router)
    with pytest.raises(zmq.ZMQError) as absent:
        desk.send_multipart([b"0.1", b"hello"], zmq.NOBLOCK)
    assert absent.value.errno == zmq.EHOSTUNREACH
    first, second = (sockets.dealer(ways.there, address, name) for name in (b"0.1", b"1.2"))
    for name, dealt in ((b"0.1", first), (b"1.2", second)):
        dealt.send(b"hello")
        assert desk.poll(PATIENCE)
        assert desk.recv_multipart() == [name, b"hello"]
    desk.send_multipart([b"1.2", b"to you"])
    assert second.poll(PATIENCE)
    assert second.recv() == b"to you"
    assert not first.poll(0)
    first.close()
    again = sockets.dealer(ways.there, address, b"0.3")
    again.send(b"hello")
    assert desk.poll(PATIENCE)
    assert desk.recv_multipart() == [b"0.3", b"hello"]


def test_a_sender_without_a_reader_never_waits(ways: Ways) -> None:
    into, address = ways.bound(sockets.pull)
    into.close()
    send = sockets.offer(sockets.push(ways.there, address))
    assert send(b"x") is False


# ── who may connect from another host ──────────────────────────────────────────────────────────

OURS = make_keys()


@pytest.fixture
def gate() -> Iterator[tuple[sockets.Reader[m.BetweenWorkers], int]]:
    """The reader of an inbox that listens, and its port."""
    with contexts(OURS) as (context,):
        inbox = sockets.unbound_pull(context)
        port = sockets.listen(inbox, HERE)
        yield sockets.Reader(inbox, codec.between_workers, frames=2), port


def _keyless(socket: sockets.Socket) -> None:
    pass


def _of_another_deployment(socket: sockets.Socket) -> None:
    show(socket, make_keys(), make_keys().public)


def _with_keys_of_its_own(socket: sockets.Socket) -> None:
    """It knows the public key, which is not enough."""
    show(socket, make_keys(), OURS.public)


def show(socket: sockets.Socket, keys: Keys, of: str) -> None:
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt_string(zmq.CURVE_SERVERKEY, of)


@pytest.mark.parametrize("stranger", [_keyless, _of_another_deployment, _with_keys_of_its_own])
def test_a_stranger_is_refused_and_counted(
    gate: tuple[sockets.Reader[m.BetweenWorkers], int], stranger: Callable[[sockets.Socket], None]
) -> None:
    reader, port = gate
    with contexts(OURS, None) as (ours, others):
        knocking = others.socket(zmq.PUSH)
        stranger(knocking)
        knocking.connect(f"tcp://{HERE}:{port}")
        knocking.send_multipart([b"a", codec.encode(m.Freed(ticket=1))])
        assert reader.refusals is not None
        while not reader.rejected:
            assert reader.refusals.poll(PATIENCE)
            assert list(reader.drain()) == []
        sockets.push(ours, f"tcp://{HERE}:{port}").send_multipart([b"b", codec.encode(m.Freed(ticket=2))])
        found: list[object] = []
        while not found:
            assert reader.socket.poll(PATIENCE)
            found.extend(reader.drain())
        assert found == [(b"b", m.Freed(ticket=2))], "and nothing of the stranger's"


def test_the_loss_of_a_peer_on_another_host_is_told(tmp_path: Path) -> None:
    with contexts(OURS, OURS) as (context, ours):
        desk = sockets.router(context, sockets.address(tmp_path, "workers"))
        far = f"tcp://{HERE}:{sockets.listen(desk, HERE)}"
        near = sockets.dealer(ours, sockets.address(tmp_path, "workers"), b"near")
        dealer, push = sockets.dealer(ours, far, b"far"), sockets.push(ours, far)
        assert sockets.partings(near) is None
        parted, left = sockets.partings(dealer), sockets.partings(push)
        assert parted is not None
        assert left is not None
        assert dealer.poll(PATIENCE, zmq.POLLOUT)
        dealer.send(b"hello")
        assert desk.poll(PATIENCE)
        assert sockets.drop(parted) == 0
        desk.close(linger=0)
        assert parted.poll(PATIENCE)
        assert sockets.drop(parted) == 1
        assert left.poll(PATIENCE)


def test_nobody_is_let_in_while_nobody_judges() -> None:
    with contexts(OURS, OURS) as (context, ours):
        inbox = sockets.unbound_pull(context)
        port = sockets.listen(inbox, HERE)
        assert isinstance(context, sockets.DeploymentContext)
        assert context.judge is not None
        context.judge.stop()
        refused = sockets.refusals(inbox)
        assert refused is not None
        knocking = sockets.push(ours, f"tcp://{HERE}:{port}")
        assert refused.poll(PATIENCE)
        assert not knocking.poll(0, zmq.POLLOUT)


def test_a_socket_listens_at_the_address_of_its_host_alone() -> None:
    with contexts(OURS) as (context,):
        port = sockets.listen(sockets.unbound_pull(context), HERE)
        with socket.create_connection((HERE, port), timeout=60):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=60)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "*", "", "localhost", "224.0.0.1", "eth0", "127.0.0.1:5"])
def test_what_is_no_address_of_one_interface_is_not_listened_to(address: str) -> None:
    with contexts(OURS) as (context,), pytest.raises(InvalidInput, match="one interface"):
        sockets.listen(sockets.unbound_pull(context), address)


def test_without_keys_nothing_goes_over_a_network() -> None:
    with contexts(None) as (context,):
        with pytest.raises(InvalidInput, match="without keys"):
            sockets.push(context, f"tcp://{HERE}:9")
        with pytest.raises(InvalidInput, match="without keys"):
            sockets.listen(sockets.unbound_pull(context), HERE)


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
