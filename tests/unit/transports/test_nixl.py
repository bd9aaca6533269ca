"""Reads over a network that are torn, late, or from a peer that is gone, with both ends in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import torch

from tests.unit.transports.test_conformance import ROOM, A, B, C, got, made
from walkgraph.transports.base import BadTicket, SenderLost
from walkgraph.transports.nixl import ArenaHandle, Transport

Pair = tuple[Transport, Transport]


@pytest.fixture
def pair() -> Iterator[Pair]:
    sender, receiver = made("nixl", A), made("nixl", B)
    receiver.connect(A, sender.handle())
    yield sender, receiver
    receiver.close()
    sender.close()


def test_a_tensor_is_none_while_it_is_on_its_way(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.arange(9), B)
    assert ticket
    assert receiver.get(ticket) is None, "its header is asked for only once its bytes are here"
    assert receiver.check_after is not None
    assert torch.equal(got(receiver, ticket), torch.arange(9))
    assert receiver.check_after is None


def test_reads_at_the_same_time_end_in_any_order(pair: Pair) -> None:
    sender, receiver = pair
    tickets = [sender.put(torch.full((1 << 14,), i), B) for i in range(6)]
    for ticket in tickets:
        assert ticket
        receiver.get(ticket)
    for ticket in reversed(tickets):
        tensor = got(receiver, ticket)
        assert ticket
        assert int(tensor[0]) == int(tensor[-1]) == tickets.index(ticket)


def test_memory_of_tensors_is_used_again_once_they_are_gone(pair: Pair) -> None:
    sender, receiver = pair
    kept: list[torch.Tensor] = []
    places: set[int] = set()
    for i in range(40):
        ticket = sender.put(torch.full((ROOM // 16,), i, dtype=torch.uint8), B)
        assert ticket
        tensor = got(receiver, ticket)
        sender.free(ticket.id, B)
        if i % 10 == 0:
            kept.append(tensor.view(4, -1)[1:])
        else:
            places.add(tensor.data_ptr())
    assert len(places) <= 6, "at most two at a time beside the four that are kept"
    assert [int(tensor.min()) for tensor in kept] == [int(tensor.max()) for tensor in kept] == [0, 10, 20, 30]


def test_tensors_beyond_the_room_for_them_have_their_own() -> None:
    sender, receiver = made("nixl", A), made("nixl", B)
    receiver.connect(A, sender.handle())
    kept = []
    for i in range(30):
        ticket = sender.put(torch.full((ROOM // 8,), i, dtype=torch.uint8), B)
        assert ticket
        kept.append(got(receiver, ticket))
        sender.free(ticket.id, B)
    assert [int(tensor.min()) for tensor in kept] == [int(tensor.max()) for tensor in kept] == list(range(30))
    receiver.close()
    sender.close()
    assert int(kept[29].sum()) == 29 * (ROOM // 8), "they outlive the transport"


def test_a_block_that_is_freed_while_it_is_read_is_refused(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.ones(ROOM // 8), B)
    assert ticket
    assert receiver.get(ticket) is None
    sender.sweep(B)
    again = sender.put(torch.zeros(ROOM // 8), B)
    assert again
    assert again.offset == ticket.offset
    with pytest.raises(BadTicket, match="no longer"):
        got(receiver, ticket)
    assert not got(receiver, again).any()


def test_a_ticket_for_another_rank_is_refused(pair: Pair) -> None:
    sender, receiver = pair
    with pytest.raises(BadTicket):
        got(receiver, sender.put(torch.ones(9), C))


def test_a_ticket_that_changes_while_it_is_read_is_refused(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.arange(64), B)
    assert ticket
    assert receiver.get(ticket) is None
    with pytest.raises(BadTicket, match="differs"):
        receiver.get(msgspec.structs.replace(ticket, shape=(8, 8)))
    assert torch.equal(got(receiver, ticket), torch.arange(64))


@pytest.mark.parametrize("field", ["token", "address", "nbytes"])
def test_the_arena_of_another_is_refused(pair: Pair, field: str) -> None:
    sender, receiver = pair
    known = msgspec.msgpack.decode(sender.handle(), type=ArenaHandle)
    other: dict[str, Any] = {"token": b"x" * 16, "address": known.address + (1 << 30), "nbytes": 64}
    receiver.connect(A, msgspec.msgpack.encode(msgspec.structs.replace(known, **{field: other[field]})))
    with pytest.raises(BadTicket):
        got(receiver, sender.put(torch.ones(9), B))


@pytest.mark.parametrize("handle", [b"no handle", b""])
def test_a_handle_of_other_bytes_is_refused(pair: Pair, handle: bytes) -> None:
    sender, receiver = pair
    known = msgspec.msgpack.decode(sender.handle(), type=ArenaHandle)
    for wrong in (handle, msgspec.msgpack.encode(msgspec.structs.replace(known, agent=handle))):
        with pytest.raises(BadTicket):
            receiver.connect(A, wrong)
    with pytest.raises(SenderLost):
        receiver.get(sender.put(torch.ones(9), B))  # type: ignore[arg-type]


def test_what_failed_elsewhere_is_taken_once_its_read_is_over(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.ones(ROOM // 8), B)
    assert ticket
    assert receiver.get(ticket) is None
    for _ in range(100_000):
        if receiver.taken(ticket):
            break
        time.sleep(receiver.check_after or 0.0)
    assert receiver.taken(ticket)
    assert receiver.check_after is None


def test_a_peer_may_leave_in_the_middle_and_come_again(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.ones(ROOM // 8), B)
    assert ticket
    assert receiver.get(ticket) is None
    receiver.disconnect(A)
    assert receiver.taken(ticket), "its sender is gone"
    receiver.connect(A, sender.handle())
    sender.free(ticket.id, B)
    assert got(receiver, sender.put(torch.full((9,), 2), B)).sum() == 18


def test_a_transport_closes_in_the_middle_of_a_read() -> None:
    sender, receiver = made("nixl", A), made("nixl", B)
    receiver.connect(A, sender.handle())
    assert receiver.get(sender.put(torch.ones(ROOM // 8), B)) is None
    receiver.close()
    sender.close()
    sender, receiver = made("nixl", A), made("nixl", B)
    receiver.connect(A, sender.handle())
    ticket = sender.put(torch.ones(ROOM // 8), B)
    assert receiver.get(ticket) is None
    sender.close()
    # The read may have come to its end just before: then all of the value is there.
    with suppress(SenderLost):
        assert torch.equal(got(receiver, ticket), torch.ones(ROOM // 8))
    receiver.close()
