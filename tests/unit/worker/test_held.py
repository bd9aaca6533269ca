"""Messages to an unknown peer wait for it, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.deployment import plan_named
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry.places import Places
from walkgraph.wire import messages as m
from walkgraph.wire.spanning import RunRests
from walkgraph.wire.standing import Held
from walkgraph.worker.events import ABSENT
from walkgraph.worker.io import pending as held_module
from walkgraph.worker.io.outbox import OutgoingMessage
from walkgraph.worker.io.pending import HeldMessages

_, PLAN = plan_named("synthetic_loops")
WALK = next(walk for walk in PLAN.walks if any(edge.transport != "local" for edge in walk.edges))
PLACES = Places.of(PLAN)
R, Q = RunId("r"), RunId("q")
ONE, TWO = Rank(1), Rank(2)


def made() -> HeldMessages:
    return HeldMessages(Rank(0), PLACES)


def deliver(run: RunId = R, key: int = 0, value: Any = ABSENT) -> OutgoingMessage:
    return OutgoingMessage(m.Deliver(run=run, step=0, edge=0, key=(key,), value=m.Absent()), value)


def test_all_for_a_peer_comes_in_its_order_and_once() -> None:
    held = made()
    waiting = [deliver(key=number) for number in range(4)]
    for number, one in enumerate(waiting):
        held.keep(ONE if number != 2 else TWO, one, WALK.name)
    assert held.take(ONE) == [waiting[0], waiting[1], waiting[3]]
    assert held.take(ONE) == []
    assert held.take(TWO) == [waiting[2]]


def test_what_is_held_for_a_run_is_told_and_dropped_with_it() -> None:
    held = made()
    held.keep(ONE, deliver(R), WALK.name)
    held.keep(ONE, deliver(Q), WALK.name)
    held.keep(TWO, OutgoingMessage(RunRests(run=R)))
    edge = PLACES.hop(WALK.name, 0, stream=False)
    assert "->" in edge
    assert held.of(R) == (Held(to=ONE, edge=edge),)
    held.forget(R)
    assert held.of(R) == ()
    assert [waiting.message.run for waiting in held.take(ONE)] == [Q]
    assert held.take(TWO) == []


@pytest.mark.parametrize("large", [True, False])
def test_over_the_bound_a_run_fails_with_the_edge_and_the_rank(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "MESSAGES", 1000 if large else 3)
    monkeypatch.setattr(held_module, "BYTES", 3 * 4096 if large else 1 << 30)
    value = {"a": [torch.zeros(512, dtype=torch.int64)]}
    held = made()
    for number in range(3):
        held.keep(ONE, deliver(Q, number, value), WALK.name)
    assert not held.failed
    held.keep(TWO, deliver(R, 0, value), WALK.name)
    ((message, error),) = held.failed
    assert message.run == R
    info = error.info()
    assert (info.code, info.walk, info.rank) == ("stalled", WALK.name, 0)
    assert PLACES.hop(WALK.name, 0, stream=False) in info.message
    assert "rank 2" in info.message
    held.failed.clear()
    held.forget(Q)
    held.keep(TWO, deliver(R, 0, value), WALK.name)
    assert not held.failed, "there is room again"
    assert len(held.take(TWO)) == 1
    for number in range(3):
        held.keep(ONE, deliver(Q, number, value), WALK.name)
    assert not held.failed


def test_items_of_streams_are_named_by_their_stream() -> None:
    held = made()
    held.keep(ONE, OutgoingMessage(m.StreamItem(run=R, stream=4, step=0, index=0, value=m.Absent())))
    assert held.of(R)[0].edge == "stream 4"
