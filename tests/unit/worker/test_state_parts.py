"""When states begin to leave in parts, and how many parts are on their way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.worker_loop import FakeStates
from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.engine.kv.departure import Departure, LeavingPart
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import fill_params, task_of
from walkgraph.placement.tables import Plan
from walkgraph.simulation.kinds.moving import moving_scenario
from walkgraph.simulation.scenarios import Scenario
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    Arrived,
    BeginMove,
    CallDone,
    Command,
    LetPart,
    MoveState,
    PartLeaves,
    PartStored,
    Ref,
    Send,
    Started,
    TakePart,
)
from walkgraph.worker.io.moving import PARTS, StateMoves

R, MAIN = RunId("r"), StateKey("r", "main")
REF = Ref("r", 1, 0, ())
HERE, THERE = Rank(0), Rank(1)


class Growing(FakeStates):
    """A state whose parts are given out one by one."""

    def __init__(self, *parts: LeavingPart) -> None:
        super().__init__([])
        self.parts, self.answers = list(parts), list[int]()
        self.raises: Exception | None = None

    def departure(self, key: StateKey) -> Departure:
        departure = Departure(key)
        departure.follow(self, 1)
        return departure

    def part(self, departure: Departure, *, last: bool) -> LeavingPart | None:
        if self.raises is not None:
            raise self.raises
        self.answers = departure.tokens
        if self.parts:
            return self.parts.pop(0)
        return LeavingPart({"rest": 1}, last=True) if last else None


def part(number: int) -> LeavingPart:
    return LeavingPart({"part": number})


class Moves:
    """`StateMoves` with what it says."""

    def __init__(self, *parts: LeavingPart) -> None:
        self.states, self.failed = Growing(*parts), dict[str, ErrorInfo]()
        self.away = set[str]()
        self.moves = StateMoves(self.states, self.away.__contains__, self.failed.__setitem__)

    def said(self, *commands: Any) -> list[Any]:
        return [_told(event) for command in commands for event in self.moves.perform(command)]

    def grown(self) -> list[Any]:
        return [_told(event) for event in self.moves.grown()]


def _told(event: PartLeaves | CallDone | PartStored) -> Mapping[str, Any] | int | None:
    match event:
        case PartLeaves():
            return event.value
        case CallDone():
            return event.outputs
        case PartStored():
            return event.held


def test_only_a_few_parts_are_on_their_way() -> None:
    found = Moves(*map(part, range(9)))
    assert found.said(BeginMove(REF, MAIN)) == []
    assert found.grown() == [{"part": i} for i in range(PARTS)]
    assert found.grown() == []
    assert found.said(LetPart(REF, 5), LetPart(REF, 6)) == [{"part": PARTS}, {"part": PARTS + 1}]
    assert found.said(MoveState(REF, "export", source=MAIN)) == []
    answered = found.said(*(LetPart(REF, 7) for _ in range(4)))
    assert answered == [{"part": 6}, {"part": 7}, {"part": 8}, {"state": {"rest": 1}}]
    assert not found.moves.leaving
    assert found.said(LetPart(REF, 8)) == [], "an answer that comes late"


def test_nothing_follows_an_offer_before_its_answer() -> None:
    found = Moves(LeavingPart({"names": "..."}, offers=True), part(0))
    assert found.said(BeginMove(REF, MAIN)) == []
    assert found.grown() == [{"names": "..."}]
    assert found.said(MoveState(REF, "export", source=MAIN)) == []
    assert found.grown() == []
    assert found.said(LetPart(REF, 32)) == [{"part": 0}, {"state": {"rest": 1}}]
    assert found.states.answers == [32]


def test_a_suspended_run_gives_no_parts() -> None:
    found = Moves(part(0))
    found.said(BeginMove(REF, MAIN))
    found.away.add("r")
    assert found.grown() == []
    found.away.clear()
    assert found.grown() == [{"part": 0}]


@pytest.mark.parametrize(
    ("raised", "code"),
    [(MemoryError(), "out_of_memory"), (CallFailed("too much", code="invalid_input"), "invalid_input")],
)
def test_a_part_that_fails_ends_only_its_run(raised: Exception, code: str) -> None:
    found = Moves(part(0))
    found.said(BeginMove(REF, MAIN))
    found.states.raises = raised
    assert found.grown() == []
    assert found.failed["r"].code == code
    assert not found.moves.leaving
    assert found.said(TakePart(RunId("other"), 1, HERE, MAIN, MAIN, {"big": 1})) == []
    assert found.failed["other"].code == "out_of_memory"
    found.states.raises = ZeroDivisionError()
    found.said(BeginMove(REF, MAIN))
    with pytest.raises(ZeroDivisionError):
        found.grown()


def test_a_run_that_is_over_gives_no_parts() -> None:
    found = Moves(part(0))
    found.said(BeginMove(REF, MAIN), BeginMove(Ref("other", 1, 0, ()), StateKey("other", "main")))
    found.moves.forget("r")
    assert found.moves.leaving == 1


# ── the core ─────────────────────────────────────────────────────────────────────────────────────


def scenario(**wanted: Any) -> Scenario:
    """The first one whose state goes from rank 0 to rank 1, and of which this holds."""
    found = (moving_scenario(seed) for seed in range(200))
    return next(one for one in found if _moves(one.plan) and all(getattr(one, k) == v for k, v in wanted.items()))


def _moves(plan: Plan) -> bool:
    homes = {walk.name: {use.rank for use in walk.uses if use.name == "main"} for walk in plan.walks}
    return homes["read"] == {HERE} and homes["write"] == {THERE}


def started(one: Scenario) -> tuple[Core, Core, list[Command]]:
    """The cores of both ranks, and what the first one wants."""
    task = task_of(one.graph, "t")
    params = fill_params(task, {"seed": 0, "room": 500})
    event = Started(R, expand(one.graph, one.plan, "t", params, {}), params, {})
    here, there = Core(one.plan, HERE), Core(one.plan, THERE)
    assert not [c for c in there.handle(event) if isinstance(c, BeginMove)], "the state is not there"
    return here, there, here.handle(event)


def test_a_state_may_leave_once_a_step_that_uses_it_begins() -> None:
    one = scenario(converses=False)
    _, _, commands = started(one)
    (begun,) = [command for command in commands if isinstance(command, BeginMove)]
    moves = [walk.name for walk in one.plan.walks if walk.index == _walk_of(one, begun.ref.step)]
    assert moves == ["move:main:0>1"]
    assert begun.source == MAIN


def _walk_of(one: Scenario, step: int) -> int:
    params = fill_params(task_of(one.graph, "t"), {"seed": 0, "room": 500})
    return expand(one.graph, one.plan, "t", params, {}).steps[step].walk


def test_a_part_goes_to_the_rank_that_the_state_moves_to_and_is_answered() -> None:
    here, there, commands = started(scenario(converses=False))
    (begun,) = [command for command in commands if isinstance(command, BeginMove)]
    (sent,) = here.handle(PartLeaves(begun.ref, {"tokens": [1]}))
    assert isinstance(sent, Send)
    assert isinstance(sent.message, m.StatePart)
    assert (sent.rank, sent.message.number, sent.value) == (THERE, 0, {"tokens": [1]})
    (taken,) = there.handle(Arrived(sent.message, sent.value))
    assert isinstance(taken, TakePart)
    assert (taken.arriving.run, taken.target) == (R, MAIN)
    assert taken.arriving != taken.target
    (answer,) = there.handle(PartStored(taken.run, taken.step, taken.rank, 1))
    assert isinstance(answer, Send)
    assert answer.rank == HERE
    assert here.handle(Arrived(answer.message)) == [LetPart(begun.ref, 1)]


def test_what_comes_of_a_sessions_state_belongs_to_the_run() -> None:
    one = scenario(converses=True)
    state = next(state.index for state in one.plan.states if state.name == "main")
    _, there, _ = started(one)
    part = m.StatePart(run=R, step=1, state=state, rank=HERE, number=0, value=m.Absent())
    (taken,) = there.handle(Arrived(part, {}))
    assert isinstance(taken, TakePart)
    assert taken.arriving.run == R
