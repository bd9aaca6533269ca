"""Words between the parts of a loop: before all that waits, and each to whom it is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import zmq

from walkgraph.abi.calls import CallFailed
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire import sockets
from walkgraph.wire.spanning import BetweenParts, Inbox, InboxesAt, LaunchedTo, LeftLoop, RunRests
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.outbox import Outbox, OutgoingMessage
from walkgraph.worker.loops.parts import Parts

KEY: Any = {"run": "r", "step": 3, "loop": "denoise", "iteration": (1, 2)}
INBOXES = (Inbox(channel=5, data=640, number=128, start=7, nbytes=4096),)


class Scheduler:
    """The engine's."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.waits_for_peers = True

    def receive(self, rank: Rank, word: BetweenParts) -> None:
        self.heard.append((rank, word))

    def gone(self, rank: Rank) -> None:
        self.heard.append((rank,))


class Wire:
    """Links and carrier."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, BetweenParts]] = []

    def urge(self, rank: Rank, message: BetweenParts) -> None:
        self.sent.append((rank, message))

    def address(self, rank: Rank) -> int | None:
        return 1 << 21 if rank == 1 else None


@pytest.fixture
def made() -> tuple[Parts, Scheduler, Wire]:
    resident, wire = Scheduler(), Wire()
    parts: Any = Parts(resident, wire, wire)  # type: ignore[arg-type]
    return parts, resident, wire


def test_what_one_side_says_the_other_hears(made: tuple[Parts, Scheduler, Wire]) -> None:
    parts, resident, wire = made
    words = [InboxesAt(inboxes=INBOXES, **KEY), LaunchedTo(upto=9, **KEY), RunRests(run=RunId("r")), LeftLoop(**KEY)]
    for word in words:
        parts.send(Rank(1), word)
    assert [rank for rank, _ in wire.sent] == [1] * 4
    for _, message in wire.sent:
        parts.take(Rank(2), message)
    assert resident.heard == [(Rank(2), word) for word in words]


def test_the_device_is_waited_for_by_the_sockets_while_it_needs_peers(made: tuple[Parts, Scheduler, Wire]) -> None:
    parts, resident, _ = made
    asked: list[int] = []

    class Poller:
        def poll(self, timeout: int) -> None:
            asked.append(timeout)

    poller: Any = Poller()
    parts.wait(poller)
    parts.stepped(quiet=True)
    parts.wait(poller)
    assert len(asked) == 1
    parts.take(Rank(1), RunRests(run=RunId("r")))
    parts.wait(poller)
    resident.waits_for_peers = False
    parts.stepped(quiet=True)
    parts.wait(poller)
    assert len(asked) == 1


def test_who_is_gone_is_no_address_and_touched_no_more(made: tuple[Parts, Scheduler, Wire]) -> None:
    parts, resident, _ = made
    assert parts.address(Rank(1)) == 1 << 21
    with pytest.raises(CallFailed, match="rank 2 can't be reached"):
        parts.address(Rank(2))
    parts.gone(Rank(1))
    assert resident.heard == [(Rank(1),)]


@pytest.fixture
def pair() -> Iterator[tuple[sockets.Socket, sockets.Socket]]:
    context: sockets.Context = zmq.Context()
    here, there = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    there.bind("inproc://parts")
    here.connect("inproc://parts")
    yield here, there
    context.destroy(linger=0)


def test_urgent_words_pass_a_message_whose_tensors_are_not_there(
    pair: tuple[sockets.Socket, sockets.Socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    carrier, left = Carrier(Rank(0), {"shm": 1 << 20}), list[str]()
    outbox = Outbox(here, Rank(1), (b"head",), carrier, left)
    monkeypatch.setattr(carrier, "there", lambda ticket: False)
    deliver = m.Deliver(run=RunId("r"), step=0, edge=0, key=(), value=m.Absent())
    outbox.send(OutgoingMessage(deliver, torch.ones(1 << 15), shared=True, note="it"))
    outbox.urge(RunRests(run=RunId("r")))
    outbox.forget("r")
    assert there.poll(1000)
    assert b"rest" in there.recv_multipart()[1]
    assert not there.poll(0)
    assert not left
    monkeypatch.undo()
    outbox.flush()
    assert b"deliver" in there.recv_multipart()[1]
    assert left == ["it"]
    carrier.close()


def test_an_encoded_message_without_tensors_is_dropped_with_its_run() -> None:
    context: sockets.Context = zmq.Context()
    # It has no peer, so it takes nothing.
    socket, carrier = context.socket(zmq.PUSH), Carrier(Rank(0), {"shm": 1 << 20})
    outbox = Outbox(socket, Rank(1), (b"head",), carrier, [])
    for run in ("over", "other"):
        outbox.send(OutgoingMessage(m.Deliver(run=RunId(run), step=0, edge=0, key=(), value=m.Absent())))
    outbox.flush()
    assert outbox.blocked
    outbox.forget("over")
    assert len(outbox) == 1
    assert outbox.sends("other")
    carrier.close()
    socket.close(linger=0)
    context.term()
