"""On one GPU or two: tensors between two processes, by CUDA's IPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch

from tests.support.ipc_peer import Peer, Reader
from tests.unit.transports.test_conformance import (  # noqa: F401 (the suite, over the pair below)
    ROOM,
    A,
    B,
    test_a_dead_ranks_tickets_are_swept,
    test_a_full_transport_refuses_until_something_is_freed,
    test_a_thousand_random_tensors_arrive_bit_for_bit,
    test_a_ticket_is_freed_once_and_by_its_addressee,
    test_mutated_headers_are_refused_and_harm_nobody,
    test_odd_shapes,
    test_tickets_of_a_rank_that_is_gone_are_refused,
    test_what_was_put_is_there_and_what_was_got_is_taken,
    test_what_was_taken_is_the_receivers_own,
)
from walkgraph.memory.cuda import HANDLE_BYTES, CudaMemory
from walkgraph.memory.device import Unavailable
from walkgraph.transports.cuda_ipc import ArenaHandle, Transport

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
GPUS = [
    pytest.param("cuda:0", id="one"),
    pytest.param(
        "cuda:1",
        id="two",
        marks=pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs"),
    ),
]
"""The device of the other process."""
HERE = torch.device("cuda:0")


class Sender:
    """A transport here, given tensors of the host."""

    def __init__(self, nbytes: int) -> None:
        self.transport = Transport(A, nbytes, CudaMemory(HERE))

    def put(self, tensor: torch.Tensor, to: Any) -> Any:
        ticket = self.transport.put(tensor.to(HERE), to)
        torch.cuda.synchronize()
        assert ticket is None or self.transport.there(ticket.id)
        return ticket

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class Receiver:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def get(self, ticket: Any) -> torch.Tensor:
        dtype, shape, raw = self.peer.call("get", ticket)
        kind = getattr(torch, dtype)
        return (
            torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(kind).view(shape)
            if raw
            else torch.empty(shape, dtype=kind)
        )

    def taken(self, ticket: Any) -> bool:
        return self.peer.call("taken", ticket)

    def disconnect(self, rank: int) -> None:
        self.peer.call("disconnect", rank)

    @property
    def check_after(self) -> float | None:
        return self.peer.call("check_after")


@pytest.fixture(scope="module", params=GPUS)
def reader(request: pytest.FixtureRequest) -> Iterator[Peer]:
    peer = Peer(Reader, request.param)
    yield peer
    peer.end()


@pytest.fixture
def pair(reader: Peer) -> Iterator[tuple[Any, Any]]:
    sender = Sender(ROOM)
    reader.call("fresh", B)
    reader.call("connect", A, sender.handle())
    yield sender, Receiver(reader)
    reader.call("fresh", B)
    sender.close()


def test_readers_wait_for_the_copy_and_large_ones_are_whole(reader: Peer) -> None:
    sender = Sender(64 << 20)
    reader.call("fresh", B)
    reader.call("connect", A, sender.handle())
    for round_ in range(8):
        value = torch.full((1 << 24,), round_ + 1, dtype=torch.int16)[:: 1 + round_ % 2]
        ticket = sender.put(value, B)
        assert reader.call("total", ticket) == value.numel() * (round_ + 1)
        assert reader.call("taken", ticket)
        sender.free(ticket.id, B)
    reader.call("fresh", B)
    sender.close()


def test_what_cannot_be_opened_is_said_and_torch_goes_on(reader: Peer) -> None:
    sender = Sender(ROOM)
    whole = sender.handle()
    known = msgspec.msgpack.decode(whole, type=ArenaHandle)
    reader.call("fresh", B)
    for memory in (b"", b"x" * HANDLE_BYTES):
        wrong = msgspec.structs.replace(known, memory=memory)
        with pytest.raises(Unavailable):
            reader.call("connect", A, msgspec.msgpack.encode(wrong))
    reader.call("connect", A, whole)
    ticket = sender.put(torch.ones(1000), B)
    assert reader.call("total", ticket) == 1000
    reader.call("fresh", B)
    sender.close()


def test_a_reader_that_ends_at_any_time_harms_nobody() -> None:
    sender = Sender(ROOM)
    peer = Peer(Reader, "cuda:0")
    peer.call("fresh", B)
    peer.call("connect", A, sender.handle())
    tickets = [sender.put(torch.ones(1000), B) for _ in range(4)]
    peer.call("total", tickets[0])
    peer.tell("total", tickets[1])
    peer.end()
    assert sender.sweep(B) == 4
    assert sender.out == 0
    assert torch.ones(5, device=HERE).sum().item() == 5
    sender.close()
