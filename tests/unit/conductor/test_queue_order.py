"""An owner puts its waiting runs in order; the places of others stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conductor_world import PAGES, World
from tests.support.deployment import plan_named
from walkgraph.conductor.events import FromRank, FromService
from walkgraph.conductor.queue_order import exchangeable, exchanged
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.questions import Move, QueuedRun
from walkgraph.wire.spec import Limits

GRAPH, PLAN = plan_named("synthetic_states", ranks=1)
ROOM = {"prompt": PAGES * 16 - 10, "times": 10}
"""All pages: one run at a time."""


def move(run: str, *among: str, up: bool = True) -> Move:
    return Move(run=RunId(run), among=tuple(map(RunId, among)), up=up)


def queue(*runs: QueuedRun | str) -> list[QueuedRun]:
    return [one if isinstance(one, QueuedRun) else QueuedRun(run=RunId(one)) for one in runs]


def special(
    run: str, priority: int = 0, depth: int = 0, session: str | None = None, suspended: bool = False
) -> QueuedRun:
    return QueuedRun(run=RunId(run), priority=priority, depth=depth, session=session, suspended=suspended)


@pytest.mark.parametrize(
    ("found", "wanted", "pair"),
    [
        (queue("a", "b"), move("b", "a", "b"), ("a", "b")),
        (queue("a", "b"), move("a", "a", "b", up=False), ("a", "b")),
        (queue("a", "b"), move("a", "a", "b"), None),
        (queue("a", "b"), move("b", "a", "b", up=False), None),
        (queue("a", "x", "y", "b"), move("b", "a"), ("a", "b")),
        (queue("x", "b"), move("b"), None),
        (queue("a", "b"), move("gone", "a", "b"), None),
        (queue("a", "b", "c"), move("c", "a", "b"), ("b", "c")),
        (queue(special("a", priority=1), "b"), move("b", "a"), None),
        (queue(special("a", depth=1), "b"), move("b", "a"), None),
        (queue(special("a", suspended=True), "b"), move("b", "a"), None),
        (queue("a", special("s", suspended=True), "b"), move("b", "a", "s"), ("a", "b")),
        (queue("a", special("b", suspended=True)), move("b", "a"), None),
        (queue(special("a", session="s"), special("b", session="s")), move("b", "a"), None),
        (queue(special("a", session="s"), special("b", session="t")), move("b", "a"), ("a", "b")),
        (queue(special("a", session="s"), special("x", session="s"), "b"), move("b", "a"), None),
        (queue(special("a", session="s"), special("x", session="t"), "b"), move("b", "a"), ("a", "b")),
    ],
)
def test_a_run_exchanges_places_with_the_next_of_its_owner(
    found: list[QueuedRun], wanted: Move, pair: tuple[str, str] | None
) -> None:
    assert exchanged(found, wanted) == pair


OWNED = st.tuples(
    st.builds(
        special,
        run=st.uuids().map(lambda found: found.hex),
        priority=st.integers(0, 1),
        depth=st.integers(0, 1),
        session=st.sampled_from([None, None, "s", "t"]),
        suspended=st.booleans(),
    ),
    st.sampled_from("me you".split()),
)


@given(st.lists(OWNED, max_size=12), st.data())
def test_others_keep_their_places_whatever_is_moved(found: list[tuple[QueuedRun, str]], data: st.DataObject) -> None:
    found.sort(key=lambda one: (-one[0].priority, -one[0].depth))
    runs, mine = [run for run, _ in found], {run.run for run, owner in found if owner == "me"}
    for _ in range(data.draw(st.integers(0, 8))):
        if not mine:
            return
        run = data.draw(st.sampled_from(sorted(mine)))
        up = data.draw(st.booleans())
        pair = exchanged(runs, Move(run=run, among=tuple(mine), up=up))
        before = list(runs)
        assert (pair is not None) == any(run == one[up] for one in exchangeable(runs, mine))
        if pair is None:
            continue
        first, second = (next(at for at, one in enumerate(runs) if one.run == name) for name in pair)
        assert first < second
        assert run == pair[1] if up else run == pair[0]
        runs[first], runs[second] = runs[second], runs[first]
        held = [(at, one.run) for at, one in enumerate(before) if one.run not in mine or one.suspended]
        assert all(runs[at].run == name for at, name in held)
        assert [(one.priority, one.depth) for one in runs] == [(one.priority, one.depth) for one in before]
        for session in ("s", "t"):
            assert [one.run for one in runs if one.session == session and not one.suspended] == [
                one.run for one in before if one.session == session and not one.suspended
            ]


def world() -> World:
    made = World(GRAPH, PLAN, Limits(), 0)
    made.settle()
    return made


def told(w: World, wanted: Move | None = None) -> tuple[list[str], bool]:
    """The order in which runs are admitted, and if places were exchanged."""
    w.handle(FromService(m.AskQueue(number=3, move=wanted)))
    answer = w.queues.pop()
    assert (w.queues, answer.number) == ([], 3)
    return [str(one.run) for one in answer.runs], answer.moved


def started(w: World) -> list[str]:
    found = [str(one.run) for one in w.workers[Rank(0)].inbox if isinstance(one, m.Start)]
    w.workers[Rank(0)].inbox.clear()
    return found


def end(w: World, run: str) -> None:
    w.handle(FromService(m.Abort(run=RunId(run))))
    w.workers[Rank(0)].inbox.clear()
    released = m.Released(rank=Rank(0), run=RunId(run), pages_free=0, pages_total=0)
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, released))


def test_moved_runs_begin_in_their_new_order() -> None:
    w = world()
    for run in ("first", "a", "other", "b"):
        w.submit(run, params=ROOM)
    assert started(w) == ["first"]
    assert told(w) == (["a", "other", "b"], False)
    assert told(w, move("b", "a", "b")) == (["b", "other", "a"], True)
    assert told(w, move("b", "a", "b")) == (["b", "other", "a"], False)
    for ended, begun in (("first", "b"), ("b", "other"), ("other", "a")):
        end(w, ended)
        assert started(w) == [begun]


def test_a_run_that_has_begun_has_no_place() -> None:
    w = world()
    w.submit("first", params=ROOM)
    assert told(w, move("first")) == ([], False)
    assert told(w, move("unknown")) == ([], False)
