"""A rank is ready once it and all others that have loaded reach each other, at their present starts."""

from __future__ import annotations

import pytest

from tests.support.conductor_world import POOL, World
from tests.support.deployment import plan_named
from walkgraph.conductor.events import FromRank, FromService
from walkgraph.conductor.watchdog import CONNECT, CONNECT_DEADLINES
from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.wire.watching import Break

GRAPH, PLAN = plan_named("synthetic_states")
ZERO, ONE = Rank(0), Rank(1)


def peer(start: int) -> m.Peer:
    return m.Peer(address="", start=start)


class Ranks:
    """Two ranks that say what the test has them say."""

    def __init__(self) -> None:
        self.world = World(GRAPH, PLAN, Limits(step_deadline=5.0), 0)
        for worker in self.world.workers.values():
            worker.outbox.clear()

    def say(self, rank: Rank, *messages: m.FromWorker) -> None:
        for message in messages:
            self.world.handle(FromRank(rank, self.start(rank), message))

    def start(self, rank: Rank) -> int:
        return self.world.workers[rank].start

    def load(self, *ranks: Rank) -> None:
        for rank in ranks:
            self.say(
                rank, m.Hello(rank=rank, peer=peer(self.start(rank))), m.Ready(rank=rank, seconds=1, pools=(POOL,))
            )

    def connect(self, rank: Rank, other: Rank, start: int | None = None) -> None:
        """`rank` had an answer from a start of another, its present one if none is given."""
        self.say(rank, m.Connected(rank=rank, peers={other: self.start(other) if start is None else start}))

    def states(self) -> tuple[str, list[tuple[str, str]]]:
        status = self.world.statuses[-1]
        return status.state, [(rank.state, rank.phase) for rank in status.ranks]

    def heard(self, rank: Rank) -> list[type]:
        return [type(message) for message in self.world.workers[rank].inbox]


def test_all_ranks_have_loaded_and_none_is_ready_before_they_reach_each_other() -> None:
    ranks = Ranks()
    ranks.load(ZERO)
    assert ranks.states() == ("starting", [("ready", ""), ("starting", "")]), "there is none to reach"
    ranks.load(ONE)
    assert ranks.states() == ("starting", [("ready", ""), ("warming", CONNECT)])
    ranks.connect(ONE, ZERO)
    assert ranks.states()[0] == "starting", "one way is known"
    ranks.connect(ZERO, ONE)
    assert ranks.states() == ("ready", [("ready", "")] * 2)


def test_no_run_starts_on_ranks_that_do_not_reach_each_other() -> None:
    ranks = Ranks()
    ranks.load(ZERO, ONE)
    ranks.world.submit("a", "part_ways")
    ranks.connect(ZERO, ONE)
    assert m.Start not in ranks.heard(ZERO) + ranks.heard(ONE)
    ranks.connect(ONE, ZERO)
    assert m.Start in ranks.heard(ZERO)
    assert m.Start in ranks.heard(ONE)


def test_a_rank_that_was_started_anew_must_be_reached_anew() -> None:
    ranks = Ranks()
    ranks.load(ZERO, ONE)
    ranks.connect(ZERO, ONE)
    ranks.connect(ONE, ZERO)
    before = ranks.start(ONE)
    ranks.world.kill(ONE)
    ranks.world.pass_time(1.0)
    ranks.load(ONE)
    ranks.connect(ONE, ZERO)
    ranks.connect(ZERO, ONE, before)
    assert ranks.states() == ("degraded", [("ready", ""), ("warming", CONNECT)]), "what was said of the start before"
    ranks.connect(ZERO, ONE)
    assert ranks.states()[0] == "ready"


def test_who_waits_for_a_rank_that_ends_waits_no_longer() -> None:
    ranks = Ranks()
    ranks.load(ZERO, ONE)
    ranks.world.kill(ZERO)
    assert ranks.states()[1] == [("lost", ""), ("ready", "")]


def test_a_rank_that_can_not_be_connected_is_started_anew_and_the_reason_names_the_other() -> None:
    ranks = Ranks()
    ranks.load(ZERO, ONE)
    ranks.connect(ZERO, ONE)
    began = ranks.world.now
    while not ranks.world.killed:
        ranks.world.pass_time(max(0.001, ranks.world.core.due() - ranks.world.now))
        for rank in ranks.world.workers:
            ranks.say(rank, m.Pong(rank=rank, number=0, at=0.0))
    assert ranks.world.now - began == pytest.approx(CONNECT_DEADLINES * 5.0, abs=0.1)
    assert ranks.world.killed == [ONE]
    assert "can't be connected with rank 0" in (ranks.world.statuses[-1].reason or "")


def test_what_is_watched_reaches_a_rank_that_is_not_ready_yet() -> None:
    ranks = Ranks()
    ranks.load(ZERO, ONE)
    ranks.world.handle(FromService(m.Watch(breaks=(Break(id="b", walk="w", use="u"),))))
    assert m.Watch in ranks.heard(ONE)
