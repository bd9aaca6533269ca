"""A trace says how wrong the times of other hosts may be, and finds that they are more."""

from __future__ import annotations

import pytest

from tests.support.telling import A, gauge
from tests.unit.telemetry.test_keeping import begun
from walkgraph.ids import Rank
from walkgraph.telemetry import events as e
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import ClockError, Trace
from walkgraph.wire.processes.host_clocks import Alignment


def apart(*, arrived: float, error: float = 40e-6, hosts: tuple[str, ...] = ("", "b")) -> Trace:
    """The trace of a run whose value left rank 0 at 11.0 s and came to rank 1."""
    world = begun()
    world.keeper.places = Places(hosts=hosts)
    sent = e.Transfer(
        run=A, source=Rank(0), target=Rank(1), walk="w", edge=0, stream=False, step=0, key=(), transport="nixl",
        count=1, nbytes=8, at=11.0,
    )  # fmt: skip
    came = e.Arrival(run=A, rank=Rank(1), edge=0, stream=False, step=0, key=(), at=arrived)
    world.tell("rank 0.1", sent, now=11.5)
    # What came before the run says nothing of its times.
    world.tell("rank 1.1", gauge(1, 9.8), now=9.9, clock=Alignment("b", 5.0, 1.0))
    for worst in (error / 2, error, error / 4):
        clock = Alignment("b", 5.0, worst)
        world.tell("rank 1.1", *([came] if worst == error else [gauge(1, 11.1)]), now=11.5, clock=clock)
    return world.trace(A)


def test_a_trace_says_how_wrong_the_times_of_other_hosts_may_be() -> None:
    found = apart(arrived=11.0002)
    assert (found.hosts, found.clocks) == (("", "b"), (ClockError(host="b", offset=5.0, error=40),))
    assert (found.hops.sent, found.hops.arrived, found.early) == ((1_000_000,), (1_000_200,), 0)
    assert apart(arrived=11.0002, hosts=("", "c")).clocks == ()


@pytest.mark.parametrize(("arrived", "early"), [(10.99997, 0), (10.99995, 1), (10.5, 1)])
def test_a_value_that_came_before_it_was_sent_shows_wrong_bounds(arrived: float, early: int) -> None:
    found = apart(arrived=arrived)
    assert (found.hops.arrived, found.early) == ((1_000_000,), early)
    # On one host there is one clock.
    assert apart(arrived=arrived, hosts=("", "")).early == 0
