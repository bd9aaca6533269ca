"""Runs of higher priority overtake, by suspending those of lower priority: never more than needed, and all end."""

from __future__ import annotations

import pytest

from tests.support.conductor_world import PAGES, World
from tests.support.deployment import plan_named
from walkgraph.conductor.events import FromRank, FromService
from walkgraph.conductor.runs.page_budget import Demand
from walkgraph.conductor.runs.priority import Holder, to_suspend
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

GRAPH, PLAN = plan_named("synthetic_states", ranks=1)
TWO_GRAPH, TWO_PLAN = plan_named("synthetic_states")
POOL = (Rank(0), 0)
ALL = PAGES * 16
"""Tokens of the pool."""


def holder(run: str, priority: int, pages: int, started: float = 0.0) -> Holder:
    return Holder(run, priority, started, 0, Demand({POOL: pages}))


@pytest.mark.parametrize(
    ("lacks", "holders", "chosen"),
    [
        (4, [holder("a", 0, 4)], ["a"]),
        (4, [holder("a", 1, 4)], []),
        (4, [holder("a", 2, 4)], []),
        (4, [holder("a", 0, 3)], []),
        (4, [holder("early", 0, 4, 1.0), holder("late", 0, 4, 2.0)], ["late"]),
        (4, [holder("low", -1, 4, 1.0), holder("late", 0, 4, 2.0)], ["low"]),
        (4, [holder("small", -1, 1), holder("large", 0, 4)], ["large"]),
        (5, [holder("small", -1, 1), holder("large", 0, 4)], ["small", "large"]),
        (4, [Holder("elsewhere", 0, 0.0, 0, Demand({(Rank(1), 0): 9})), holder("here", 0, 9)], ["here"]),
        (0, [holder("a", 0, 4)], []),
    ],
)
def test_the_lowest_and_latest_make_room_and_no_more_than_needed(
    lacks: int, holders: list[Holder], chosen: list[str]
) -> None:
    assert to_suspend(Demand({POOL: lacks} if lacks else {}), 1, holders) == chosen


def world(seed: int = 0) -> World:
    made = World(GRAPH, PLAN, Limits(), seed)
    made.settle()
    return made


def room(tokens: int = ALL) -> dict[str, int]:
    return {"prompt": tokens - 10, "times": 10}


def sent(w: World) -> list[tuple[str, str]]:
    """The messages about runs that were sent to the rank and not read yet."""
    names = {m.Start: "start", m.Suspend: "suspend", m.Resume: "resume", m.Cancel: "cancel"}
    found = [(names[type(one)], str(one.run)) for one in w.workers[Rank(0)].inbox if type(one) in names]  # type: ignore[union-attr]
    w.workers[Rank(0)].inbox.clear()
    return found


def heard(w: World, message: m.FromWorker) -> None:
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, message))


def suspended(run: str) -> m.Suspended:
    return m.Suspended(rank=Rank(0), run=RunId(run), pages_free=0)


def ended(w: World, run: str) -> None:
    w.handle(FromService(m.Abort(run=RunId(run))))
    assert sent(w) == [("cancel", run)]
    heard(w, m.Released(rank=Rank(0), run=RunId(run), pages_free=0, pages_total=0))


def test_a_higher_one_overtakes_and_the_lower_one_goes_on_when_it_has_ended() -> None:
    w = world()
    w.submit("low", params=room())
    assert sent(w) == [("start", "low")]
    w.submit("equal", params=room())
    assert sent(w) == []
    w.submit("high", params=room(), priority=1)
    assert sent(w) == [("suspend", "low")]
    w.submit("other", params=room(32))
    assert sent(w) == [], "nobody overtakes the one that room is made for, nor is anybody suspended twice"
    heard(w, suspended("low"))
    assert sent(w) == [("start", "high")]
    ended(w, "high")
    assert sent(w) == [("resume", "low")], "it came before those of its priority"
    ended(w, "low")
    assert sent(w) == [("start", "equal")]


def test_pages_that_come_by_themselves_suspend_nobody() -> None:
    w = world()
    w.submit("low", params=room(ALL // 2))
    w.submit("leaving", params=room(ALL // 2))
    w.handle(FromService(m.Abort(run=RunId("leaving"))))
    sent(w)
    w.submit("high", params=room(ALL // 2), priority=1)
    assert sent(w) == []
    heard(w, m.Released(rank=Rank(0), run=RunId("leaving"), pages_free=0, pages_total=0))
    assert sent(w) == [("start", "high")]


@pytest.mark.parametrize("when", ["suspending", "suspended"])
@pytest.mark.parametrize("how", ["abort", "deadline", "lost"])
def test_a_suspended_run_can_end_in_every_way(when: str, how: str) -> None:
    w = world()
    w.submit("low", params=room(), deadline=5.0)
    w.submit("high", params=room(), priority=1)
    sent(w)
    if when == "suspended":
        heard(w, suspended("low"))
        assert sent(w) == [("start", "high")]
    if how == "lost":
        w.kill(Rank(0))
        assert w.finished["low"].error is not None
        assert w.finished["low"].error.code == "worker_lost"
        return
    if how == "abort":
        w.handle(FromService(m.Abort(run=RunId("low"))))
    else:
        w.pass_time(6.0)
    assert ("cancel", "low") in sent(w)
    heard(w, suspended("low"))
    heard(w, m.Released(rank=Rank(0), run=RunId("low"), pages_free=0, pages_total=0))
    assert w.finished["low"].error is not None
    assert w.finished["low"].error.code == ("cancelled" if how == "abort" else "deadline_exceeded")
    assert w.core.pages.promised[POOL] == PAGES, "what `high` holds"
    assert w.core.runs.table.running == 1


def test_one_that_room_was_made_for_and_that_is_gone_lets_the_other_go_on() -> None:
    w = world()
    w.submit("low", params=room())
    w.submit("high", params=room(), priority=1)
    w.handle(FromService(m.Abort(run=RunId("high"))))
    sent(w)
    heard(w, suspended("low"))
    assert sent(w) == [("resume", "low")]


def test_the_priority_reaches_the_ranks() -> None:
    w = world()
    w.submit("one", params=room(), priority=7)
    (start,) = [one for one in w.workers[Rank(0)].inbox if isinstance(one, m.Start)]
    assert start.priority == 7


@pytest.mark.parametrize("seed", range(15))
def test_under_any_load_every_run_ends_and_pages_are_never_promised_twice(seed: int) -> None:
    w = World(TWO_GRAPH, TWO_PLAN, Limits(queue=20, restarts=50, backoff_first=0.1), seed)
    w.settle()
    chance, number = w.chance, 0
    for _ in range(300):
        what = chance.random()
        if what < 0.25:
            number += 1
            tokens = chance.choice([100, 300, ALL // 2, ALL])
            deadline = chance.choice([None, None, 5.0])
            w.submit(f"r{number}", params=room(tokens), priority=chance.randrange(4), deadline=deadline)
        elif what < 0.30 and number:
            w.handle(FromService(m.Abort(run=RunId(f"r{chance.randrange(number) + 1}"))))
        elif what < 0.31 and w.workers:
            w.kill(chance.choice(list(w.workers)))
        elif what < 0.35:
            w.pass_time(0.1)
        elif w.workers:
            w.act(chance.choice(list(w.workers)))
    w.settle()
    assert set(w.finished) == w.accepted
    assert all(pages == 0 for pages in w.core.pages.promised.values())
    assert not any(worker.runs or worker.suspended for worker in w.workers.values())
