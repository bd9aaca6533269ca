"""One suite over all transports: bytes arrive as they were, room comes back once, nothing grows, no forgery is read."""

import gc
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.safety.plugin import Figure, Scale
from tests.support.device_memory import SharedMemory
from walkgraph import plugins
from walkgraph.errors import WalkgraphError
from walkgraph.ids import Rank
from walkgraph.placement.transports import declared_transports
from walkgraph.transports.base import BadTicket, Ranges, TooLarge, Transport
from walkgraph.wire.messages import Ticket
from walkgraph.wire.tensors import ITEM_BYTES

A, B, C = Rank(0), Rank(1), Rank(2)
ROOM = 1 << 20
DTYPES = [getattr(torch, name) for name in ITEM_BYTES]
BETWEEN = pytest.mark.parametrize("name", [n for n, one in declared_transports().items() if one.reach != "process"])
"""Those that join two processes."""
ON_HOST = pytest.mark.parametrize("name", [n for n, one in declared_transports().items() if one.reach == "host"])
"""Those whose handle names a file of the host."""


def made(name: str, rank: Rank) -> Any:
    """A transport of that name; what needs a device gets a double of its memory."""
    if not declared_transports()[name].installed:
        pytest.skip(f"`{name}` is not installed")
    make = plugins.load("walkgraph.transports", name, "Transport")
    return make(rank, ROOM, SharedMemory()) if declared_transports()[name].on_device else make(rank, ROOM)


def got(receiver: Transport, ticket: Ticket | None) -> torch.Tensor:
    """The tensor of a ticket, once it is here."""
    assert ticket is not None
    for _ in range(100_000):
        tensor = receiver.get(ticket)
        if tensor is not None:
            return tensor
        time.sleep(receiver.check_after or 0.0)
    raise AssertionError("it never comes")


@pytest.fixture(params=sorted(declared_transports()))
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Transport, Transport]]:
    sender, receiver = made(request.param, A), made(request.param, B)
    receiver.connect(A, sender.handle())
    yield sender, receiver
    receiver.close()
    sender.close()


Pair = tuple[Transport, Transport]


def random_tensor(chance: random.Random) -> torch.Tensor:
    shape = [chance.randrange(0, 9) for _ in range(chance.randrange(0, 5))]
    dtype = chance.choice(DTYPES)
    size = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.frombuffer(bytearray(chance.randbytes(size) or b"\0"), dtype=torch.uint8)[:size]
    tensor = (raw & 1).bool() if dtype == torch.bool else raw.clone().view(dtype)
    tensor = tensor.view(shape)
    return tensor.mT if len(shape) > 1 and chance.random() < 0.3 else tensor


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.safety("R17")
def test_a_thousand_random_tensors_arrive_bit_for_bit(pair: Pair) -> None:
    sender, receiver = pair
    chance = random.Random(7)
    under_way: list[tuple[torch.Tensor, Ticket]] = []
    for _ in range(1000):
        tensor = random_tensor(chance)
        ticket = sender.put(tensor, B)
        assert ticket is not None
        under_way.append((tensor, ticket))
        while len(under_way) > 8:
            sent, ticket = under_way.pop(0)
            taken = got(receiver, ticket)
            sender.free(ticket.id, B)
            assert taken.dtype == sent.dtype
            assert taken.shape == sent.shape
            assert bits(taken) == bits(sent)
    assert sender.out == 8


@pytest.mark.parametrize("value", [torch.tensor(1.5, dtype=torch.bfloat16), torch.empty(0, 3), torch.tensor([True])])
def test_odd_shapes(pair: Pair, value: torch.Tensor) -> None:
    sender, receiver = pair
    ticket = sender.put(value, B)
    assert ticket
    assert torch.equal(got(receiver, ticket), value)


def test_what_was_taken_is_the_receivers_own(pair: Pair) -> None:
    sender, receiver = pair
    first = sender.put(torch.arange(100), B)
    assert first
    taken = got(receiver, first)
    sender.free(first.id, B)
    second = sender.put(torch.zeros(100, dtype=torch.int64), B)
    assert second
    assert torch.equal(taken, torch.arange(100)), "the block was used anew, the receiver's copy must not change"


def test_a_ticket_is_freed_once_and_by_its_addressee(pair: Pair) -> None:
    sender, _ = pair
    ticket = sender.put(torch.ones(3), B)
    assert ticket
    with pytest.raises(BadTicket):
        sender.free(ticket.id, C)
    sender.free(ticket.id, B)
    for number in (ticket.id, 999):
        with pytest.raises(BadTicket):
            sender.free(number, B)
    assert sender.out == 0


def test_a_full_transport_refuses_until_something_is_freed(pair: Pair) -> None:
    sender, receiver = pair
    tickets = []
    while (ticket := sender.put(torch.zeros(ROOM // 8, dtype=torch.uint8), B)) is not None:
        tickets.append(ticket)
        assert len(tickets) <= 8
    assert len(tickets) >= 6
    sender.free(tickets[3].id, B)
    again = sender.put(torch.ones(ROOM // 8, dtype=torch.uint8), B)
    assert again
    assert got(receiver, again).sum() == ROOM // 8
    with pytest.raises(TooLarge, match="is over the"):
        sender.put(torch.zeros(ROOM + 1, dtype=torch.uint8), B)


@pytest.mark.safety("R17")
def test_a_dead_ranks_tickets_are_swept(pair: Pair) -> None:
    sender, _ = pair
    lost = [sender.put(torch.ones(3), B) for _ in range(3)]
    kept = sender.put(torch.ones(3), C)
    assert kept
    assert sender.sweep(B) == 3
    assert sender.sweep(B) == 0
    assert sender.out == 1
    with pytest.raises(BadTicket):
        sender.free(lost[0].id, B)  # type: ignore[union-attr]
    sender.free(kept.id, C)


def test_tickets_of_a_rank_that_is_gone_are_refused(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.ones(3), B)
    assert ticket
    receiver.disconnect(A)
    with pytest.raises(BadTicket) as raised:
        got(receiver, ticket)
    between = declared_transports()[ticket.transport].reach != "process"
    assert raised.value.info().code == ("worker_lost" if between else "internal_error")


@pytest.mark.safety("S8")
def test_mutated_headers_are_refused_and_harm_nobody(pair: Pair, scale: Scale, figure: Figure) -> None:
    sender, receiver = pair
    chance = random.Random(3)
    good = sender.put(torch.arange(64), B)
    assert good
    changes: list[dict[str, Any]] = [
        {"shape": (-1, -64)}, {"shape": (64, -1)}, {"shape": (1 << 62, 4)}, {"shape": (1 << 32, 1 << 32, 2)},
        {"shape": (64,) + (1,) * 32}, {"dtype": "int32"}, {"dtype": "float8"}, {"nbytes": 511}, {"nbytes": -1},
        {"nbytes": 1 << 62, "shape": (1 << 59,)}, {"id": good.id + 1}, {"id": 0}, {"owner": Rank(9)},
    ]  # fmt: skip
    if declared_transports()[good.transport].reach != "process":
        places = {0, 64, good.offset + 1, good.offset + 64, -64, 1 << 62, ROOM - 64} - {good.offset}
        changes += [{"offset": value} for value in places]
    headers = scale(500, 10_000)
    for _ in range(headers):
        change = dict(chance.choice(changes))
        with pytest.raises(WalkgraphError):
            got(receiver, msgspec.structs.replace(good, **change))
    assert torch.equal(got(receiver, good), torch.arange(64)), "still whole"
    figure(f"headers refused ({good.transport})", headers, at_least=10_000)


def test_what_was_put_is_there_and_what_was_got_is_taken(pair: Pair) -> None:
    sender, receiver = pair
    ticket = sender.put(torch.ones(3), B)
    assert ticket
    assert sender.there(ticket.id)
    got(receiver, ticket)
    assert receiver.taken(ticket)
    assert sender.check_after is None
    assert receiver.check_after is None


@BETWEEN
@pytest.mark.safety("R17")
def test_a_ticket_is_taken_once_and_in_order(name: str) -> None:
    sender, receiver = made(name, A), made(name, B)
    receiver.connect(A, sender.handle())
    one, two = sender.put(torch.ones(2), B), sender.put(torch.ones(2), B)
    got(receiver, two)
    for stale in (two, one):
        with pytest.raises(BadTicket):
            got(receiver, stale)
    receiver.close()
    sender.close()


@ON_HOST
def test_an_arena_that_is_not_the_one_named_is_refused(name: str) -> None:
    sender, receiver = made(name, A), made(name, B)
    known = msgspec.msgpack.decode(sender.handle())
    for field, value in {"token": b"x" * 16, "nbytes": 4096, "fd": 1 << 20, "pid": 1 << 22}.items():
        wrong = {**known, "table": {**known["table"], field: value}} if "table" in known else {**known, field: value}
        with pytest.raises(BadTicket):
            receiver.connect(A, msgspec.msgpack.encode(wrong))
    with pytest.raises(BadTicket):
        receiver.connect(A, b"no handle")
    receiver.close()
    sender.close()


@BETWEEN
@pytest.mark.safety("R17")
def test_an_arena_leaves_nothing_behind(name: str) -> None:
    gc.collect()
    before = (set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd")), _mapped())  # noqa: PTH208
    for _ in range(20):
        sender, receiver = made(name, A), made(name, B)
        receiver.connect(A, sender.handle())
        got(receiver, sender.put(torch.ones(5), B))
        receiver.close()
        sender.close()
    del sender, receiver
    gc.collect()
    assert (set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd")), _mapped()) == before  # noqa: PTH208


def test_an_arena_is_for_its_owner_alone() -> None:
    sender = plugins.load("walkgraph.transports", "shm", "Transport")(A, ROOM)
    assert os.fstat(sender.fd).st_mode & 0o777 == 0o600
    with pytest.raises(OSError):
        os.ftruncate(sender.fd, 0)
    sender.close()


def test_ranges_are_joined_again_and_never_overlap() -> None:
    chance = random.Random(1)
    ranges, taken = Ranges(64, 64 * 1000), dict[int, int]()
    for _ in range(5000):
        if taken and chance.random() < 0.5:
            start = chance.choice(list(taken))
            del taken[start]
            ranges.give(start)
            continue
        size = chance.randrange(0, 64 * 40)
        start = ranges.take(size)
        if start is not None:
            assert all(start + size <= other or other + length <= start for other, length in taken.items())
            taken[start] = max(1, -(-size // 64)) * 64
            assert start + taken[start] <= 64 * 1000
        assert ranges.used == sum(taken.values())
    for start in taken:
        ranges.give(start)
    assert ranges.take(64 * 999) == 64, "all gaps are one again"


def _mapped() -> int:
    return len(re.findall("walkgraph-", Path("/proc/self/maps").read_text()))
