"""Calls of tasks in the conductor: passed on with what is left of the deadline, and who waits is in nobody's way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conductor_world import PAGES, World
from tests.unit.conductor.test_priority import GRAPH, PLAN, POOL, heard, holder, room, sent, suspended
from walkgraph.conductor.events import FromService
from walkgraph.conductor.runs.page_budget import Demand
from walkgraph.conductor.runs.priority import to_suspend
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits


class Calling(World):
    """Keeps the calls that the service gets."""

    def take(self, message: m.FromConductor) -> None:
        if isinstance(message, m.CallTask):
            self.calls = [*getattr(self, "calls", []), message]
        else:
            super().take(message)


def world(**limits: Any) -> Calling:
    made = Calling(GRAPH, PLAN, Limits(**limits), 0)
    made.settle()
    made.calls = []
    return made


def asks(w: Calling, run: str, use: int = 0) -> m.CallTask | None:
    """A rank's call of a task; what the service gets of it."""
    place: dict[str, Any] = {"run": RunId(run), "rank": Rank(0), "step": 0, "use": use, "iteration": ()}
    call = m.CallTask(**place, task="g/t", walk="w", node="n", name="n", seed=1, params={}, outputs=())
    before = len(w.calls)
    heard(w, call)
    return w.calls[-1] if len(w.calls) > before else None


def answered(w: Calling, call: m.CallTask, error: ErrorInfo | None = None) -> None:
    place = {"run": call.run, "rank": call.rank, "step": call.step, "use": call.use, "iteration": call.iteration}
    w.handle(FromService(m.TaskAnswer(**place, outputs={"o": m.Small(value=3)}, error=error)))


def answers(w: Calling) -> list[m.TaskAnswer]:
    inbox = w.workers[Rank(0)].inbox
    found = [one for one in inbox if isinstance(one, m.TaskAnswer)]
    inbox.clear()
    return found


def test_a_call_goes_to_the_service_with_what_is_left_of_the_deadline_and_its_answer_comes_back() -> None:
    w = world()
    w.submit("caller", params=room(16), deadline=5.0)
    sent(w)
    w.pass_time(2.0)
    call = asks(w, "caller")
    assert call is not None
    assert call.deadline == pytest.approx(3.0)
    answered(w, call)
    (answer,) = answers(w)
    assert answer.outputs == {"o": m.Small(value=3)}
    answered(w, call)
    assert answers(w) == [], "only once"


def test_pieces_go_to_the_rank_while_the_call_is_under_way() -> None:
    w = world()
    w.submit("caller", params=room(16))
    call = asks(w, "caller")
    assert call is not None
    place = {"run": call.run, "rank": call.rank, "step": call.step, "use": call.use, "iteration": call.iteration}
    piece = m.TaskPiece(**place, output="o", value=m.Small(value=1))
    w.handle(FromService(piece))
    assert w.workers[Rank(0)].inbox[-1] == piece
    answered(w, call)
    w.workers[Rank(0)].inbox.clear()
    w.handle(FromService(piece))
    assert not w.workers[Rank(0)].inbox


def test_calls_and_answers_of_runs_that_have_ended_are_dropped() -> None:
    w = world()
    w.submit("caller", params=room(16))
    call = asks(w, "caller")
    assert call is not None
    assert call.deadline is None
    w.handle(FromService(m.Abort(run=RunId("caller"))))
    sent(w)
    answered(w, call)
    assert answers(w) == []
    assert asks(w, "caller") is None
    assert asks(w, "unknown") is None


def test_a_run_that_waits_for_a_task_does_not_stall() -> None:
    w = world()
    w.submit("caller", params=room(16))
    call = asks(w, "caller")
    assert call is not None
    w.workers[Rank(0)].stuck.add("caller")
    for _ in range(100):
        w.hear()
        w.pass_time(1.0)
    assert "caller" not in w.finished
    answered(w, call)
    for _ in range(100):
        w.hear()
        w.pass_time(1.0)
    error = w.finished["caller"].error
    assert error is not None
    assert error.code == "stalled", "once it is answered, it is watched again"


def test_who_waits_makes_room_for_any_and_comes_back_when_it_is_answered() -> None:
    w = world()
    w.submit("caller", params=room())
    call = asks(w, "caller")
    assert call is not None
    assert sent(w) == [("start", "caller")]
    w.submit("called", params=room(), depth=1)
    assert sent(w) == [("suspend", "caller")]
    heard(w, suspended("caller"))
    assert sent(w) == [("start", "called")]
    w.handle(FromService(m.Abort(run=RunId("called"))))
    heard(w, m.Released(rank=Rank(0), run=RunId("called"), pages_free=0, pages_total=0))
    assert ("resume", "caller") not in sent(w), "it still waits"
    answered(w, call)
    inbox = [type(one) for one in w.workers[Rank(0)].inbox]
    assert inbox == [m.TaskAnswer, m.Resume]


def test_a_run_with_several_calls_comes_back_after_the_last_one() -> None:
    w = world()
    w.submit("caller", params=room())
    first, second = asks(w, "caller", 1), asks(w, "caller", 2)
    assert first is not None
    assert second is not None
    sent(w)
    w.submit("called", params=room(16), depth=1)
    heard(w, suspended("caller"))
    w.handle(FromService(m.Abort(run=RunId("called"))))
    heard(w, m.Released(rank=Rank(0), run=RunId("called"), pages_free=0, pages_total=0))
    sent(w)
    answered(w, first)
    assert sent(w) == []
    answered(w, second)
    assert sent(w) == [("resume", "caller")]


def test_who_waits_is_suspended_before_others_of_lower_priority() -> None:
    calls = holder("calls", 5, 4)._replace(calls=True)
    assert to_suspend(Demand({POOL: 4}), 1, [holder("low", 0, 4), calls]) == ["calls"]
    assert to_suspend(Demand({POOL: 8}), 1, [holder("low", 0, 4), calls]) == ["calls", "low"]
    assert to_suspend(Demand({POOL: 8}), 0, [holder("equal", 0, 4), calls]) == []


def test_who_waits_holds_no_place_against_those_that_it_waits_for() -> None:
    w = world(running=1)
    w.submit("caller", params=room(16))
    assert asks(w, "caller") is not None
    assert sent(w) == [("start", "caller")]
    w.submit("client", params=room(16))
    assert sent(w) == [], "a client's run waits for the caller's place"
    w.submit("called", params=room(16), depth=1)
    assert sent(w) == [("start", "called")]
    w.submit("other", params=room(16), depth=1)
    assert sent(w) == [], "`called` computes, so it holds the place"


def test_a_called_run_is_taken_by_a_full_queue_and_by_a_deployment_that_drains() -> None:
    w = world(running=1, queue=1)
    w.submit("caller", params=room(16))
    w.submit("waits", params=room(16))
    w.submit("refused", params=room(16))
    assert w.rejected["refused"].error.code == "overloaded"
    w.submit("called", params=room(16), depth=1)
    assert "called" in w.accepted
    w.handle(FromService(m.Drain()))
    w.submit("late", params=room(16))
    assert w.rejected["late"].error.code == "shutting_down"
    w.submit("deeper", params=room(16), depth=2)
    assert "deeper" in w.accepted


def test_the_deepest_go_first_within_a_priority() -> None:
    w = world(running=1)
    w.submit("caller", params=room())
    w.submit("client", params=room(16))
    w.submit("first", params=room(16), depth=1)
    w.submit("deep", params=room(16), depth=2)
    w.submit("high", params=room(16), priority=1)
    assert [run.id for run in w.core.runs.table.queued()] == ["high", "deep", "first", "client"]


def test_a_called_run_that_can_never_fit_is_refused() -> None:
    w = world()
    w.submit("called", params=room(PAGES * 16 + 16), depth=1)
    error = w.finished["called"].error
    assert error is not None
    assert error.code == "refused"
