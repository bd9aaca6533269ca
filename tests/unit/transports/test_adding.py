"""A transport is one file: once it is added, plans choose it and workers use it, without any other edit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import walkgraph.transports
from tests.support.device_memory import SharedMemory
from tests.support.placing import CATALOGUE, GIB, at, duet, hardware, placement, sizes
from tests.unit.transports.test_conformance import (  # noqa: F401 (the suite, over the pair below)
    ROOM,
    A,
    B,
    made,
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
from walkgraph.ids import Rank
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.show import render
from walkgraph.placement.transports import arenas, declared_transports
from walkgraph.transports.base import SenderLost, TooLarge, Transport
from walkgraph.worker.io.carrier import Carrier


@pytest.fixture
def mailroom(tmp_path: Path, repository: Path) -> Iterator[None]:
    """The transport of the documentation, in a folder that the registry lists beside its own."""
    (tmp_path / "mailroom.py").write_text(documented(repository))
    yield from planted(tmp_path, "mailroom")


@pytest.fixture
def wired(tmp_path: Path, repository: Path) -> Iterator[None]:
    """The same, as if the folder were one that hosts share."""
    source = documented(repository).replace("mailroom", "wired").replace('reach="host"', 'reach="cluster"')
    (tmp_path / "wired.py").write_text(source.replace("cost=400", "cost=1400"))
    yield from planted(tmp_path, "wired")


def documented(repository: Path) -> str:
    page = (repository / "docs/extending/transport.md").read_text()
    (source,) = re.findall(r":caption: mailroom.py\n\n(.*?)\n```", page, re.DOTALL)
    return source


@pytest.fixture
def on_device(tmp_path: Path) -> Iterator[None]:
    """A declaration alone."""
    (tmp_path / "faster.py").write_text(
        "from walkgraph.placement.transports import TransportDeclaration\n"
        "DECLARATION = TransportDeclaration(reach='host', cost=100, on_device=True, arena_bytes=1 << 30)\n"
    )
    yield from planted(tmp_path, "faster")


def planted(folder: Path, name: str) -> Iterator[None]:
    paths = walkgraph.transports.__path__
    paths.append(str(folder))
    declared_transports.cache_clear()
    yield
    paths.remove(str(folder))
    declared_transports.cache_clear()
    sys.modules.pop(f"walkgraph.transports.{name}", None)
    walkgraph.transports.__dict__.pop(name, None)


@pytest.fixture
def pair(mailroom: None) -> Iterator[tuple[Transport, Transport]]:
    sender, receiver = made("mailroom", A), made("mailroom", B)
    receiver.connect(A, sender.handle())
    yield sender, receiver
    receiver.close()
    sender.close()


def planned(*devices: str) -> PlanResult:
    where = placement(at(1, "guide", "llm"), devices=devices)
    return plan(duet(), where, hardware(100 * GIB, 100 * GIB), CATALOGUE, sizes())


def names(found: PlanResult) -> set[str]:
    assert found.plan is not None
    return {edge.transport for walk in found.plan.walks for edge in walk.edges}


@pytest.mark.usefixtures("mailroom")
def test_plans_choose_a_planted_transport_where_it_is_the_cheapest() -> None:
    assert "mailroom" in names(planned("cpu", "cpu"))
    assert "shm" not in names(planned("cpu", "cpu"))
    found = planned("cuda:0", "cuda:1")
    assert "cuda_ipc" in names(found), "which is cheaper between GPUs"
    assert "shm" not in names(found)
    alone = planned("cpu", "cpu")
    assert alone.plan is not None
    assert "  mailroom\n" in render(alone.plan)


@pytest.mark.usefixtures("mailroom")
def test_workers_send_by_a_planted_transport() -> None:
    found = planned("cpu", "cpu")
    assert found.plan is not None
    given = arenas(found.plan, A, ROOM, declared_transports())
    assert given == {"mailroom": ROOM}
    sender, receiver = Carrier(A, given), Carrier(B, given)
    sender.connect(B, receiver.peer("", 1))
    receiver.connect(A, sender.peer("", 1))
    ticket = sender.put(torch.arange(9), B)
    assert ticket is not None
    assert ticket.transport == "mailroom"
    tensor = receiver.get(ticket)
    assert tensor is not None
    assert tensor.tolist() == list(range(9))
    sender.free(ticket.id, B)
    assert sender.out == 0
    for carrier in (sender, receiver):
        carrier.close()


@pytest.mark.usefixtures("mailroom")
def test_what_a_device_cannot_send_goes_by_the_next_cheapest() -> None:
    both = {"mailroom": ROOM, "shm": ROOM, "cuda_ipc": ROOM}
    sender = Carrier(A, both, SharedMemory())
    ticket = sender.put(torch.ones(9), B)
    assert ticket is not None
    assert ticket.transport == "mailroom", "nobody has confirmed the device's"
    sender.accept(B, "cuda_ipc")
    ticket = sender.put(torch.ones(9), B)
    assert ticket is not None
    assert ticket.transport == "cuda_ipc"
    sender.close()


@pytest.mark.usefixtures("on_device")
def test_a_planted_transport_between_gpus_is_given_its_memory() -> None:
    found = planned("cuda:0", "cuda:1")
    assert found.plan is not None
    assert "faster" in names(found)
    assert "cuda_ipc" not in names(found)
    assert [rank.arenas for rank in found.plan.ranks] == [{"faster": 1 << 30}] * 2
    assert all(edge.on_device == (edge.transport == "faster") for walk in found.plan.walks for edge in walk.edges)
    assert "faster" not in names(planned("cuda:0", "cpu"))


@pytest.mark.usefixtures("wired")
def test_what_goes_to_another_host_goes_by_a_transport_that_reaches_it() -> None:
    beside, far, given = Rank(1), Rank(2), {"shm": ROOM, "wired": ROOM, "cuda_ipc": ROOM}
    sender = Carrier(A, given, SharedMemory(), apart=(far,))
    near = Carrier(beside, given, SharedMemory(), apart=(far,))
    alone = Carrier(far, {"wired": ROOM}, apart=(A, beside))
    near.connect(A, sender.peer("", 1))
    alone.connect(A, sender.peer("", 1))
    assert (near.opened(A), alone.opened(A)) == (("cuda_ipc",), ())
    for rank in (beside, far):
        sender.accept(rank, "cuda_ipc")
    large = torch.ones(ROOM + 1, dtype=torch.uint8)
    tickets = {rank: [sender.put(torch.full((9,), rank), rank) for _ in range(2)] for rank in (beside, far)}
    ways = {rank: [ticket and ticket.transport for ticket in put] for rank, put in tickets.items()}
    assert ways == {beside: ["cuda_ipc"] * 2, far: ["wired"] * 2}
    for reader, rank in ((near, beside), (alone, far)):
        for ticket in tickets[rank]:
            assert ticket is not None
            tensor = reader.get(ticket)
            assert tensor is not None
            assert tensor.tolist() == [rank] * 9
            sender.free(ticket.id, rank)
    with pytest.raises(TooLarge):
        sender.put(large, far, alone=True)
    assert sender.out == 0
    for carrier in (sender, near, alone):
        carrier.close()


@pytest.mark.usefixtures("wired")
def test_an_arena_of_another_host_is_not_looked_for_here() -> None:
    """Its handle names a process and a file, which may be others here."""
    both = {"shm": ROOM, "wired": ROOM}
    far = Rank(2)
    sender, near, other = (Carrier(rank, both, apart=apart) for rank, apart in ((A, {far}), (B, {far}), (far, {A, B})))
    for one in (near, other):
        one.connect(A, sender.peer("", 1))
    here = sender.put(torch.ones(9), B)
    assert here is not None
    assert here.transport == "shm"
    tensor = near.get(here)
    assert tensor is not None
    assert tensor.sum() == 9
    with pytest.raises(SenderLost):
        other.get(here)
    for carrier in (sender, near, other):
        carrier.close()


def test_without_it_the_plan_is_as_before() -> None:
    assert names(planned("cpu", "cpu")) == {"local", "inline", "control", "shm"}


def test_nothing_else_names_a_transport(repository: Path) -> None:
    found = re.compile("|".join(rf"""["'`]{name}["'`]""" for name in declared_transports()))
    package = repository / "backend/walkgraph"
    named = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.parent != package / "transports" and found.search(path.read_text())
    ]
    assert named == []
