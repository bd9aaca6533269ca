"""Properties of device memory: copies that take time on both sides, and drivers that refuse to share."""

from collections.abc import Iterator

import pytest
import torch

from tests.support.device_memory import SharedMemory
from tests.unit.transports.test_conformance import ROOM, A, B
from walkgraph.memory.device import Unavailable
from walkgraph.transports.base import BadTicket
from walkgraph.transports.cuda_ipc import ROWS, Transport


class Two:
    def __init__(self) -> None:
        self.here, self.there = SharedMemory(slow=True), SharedMemory(slow=True)
        self.sender, self.receiver = Transport(A, ROOM, self.here), Transport(B, ROOM, self.there)
        self.receiver.connect(A, self.sender.handle())


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.receiver.close()
    made.sender.close()
    assert made.there.opened == 0


def test_a_ticket_is_there_once_its_copy_is_over(two: Two) -> None:
    ticket = two.sender.put(torch.arange(9), B)
    assert ticket
    assert not two.sender.there(ticket.id)
    assert two.sender.check_after == 0
    two.here.work()
    assert two.sender.there(ticket.id)
    assert two.sender.check_after is None
    assert not two.sender.there(ticket.id + 1)


def test_a_ticket_is_taken_once_the_second_copy_is_over(two: Two) -> None:
    ticket = two.sender.put(torch.arange(9), B)
    assert ticket
    two.here.work()
    got = two.receiver.get(ticket)
    assert not two.receiver.taken(ticket)
    assert two.receiver.check_after == 0
    two.there.work()
    assert two.receiver.taken(ticket)
    assert two.receiver.check_after is None
    assert torch.equal(got, torch.arange(9))


def test_room_that_is_still_written_is_not_given_away(two: Two) -> None:
    first = two.sender.put(torch.ones(ROOM, dtype=torch.uint8), B)
    assert first
    two.sender.free(first.id, B)
    assert two.sender.put(torch.ones(8), B) is None
    assert (two.sender.out, two.sender.check_after) == (1, 0)
    two.here.work()
    assert two.sender.out == 0
    assert two.sender.put(torch.ones(8), B) is not None


def test_a_source_lives_until_it_is_copied(two: Two) -> None:
    ticket = two.sender.put(torch.full((64,), 7), B)
    assert ticket
    two.here.work()
    got = two.receiver.get(ticket)
    two.there.work()
    assert got.tolist() == [7] * 64


def test_what_is_freed_while_it_is_read_is_torn(two: Two) -> None:
    ticket = two.sender.put(torch.arange(9), B)
    assert ticket
    two.here.work()
    two.receiver.get(ticket)
    two.sender.free(ticket.id, B)
    two.there.work()
    with pytest.raises(BadTicket, match="while"):
        two.receiver.taken(ticket)
    assert two.receiver.taken(ticket), "said once"


def test_a_ticket_for_another_rank_is_refused(two: Two) -> None:
    ticket = two.sender.put(torch.arange(9), A)
    assert ticket
    two.here.work()
    with pytest.raises(BadTicket):
        two.receiver.get(ticket)


def test_a_row_of_the_table_is_one_tickets(two: Two) -> None:
    tickets = [two.sender.put(torch.ones(1), B) for _ in range(ROWS)]
    assert all(tickets)
    assert two.sender.put(torch.ones(1), B) is None
    two.here.work()
    two.sender.free(tickets[1].id, B)  # type: ignore[union-attr]
    assert two.sender.put(torch.ones(1), B) is not None


def test_a_driver_that_shares_nothing_says_so() -> None:
    with pytest.raises(Unavailable):
        Transport(A, ROOM, SharedMemory(closed=True))
    sender, receiver = Transport(A, ROOM, SharedMemory()), Transport(B, 0, SharedMemory(closed=True))
    with pytest.raises(Unavailable):
        receiver.connect(A, sender.handle())
    assert receiver.handle() is None
    receiver.close()
    sender.close()
