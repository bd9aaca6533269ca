"""Ranks on other hosts: one that is cut off is lost at once, whenever its process ends, and is started again no sooner;
one whose host is gone is waited for."""

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from tests.support.conductor_world import FakeWorker, World
from tests.support.deployment import plan_named
from tests.unit.conductor.test_core import GRAPH, PLAN, starts
from tests.unit.conductor.test_taking_up import take_up
from walkgraph.conductor.events import Command, Died, FromRank, Parted, ToRank
from walkgraph.conductor.ranks import Ranks, _Summary
from walkgraph.conductor.watchdog import FIRST_PINGS, NEXT_PINGS, PING_SECONDS
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

NEAR, FAR = Rank(0), Rank(1)
SPREAD = replace(PLAN, ranks=(PLAN.ranks[0], replace(PLAN.ranks[1], host="there")))


class Apart(World):
    """Workers that are killed live on until they are buried: nobody reaches their host."""

    def __init__(self) -> None:
        self.ghosts: list[FakeWorker] = []
        super().__init__(GRAPH, SPREAD, Limits(), 0)
        self.settle()
        assert self.state == "ready"

    def kill(self, rank: Rank) -> None:
        worker = self.workers.pop(rank, None)
        if worker is not None:
            self.ghosts.append(worker)

    def bury(self, code: int | None = -9, reason: str = "") -> None:
        ghost = self.ghosts.pop()
        self.handle(Died(ghost.rank, ghost.start, code, reason))

    def refuse(self) -> None:
        """The host of the rank that is to be started isn't there."""
        worker = self.workers.pop(FAR)
        self.handle(Died(FAR, worker.start, 113, "start the host"))


def test_runs_of_a_rank_that_is_cut_off_end_before_its_process_does() -> None:
    w = Apart()
    w.submit("a", "part_ways")
    w.handle(Parted(FAR, w.workers[FAR].start))
    error = w.finished["a"].error
    assert error
    assert (error.code, error.retryable, error.rank) == ("worker_lost", True, 1)
    assert w.killed == [FAR]
    assert w.state == "degraded"
    assert "host `there`" in str(w.statuses[-1].reason)
    w.submit("b", "part_ways")
    w.pass_time(3600.0)
    assert FAR not in w.workers, "its process may live, and a rank runs once"
    assert not starts(w, 0)[1:], "`b` waits for it"
    w.bury()
    w.pass_time(1.0)
    w.settle()
    assert w.state == "ready"
    assert w.finished["b"].error is None


@pytest.mark.parametrize("buried", [False, True])
def test_nothing_that_a_rank_says_counts_once_it_was_cut_off(buried: bool) -> None:
    w = Apart()
    w.submit("a", "part_ways")
    w.handle(Parted(FAR, w.workers[FAR].start))
    ghost = w.ghosts[0]
    if buried:
        w.bury()
        w.pass_time(1.0)
        w.settle()
    before, statuses = dict(w.finished), list(w.statuses)
    w.submit("b", "part_ways")
    for message in (
        m.Hello(rank=FAR, peer=m.Peer(address="", start=ghost.start)),
        m.Ready(rank=FAR, seconds=1.0),
        m.RankDone(rank=FAR, run=RunId("b"), times=()),
        m.Emit(run=RunId("b"), rank=FAR, name="text", value=m.Small(value=1), iteration=()),
        m.Parted(rank=FAR, peer=NEAR, start=w.workers[NEAR].start),
        m.Pong(rank=FAR, number=1, at=0.0),
    ):
        w.handle(FromRank(FAR, ghost.start, message))
    w.handle(Parted(FAR, ghost.start))
    assert (w.finished, w.outputs, w.killed) == (before, {}, [FAR])
    assert w.statuses[-1].ranks == statuses[-1].ranks


def test_a_rank_tells_of_the_peer_that_it_has_lost() -> None:
    w = Apart()
    w.submit("a", "part_ways")
    told = m.Parted(rank=NEAR, peer=FAR, start=w.workers[FAR].start)
    w.handle(FromRank(NEAR, w.workers[NEAR].start, told))
    assert (w.finished["a"].error, w.killed) != (None, [])
    w.bury()
    w.pass_time(1.0)
    w.settle()
    w.handle(FromRank(NEAR, w.workers[NEAR].start, told))
    assert (w.state, w.killed) == ("ready", [FAR]), "that start has ended"


def test_the_end_of_a_rank_that_was_cut_off_stops_no_plan_that_is_taken_up_since() -> None:
    w = Apart()
    w.handle(Parted(FAR, w.workers[FAR].start))
    take_up(w, replace(SPREAD, digest="other"), GRAPH)
    w.bury()
    w.pass_time(1.0)
    w.settle()
    assert [(taken.number, taken.error) for taken in w.taken] == [(1, None)]
    assert w.state == "ready"


def away(w: World) -> list[Rank]:
    return [rank.rank for rank in w.statuses[-1].ranks if rank.away]


def test_a_rank_is_away_until_its_host_has_started_it_again() -> None:
    w = Apart()
    assert away(w) == []
    w.handle(Parted(FAR, w.workers[FAR].start))
    assert away(w) == [FAR]
    w.bury()
    assert away(w) == [FAR], "its process was killed from here"
    w.pass_time(1.0)
    assert away(w) == []
    w.refuse()
    assert away(w) == [FAR]
    w.pass_time(8.0)
    w.settle()
    assert (w.state, away(w)) == ("ready", [])


def test_a_rank_whose_process_ended_by_itself_is_not_away() -> None:
    w = Apart()
    w.handle(Parted(FAR, w.workers[FAR].start))
    w.bury(3)
    assert away(w) == []
    w.pass_time(1.0)
    w.settle()
    w.handle(Parted(NEAR, w.workers[NEAR].start))
    assert away(w) == [], "it is on this host"


def test_the_status_of_a_process_that_ended_by_itself_is_the_reason() -> None:
    w = Apart()
    w.handle(Parted(FAR, w.workers[FAR].start))
    w.bury(3)
    assert w.statuses[-1].reason == "the worker of rank 1 ended with status 3"


def test_a_rank_waits_for_its_host_however_long_that_takes() -> None:
    w = Apart()
    w.handle(Parted(FAR, w.workers[FAR].start))
    w.bury()
    pauses: list[float] = []
    while sum(pauses) < 600.0:
        before = w.now
        while FAR not in w.workers:
            w.hear()
            w.pass_time(0.25)
        if pauses:
            assert w.statuses[-1].reason == "start the host", "while it is started too"
        pauses.append(w.now - before)
        w.refuse()
        assert (w.state, w.statuses[-1].reason) == ("degraded", "start the host")
    assert max(pauses) <= 8.25, "and looks for it every few seconds"
    w.pass_time(8.0)
    w.settle()
    assert w.state == "ready"


def test_one_that_has_not_said_hello_is_not_cut_off() -> None:
    w = Apart()
    w.handle(Parted(FAR, w.workers[FAR].start))
    w.bury()
    w.pass_time(1.0)
    w.handle(Parted(FAR, w.workers[FAR].start))
    assert w.killed == [FAR]


@pytest.mark.parametrize("loaded", [False, True])
def test_a_rank_on_another_host_is_pinged_again_and_again(loaded: bool) -> None:
    """Only what can't be sent shows that the connection is lost. One on this host is pinged once, and not before it has
    loaded."""
    _, plan = plan_named("synthetic_states")
    ranks = Ranks(replace(plan, ranks=SPREAD.ranks), Limits())
    ranks.begin(0.0)
    pings = {NEAR: 0, FAR: 0}
    for rank in (NEAR, FAR):
        ranks.spawned(rank, rank + 1, 100, 0.0)
        ranks.heard(rank, m.Hello(rank=rank, peer=m.Peer(address="", start=rank + 1)), 0.0)
        if loaded:
            ranks.heard(rank, m.Ready(rank=rank, seconds=0.0), 0.0)
    for turn in range(1, 9):
        assert ranks.due() == turn * PING_SECONDS
        for command in ranks.tick(turn * PING_SECONDS):
            assert isinstance(command, ToRank)
            assert isinstance(command.message, m.Ping)
            pings[command.rank] += 1
    assert pings == {NEAR: int(loaded), FAR: 8}


def test_ranks_of_a_host_are_pinged_together_and_one_of_them_more_often() -> None:
    _, plan = plan_named("synthetic_states")
    ranks = Ranks(replace(plan, ranks=tuple(replace(one, host="there") for one in plan.ranks)), Limits())
    ranks.begin(0.0)

    def answered(rank: Rank, sent: list[Command], now: float) -> int:
        """The pings of a rank, each of which is answered at once."""
        count = 0
        while sent:
            [ping] = sent
            assert isinstance(ping, ToRank)
            assert isinstance(ping.message, m.Ping)
            sent = ranks.heard(rank, m.Pong(rank=rank, number=ping.message.number, at=now), now)
            count += 1
        return count

    for rank, at in ((NEAR, 0.0), (FAR, 0.09)):
        ranks.spawned(rank, rank + 1, 100, at)
        ranks.heard(rank, m.Hello(rank=rank, peer=m.Peer(address="", start=rank + 1)), at)
        assert answered(rank, ranks.heard(rank, m.Ready(rank=rank, seconds=0.0), at), at) == FIRST_PINGS
    for turn in range(1, 5):
        now = turn * PING_SECONDS
        assert ranks.due() == now
        sent = {command.rank: command for command in ranks.tick(now) if isinstance(command, ToRank)}
        assert {rank: answered(rank, [ping], now) for rank, ping in sent.items()} == {NEAR: NEXT_PINGS, FAR: 1}


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_due_before_it_is_said_to_be_and_no_status_is_old(seed: int) -> None:
    draw = Random(seed)
    _, plan = plan_named("synthetic_states")
    ranks = Ranks(replace(plan, ranks=SPREAD.ranks), Limits(step_deadline=draw.choice((0.2, 30.0))))
    ranks.begin(0.0)
    now, workers, some = 0.0, ranks._workers, draw.choice(((NEAR,), (FAR,), (NEAR, FAR)))
    for rank in {NEAR, FAR} - set(some):
        # Where both are there, the other one is often due first.
        workers[rank].pid = None
    ranks.tick(0.0)
    kinds: dict[str, Callable[[Rank], m.FromWorker]] = {
        "hello": lambda rank: m.Hello(rank=rank, peer=m.Peer(address="", start=rank + 1)),
        "progress": lambda rank: m.Progress(rank=rank, phase="load", fraction=draw.random()),
        "ready": lambda rank: m.Ready(rank=rank, seconds=0.0),
        "pong": lambda rank: m.Pong(rank=rank, number=draw.randrange(9), at=now),
        "released": lambda rank: m.Released(rank=rank, run=RunId("a"), pages_free=0, pages_total=0),
    }
    kept = 0
    for _ in range(300):
        now += draw.choice((0.0, 0.05, 0.3))
        rank, before = draw.choice(some), ranks.status()
        match draw.choice((*kinds, "spawned", "tick", "died", "parted")):
            case "spawned":
                ranks.spawned(rank, workers[rank].start, 100, now)
            case "tick":
                ranks.tick(now)
            case "died":
                ranks.died(Died(rank, workers[rank].start, 1, ""), now)
            case "parted":
                ranks.parted(rank, workers[rank].start)
            case kind:
                ranks.heard(rank, kinds[kind](rank), now)
        exact = min(ranks._watchdog.due(worker) for worker in workers.values())
        assert ranks.due() <= exact
        assert ranks.status() == _Summary(workers.values(), ranks._watchdog).status()
        kept += ranks.status() is before
    assert kept > 50


def test_a_rank_on_another_host_is_told_its_clock_once_it_has_loaded() -> None:
    _, plan = plan_named("synthetic_states")
    ranks = Ranks(replace(plan, ranks=SPREAD.ranks), Limits())
    ranks.begin(0.0)
    for rank in (NEAR, FAR):
        ranks.spawned(rank, rank + 1, 100, 0.0)
        ranks.heard(rank, m.Hello(rank=rank, peer=m.Peer(address="", start=rank + 1)), 0.0)
    assert ranks.heard(NEAR, m.Ready(rank=NEAR, seconds=0.0), 1.0) == []
    # Its clock is 100 s ahead, and answers take 2 ms.
    now, commands, told = 1.0, ranks.heard(FAR, m.Ready(rank=FAR, seconds=0.0), 1.0), []
    while commands:
        [ping] = commands
        assert isinstance(ping, ToRank)
        assert isinstance(ping.message, m.Ping)
        assert ping.rank == FAR
        told.append(ping.message.clock)
        now += 0.002
        commands = ranks.heard(FAR, m.Pong(rank=FAR, number=ping.message.number, at=now + 100 - 0.001), now)
    assert [clock is None for clock in told] == [True] + [False] * (FIRST_PINGS - 1)
    last = told[-1]
    assert last is not None
    assert (last.host, last.here(101.0)) == ("there", pytest.approx(1.0, abs=1e-6))
    # What a rank of this host says of its clock is not asked for.
    assert ranks.heard(NEAR, m.Pong(rank=NEAR, number=1, at=5.0), now) == []
