"""Runs that can't go on end typed, and no others do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.conductor_world import PAGES, World
from tests.support.deployment import plan_named
from walkgraph.conductor.events import FromRank, FromService, ToRank
from walkgraph.conductor.runs.stalls import AGAIN_SECONDS, LOST_PROBES, PROBES, QUIET_SECONDS, QuietRun, Stalls
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.wire.standing import Held, Probe, Standing, Wait

GRAPH, PLAN = plan_named("synthetic_states")
ZERO, ONE = Rank(0), Rank(1)
A, B = RunId("a"), RunId("b")


def standing(run: RunId = A, sent: int = 0, received: int = 0, **fields: object) -> Standing:
    return Standing(run=run, **{"busy": False, "sent": sent, "received": received, **fields})  # type: ignore[arg-type]


class Watched:
    """Runs on two ranks, which answer as the test says."""

    def __init__(self, *runs: RunId) -> None:
        self.now = 100.0
        self.stalls = Stalls()
        self.runs = [QuietRun(run, frozenset((ZERO, ONE)), self.now) for run in runs or (A,)]
        self.probes: list[tuple[Rank, Probe]] = []
        self.stalls.begin(self.now)

    def wait(self) -> int:
        """Until it asks; how many ranks."""
        before = len(self.probes)
        for _ in range(10):
            if len(self.probes) > before:
                break
            assert self.stalls.due < float("inf")
            self.now = max(self.now, self.stalls.due)
            for command in self.stalls.tick(self.runs, self.now):
                assert isinstance(command, ToRank)
                assert isinstance(command.message, Probe)
                self.probes.append((command.rank, command.message))
        return len(self.probes) - before

    def answer(self, *of_ranks: Sequence[Standing]) -> list[ErrorInfo]:
        """Answers the last probe for both ranks."""
        number = self.probes[-1][1].number
        found = []
        for rank, runs in zip((ZERO, ONE), of_ranks, strict=True):
            found += self.stalls.probed(m.Probed(rank=rank, number=number, runs=tuple(runs)), self.now)
        assert all(run in self.runs for run, _ in found)
        return [error for _, error in found]

    def rounds(self, *of_ranks: Sequence[Standing], most: int = 30) -> tuple[int, list[ErrorInfo]]:
        """Probes until something stalls, and what does."""
        for number in range(1, most + 1):
            assert self.wait() == 2
            if found := self.answer(*of_ranks):
                return number, found
        return most, []


def test_nothing_is_asked_while_something_is_heard() -> None:
    watched = Watched()
    for _ in range(5):
        watched.now += QUIET_SECONDS - 0.5
        watched.runs = [watched.runs[0]._replace(heard=watched.now)]
        assert not watched.stalls.tick(watched.runs, watched.now)
        assert watched.now < watched.stalls.due <= watched.now + QUIET_SECONDS


def test_without_runs_nothing_is_due() -> None:
    stalls = Stalls()
    assert stalls.due == float("inf")
    stalls.begin(1.0)
    assert not stalls.tick([], stalls.due)
    assert stalls.due == float("inf")


def test_a_run_at_rest_in_two_probes_has_stalled() -> None:
    watched = Watched()
    wait = Wait(walk="w", use="sum", iteration=(2,), port="items", source="item.items")
    number, (error,) = watched.rounds([standing(sent=3)], [standing(received=3, waits=(wait,))])
    assert number == PROBES
    assert (error.code, error.walk, error.use, error.port) == ("stalled", "w", "sum", "items")
    assert (error.iteration, error.rank) == ((2,), ONE)
    assert "`sum.items` of Walk `w` waits for item.items" in error.message
    assert watched.now == pytest.approx(100.0 + QUIET_SECONDS + (PROBES - 1) * AGAIN_SECONDS)


def test_the_error_names_what_others_wait_for() -> None:
    def wait(use: str, source: str) -> Wait:
        return Wait(walk="w", use=use, iteration=(), port="in", source=source)

    one, two, three = wait("c", "b.out"), wait("b", "a.out"), wait("d", "c.out")
    _, (error,) = Watched().rounds([standing(waits=(one, three))], [standing(waits=(two,))])
    assert (error.use, error.rank) == ("b", ONE)
    circle = wait("a", "c.out")
    _, (error,) = Watched().rounds([standing(waits=(one, circle))], [standing(waits=(two,))])
    assert error.use == "c"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (([standing(busy=True)], [standing()]), ([standing()], [standing()])),
        (([standing()], [standing()]), ([standing()], [standing(busy=True)])),
        (([standing(sent=1)], [standing(received=1)]), ([standing(sent=2)], [standing(received=2)])),
        (([standing(sent=2)], [standing(received=1)]), ([standing(sent=2)], [standing(received=2)])),
        (([], [standing()]), ([standing()], [standing()])),
    ],
    ids=["busy before", "busy after", "it moved between", "under way", "not known"],
)
def test_what_moves_has_not_stalled(
    first: tuple[list[Standing], list[Standing]], second: tuple[list[Standing], list[Standing]]
) -> None:
    watched = Watched()
    watched.wait()
    assert not watched.answer(*first)
    watched.wait()
    assert not watched.answer(*second)


def test_what_was_heard_between_two_probes_begins_anew() -> None:
    watched = Watched()
    watched.wait()
    assert not watched.answer([standing()], [standing()])
    watched.runs = [watched.runs[0]._replace(heard=watched.now)]
    watched.wait()
    assert not watched.answer([standing()], [standing()])
    watched.wait()
    assert watched.answer([standing()], [standing()])


def test_messages_that_stay_missing_were_lost() -> None:
    number, (error,) = Watched().rounds([standing(sent=3)], [standing(received=1)])
    assert number == LOST_PROBES
    assert "of the messages between its ranks, 2 never arrived" in error.message


def test_a_message_for_an_unknown_rank_is_named() -> None:
    held = Held(to=ONE, edge="item.items -> sum.items")
    number, (error,) = Watched().rounds([standing(held=(held,))], [standing()])
    assert number == PROBES
    assert error.rank == ZERO
    assert "rank 0 holds `item.items -> sum.items` for rank 1" in error.message


def test_one_run_stalls_beside_others_that_move() -> None:
    watched = Watched(A, B)
    for number in range(PROBES):
        assert watched.wait() == 2
        busy = standing(B, busy=True, sent=number)
        found = watched.answer([standing(), busy], [standing(), standing(B)])
    assert len(found) == 1


def test_an_answer_is_waited_for_and_an_old_one_is_none() -> None:
    watched = Watched()
    watched.wait()
    number = watched.probes[-1][1].number
    assert watched.stalls.due == float("inf"), "no probe before the last is answered"
    watched.stalls.begin(watched.now)
    assert watched.stalls.due == float("inf")
    watched.stalls.rank_lost(ONE, watched.now)
    assert not watched.stalls.probed(m.Probed(rank=ZERO, number=number, runs=(standing(),)), watched.now)
    assert watched.wait() == 2
    assert not watched.stalls.probed(m.Probed(rank=ZERO, number=number, runs=(standing(),)), watched.now)
    assert watched.stalls.due == float("inf")


# ── in a deployment ────────────────────────────────────────────────────────────────────────────


def world(**limits: float) -> World:
    made = World(GRAPH, PLAN, Limits(**limits), 0)  # type: ignore[arg-type]
    made.settle()
    return made


def stuck(w: World, run: str = "a", *ranks: Rank) -> None:
    """It does nothing more on some ranks, on all if none are given."""
    w.hear()
    for rank in ranks or (ZERO, ONE):
        w.workers[rank].stuck.add(run)


def pass_quietly(w: World, seconds: float) -> None:
    end = w.now + seconds
    while w.now < end:
        w.pass_time(max(0.01, min(end, w.core.due()) - w.now))
        w.hear()


def test_a_run_whose_ranks_all_rest_ends_with_the_reason() -> None:
    w = world()
    w.submit("a", "part_ways")
    w.submit("b", "part_ways")
    stuck(w)
    pass_quietly(w, 30.0)
    error = w.finished["a"].error
    assert error is not None
    assert error.code == "stalled"
    assert "b" not in w.finished, "its ranks are at work"
    assert not w.killed


def test_a_run_that_one_rank_works_on_goes_on() -> None:
    w = world()
    w.submit("a", "part_ways")
    stuck(w, "a", ZERO)
    pass_quietly(w, 60.0)
    assert "a" not in w.finished


def test_who_pauses_a_run_is_waited_for() -> None:
    w = world()
    w.submit("a", "part_ways")
    w.steer("a", "pause")
    stuck(w)
    pass_quietly(w, 60.0)
    assert "a" not in w.finished
    w.steer("a", "resume")
    pass_quietly(w, QUIET_SECONDS - 0.1)
    assert "a" not in w.finished, "it has just been told to go on"
    pass_quietly(w, 10.0)
    assert "a" in w.finished


def test_a_run_that_is_suspended_or_waits_for_its_session_is_none_that_stalls() -> None:
    w = world()
    w.submit("low", params={"prompt": PAGES * 16 - 10, "times": 10})
    stuck(w, "low")
    w.submit("high", params={"prompt": PAGES * 16 - 10, "times": 10}, priority=1)
    w.hear()
    w.submit("first", "remember", session="s", params={"room": 16}, priority=1)
    w.submit("second", "remember", session="s", params={"room": 16}, priority=1)
    pass_quietly(w, 60.0)
    assert not w.finished


def test_a_rank_that_is_in_a_long_call_is_waited_for_and_one_that_hangs_is_lost() -> None:
    w = world(step_deadline=20.0)
    w.submit("a", "part_ways")
    stuck(w)
    w.workers[ONE].stopped = True
    pass_quietly(w, 15.0)
    assert "a" not in w.finished
    w.workers[ONE].stopped = False
    pass_quietly(w, 10.0)
    assert w.finished["a"].error.code == "stalled"  # type: ignore[union-attr]


def test_what_a_rank_says_before_its_answer_counts() -> None:
    w = world()
    w.submit("a", "part_ways")
    stuck(w)
    pass_quietly(w, QUIET_SECONDS + 0.1)
    pass_quietly(w, AGAIN_SECONDS / 2)
    w.pass_time(max(0.0, w.core.due() - w.now))
    assert any(isinstance(message, Probe) for message in w.workers[ONE].inbox), "the last probe"
    emit = m.Emit(rank=ZERO, run=A, name="one", value=m.Small(value=1), iteration=())
    outputs = w.workers[ZERO].runs["a"].itinerary.outputs
    w.handle(FromRank(ZERO, w.workers[ZERO].start, m.Emit(**{**_fields(emit), "name": outputs[0]})))
    w.hear()
    assert "a" not in w.finished


def _fields(emit: m.Emit) -> dict[str, object]:
    return {name: getattr(emit, name) for name in emit.__struct_fields__}


def test_a_client_that_leaves_ends_it_as_ever() -> None:
    w = world()
    w.submit("a", "part_ways")
    stuck(w)
    pass_quietly(w, QUIET_SECONDS + 0.1)
    w.handle(FromService(m.Abort(run=A)))
    pass_quietly(w, 10.0)
    assert w.finished["a"].error.code == "cancelled"  # type: ignore[union-attr]
