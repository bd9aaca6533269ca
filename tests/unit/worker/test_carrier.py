"""Tensors go from device to device if both ends can, else through host memory; tickets are not sent too early."""

import ctypes
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import zmq

from tests.support.device_memory import SharedMemory
from tests.unit.transports.test_conformance import ROOM
from walkgraph.ids import Rank, RunId
from walkgraph.transports.base import BadTicket
from walkgraph.transports.cuda_ipc import ArenaHandle
from walkgraph.wire import messages as m
from walkgraph.wire import sockets
from walkgraph.worker.events import Arrived, Send
from walkgraph.worker.io.carrier import Carrier, shared_memory
from walkgraph.worker.io.links import Links
from walkgraph.worker.io.peers import on_this_host

A, B = Rank(0), Rank(1)
R = RunId("r")


def told(carrier: Carrier) -> m.Peer:
    return carrier.peer("", 1)


def both(device: int = ROOM, host: int = ROOM) -> dict[str, int]:
    return {"shm": host, "cuda_ipc": device}


@pytest.fixture
def pair() -> Iterator[tuple[Carrier, Carrier]]:
    sender, receiver = Carrier(A, both(), SharedMemory()), Carrier(B, both(0), SharedMemory())
    sender.connect(B, told(receiver))
    receiver.connect(A, told(sender))
    yield sender, receiver
    receiver.close()
    sender.close()


Pair = tuple[Carrier, Carrier]


def test_device_memory_is_sent_once_the_peer_has_opened_it(pair: Pair) -> None:
    sender, receiver = pair
    first = sender.put(torch.ones(9), B)
    assert first
    assert first.transport == "shm"
    assert receiver.opened(A) == ("cuda_ipc",)
    assert not sender.opened(B), "there is nothing to open"
    sender.accept(B, "cuda_ipc")
    second = sender.put(torch.arange(9), B)
    assert second
    assert second.transport == "cuda_ipc"
    assert second.id > first.id
    assert (receiver.get(first).sum(), receiver.get(second).sum()) == (9, 36)
    assert sender.out == 2
    for ticket in (second, first):
        assert sender.there(ticket.id)
        assert receiver.taken(ticket)
        sender.free(ticket.id, B)
    assert sender.out == 0


def test_a_peer_that_is_started_anew_is_asked_anew(pair: Pair) -> None:
    sender, receiver = pair
    sender.accept(B, "cuda_ipc")
    assert sender.put(torch.ones(9), B) is not None
    assert sender.put(torch.ones(2 * ROOM, dtype=torch.uint8)[:9], B) is not None
    assert sender.sweep(B) == 2
    sender.disconnect(B)
    sender.connect(B, told(receiver))
    again = sender.put(torch.ones(9), B)
    assert again
    assert again.transport == "shm"


def test_what_the_device_cannot_hold_goes_by_the_host() -> None:
    sender = Carrier(A, both(ROOM // 2), SharedMemory())
    sender.accept(B, "cuda_ipc")
    large, half = torch.zeros(ROOM * 3 // 4, dtype=torch.uint8), torch.zeros(ROOM // 2, dtype=torch.uint8)
    assert sender.put(large, B).transport == "shm"  # type: ignore[union-attr]
    assert sender.put(half, B).transport == "cuda_ipc"  # type: ignore[union-attr]
    assert sender.put(torch.zeros(64), B) is None, "room will come"
    assert sender.put(torch.zeros(64), B, alone=True).transport == "shm"  # type: ignore[union-attr]
    sender.close()


def test_tensors_of_another_device_go_by_the_host() -> None:
    memory = SharedMemory()
    memory.device = torch.device("meta")
    sender = Carrier(A, both(), memory)
    sender.accept(B, "cuda_ipc")
    assert sender.put(torch.zeros(64), B).transport == "shm"  # type: ignore[union-attr]
    sender.close()


def test_memory_that_cannot_be_shared_or_opened_costs_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    closed = Carrier(A, both(), SharedMemory(closed=True))
    assert set(told(closed).handles) == {"shm"}
    open_, blind = Carrier(A, both(), SharedMemory()), Carrier(B, both(0), SharedMemory(closed=True))
    blind.connect(A, told(open_))
    assert not blind.opened(A)
    assert len(caplog.records) == 2
    ticket = open_.put(torch.ones(9), B)
    assert ticket
    assert blind.get(ticket).sum() == 9
    for carrier in (closed, blind, open_):
        carrier.close()
    assert shared_memory("cpu") is None


def test_a_peer_whose_table_is_another_is_refused_as_a_whole(pair: Pair) -> None:
    sender, receiver = pair
    peer = told(sender)
    handle = msgspec.msgpack.decode(peer.handles["cuda_ipc"], type=ArenaHandle)
    table = msgspec.structs.replace(handle.table, token=b"x" * 16)
    other = msgspec.msgpack.encode(msgspec.structs.replace(handle, table=table))
    wrong = msgspec.structs.replace(peer, handles={**peer.handles, "cuda_ipc": other})
    with pytest.raises(BadTicket):
        receiver.connect(A, wrong)
    ticket = sender.put(torch.ones(9), B)
    assert ticket
    with pytest.raises(BadTicket):
        receiver.get(ticket)


def test_a_part_of_the_arena_is_written_by_peers(pair: Pair) -> None:
    sender, receiver = pair
    reserved = sender.reserve(ROOM // 2)
    assert reserved
    room, offset = reserved
    assert not room.any()
    start = receiver.address(A)
    assert start
    ctypes.memset(start + offset + 5, 7, 3)
    assert room.nonzero().view(-1).tolist() == [5, 6, 7]
    sender.accept(B, "cuda_ipc")
    assert sender.put(torch.zeros(ROOM * 3 // 4, dtype=torch.uint8), B) is None
    assert sender.reserve(ROOM) is None
    assert receiver.reserve(64) is None, "it has no arena"
    assert (sender.address(B), receiver.address(B)) == (None, None)
    receiver.disconnect(A)
    assert receiver.address(A) is None
    alone = Carrier(B, {"shm": ROOM})
    assert (alone.reserve(64), alone.address(A)) == (None, None)
    alone.close()


def test_tickets_of_no_transport_here_are_refused(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.ones(9), B)
    assert ticket
    alone = Carrier(B, {"shm": ROOM})
    for way in ("cuda_ipc", "inproc"):
        other = msgspec.structs.replace(ticket, transport=way)
        assert alone.taken(other)
        for carrier in (alone, receiver):
            with pytest.raises(BadTicket):
                carrier.get(other)
    alone.close()


# ── with links ──


class End:
    def __init__(self, context: sockets.Context, folder: Path, rank: Rank, device: int = ROOM) -> None:
        self.memory = SharedMemory()
        self.carrier = Carrier(rank, both(device, 1 << 14), self.memory)
        address = sockets.address(folder, f"rank{rank}")
        conductor = sockets.dealer(context, sockets.address(folder, "nobody"), b"x")
        self.links = Links(rank, 1, conductor, sockets.pull(context, address), on_this_host(context), self.carrier)
        self.peer = self.carrier.peer(address, 1)
        self.arrived: list[Arrived] = []
        self.failed: list[str] = []

    def turn(self) -> None:
        for one in self.links.arrivals():
            if isinstance(one, Arrived):
                self.arrived.append(one)
            else:
                self.failed.append(one[1].code)
        self.links.flush()
        self.failed += [error.code for _, error in self.links.failures()]


Ends = tuple[End, End]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    context: sockets.Context = zmq.Context()
    both = End(context, tmp_path, A), End(context, tmp_path, B)
    for end in both:
        end.links.set_peers({A: both[0].peer, B: both[1].peer})
    until(both, lambda: all(end.carrier._accepted for end in both))
    yield both
    for end in both:
        end.links.close()
    context.destroy(linger=0)


def until(ends: Ends, holds: Callable[[], bool]) -> None:
    poller = zmq.Poller()
    for end in ends:
        poller.register(end.links.inbox, zmq.POLLIN)
    for _ in range(1000):
        if holds():
            return
        poller.poll(1)
        for end in ends:
            end.turn()
    raise AssertionError("it never holds")


def send(end: End, to: Rank, key: int, value: object) -> None:
    end.links.send(Send(to, m.Deliver(run=R, step=0, edge=0, key=(key,), value=m.Absent()), value, "cuda_ipc"))


def keys(end: End) -> list[int]:
    return [one.message.key[0] for one in end.arrived if isinstance(one.message, m.Deliver)]


def test_a_message_goes_when_its_tensors_are_there_and_keeps_its_place(ends: Ends) -> None:
    one, two = ends
    one.memory.slow = True
    send(one, B, 0, torch.arange(5000))
    send(one, B, 1, 7)
    one.links.flush()
    for _ in range(20):
        two.turn()
    assert keys(two) == []
    assert one.links.check_after == 0
    one.memory.work()
    until(ends, lambda: keys(two) == [0, 1])
    assert torch.equal(two.arrived[0].value, torch.arange(5000))
    until(ends, lambda: one.carrier.out == 0)
    assert one.links.check_after is None


def test_the_sender_is_told_once_the_second_copy_is_over(ends: Ends) -> None:
    one, two = ends
    two.memory.slow = True
    send(one, B, 0, [torch.arange(5000), torch.arange(3000)])
    until(ends, lambda: keys(two) == [0])
    for _ in range(20):
        one.turn()
        two.turn()
    assert one.carrier.out == 2
    assert two.links.check_after == 0
    two.memory.work()
    until(ends, lambda: one.carrier.out == 0)
    assert two.arrived[0].value[1].tolist() == list(range(3000))


def test_a_value_larger_than_the_device_arena_goes_both_ways(ends: Ends) -> None:
    one, two = ends
    send(one, B, 0, [torch.full((ROOM * 3 // 4,), 1, dtype=torch.uint8), torch.full((1 << 13,), 2, dtype=torch.uint8)])
    until(ends, lambda: keys(two) == [0])
    send(one, B, 1, [torch.full((ROOM,), 1, dtype=torch.uint8), torch.full((1 << 13,), 2, dtype=torch.uint8)])
    until(ends, lambda: keys(two) == [0, 1])
    assert [int(part.sum()) for part in two.arrived[1].value] == [ROOM, 2 << 13]


def test_a_value_larger_than_all_there_is_fails_its_run(ends: Ends) -> None:
    one, two = ends
    send(one, B, 0, [torch.zeros(ROOM, dtype=torch.uint8), *([torch.zeros(1 << 13, dtype=torch.uint8)] * 2)])
    send(one, B, 1, 5)
    until(ends, lambda: keys(two) == [1])
    assert one.failed == ["out_of_memory"]
    assert one.carrier.out == 0


def test_what_a_dead_peer_was_reading_or_sent_is_forgotten(ends: Ends) -> None:
    one, two = ends
    two.memory.slow = True
    send(one, B, 0, torch.arange(5000))
    until(ends, lambda: keys(two) == [0])
    two.links.set_peers({B: two.peer})
    assert two.links.check_after is None
    two.turn()
    one.links.set_peers({A: one.peer})
    assert one.carrier.out == 0
    one.turn()
