from __future__ import annotations

from tests.unit.engine.plans import call
from walkgraph.engine.schedule import Schedule
from walkgraph.networks.base import Call


def names(calls: list[Call]) -> list[str]:
    return [c.run for c in calls]


def ready(run: str, at: float, *, priority: int = 0, state: str | None = None) -> Call:
    return call("n", run=run, ready_at=at, priority=priority, states={"kv": state} if state else {})


def drain(schedule: Schedule) -> list[tuple[object, list[str]]]:
    taken = []
    while (batch := schedule.next()) is not None:
        taken.append((batch.lane, names(batch.calls)))
    return taken


def test_one_batch_takes_all_of_its_lane_in_the_order_of_readiness() -> None:
    schedule = Schedule()
    for run, at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        schedule.add(ready(run, at), "lane", 1)
    assert len(schedule) == 3
    assert drain(schedule) == [("lane", ["a", "b", "c"])]
    assert schedule.next() is None


def test_the_lane_that_waited_longest_is_next() -> None:
    schedule = Schedule()
    for run, at, lane in (("a", 5.0, "x"), ("b", 4.0, "y"), ("c", 6.0, "y")):
        schedule.add(ready(run, at), lane, 1)
    assert drain(schedule) == [("y", ["b", "c"]), ("x", ["a"])]


def test_a_busy_lane_starves_no_other() -> None:
    schedule = Schedule(budget=1)
    schedule.add(ready("patient", 10.0), "slow", 1)
    served: list[str] = []
    for step in range(30):
        for n in range(2):
            schedule.add(ready(f"{step}.{n}", float(step)), "busy", 1)
        batch = schedule.next()
        assert batch is not None
        served += names(batch.calls)
    assert served.index("patient") == 20


def test_a_priority_is_a_lead_and_no_more() -> None:
    schedule = Schedule(budget=1, patience=2.0)
    schedule.add(ready("old", 0.0), "lane", 1)
    schedule.add(ready("urgent", 1.5, priority=1), "lane", 1)
    schedule.add(ready("late", 2.5, priority=1), "lane", 1)
    assert [runs for _, runs in drain(schedule)] == [["urgent"], ["old"], ["late"]]


def test_the_budget_bounds_a_batch_and_small_calls_fill_it() -> None:
    schedule = Schedule(budget=10)
    for run, rows in (("a", 6), ("big", 7), ("b", 3), ("c", 1), ("huge", 99)):
        schedule.add(ready(run, 1.0), "lane", rows)
    assert [runs for _, runs in drain(schedule)] == [["a", "b", "c"], ["big"], ["huge"]]


def test_calls_on_one_state_stay_in_order_even_past_the_budget() -> None:
    schedule = Schedule(budget=10)
    schedule.add(ready("a", 1.0, state="s"), "lane", 5)
    schedule.add(ready("b", 2.0, state="s"), "lane", 9)
    schedule.add(ready("b", 3.0, state="s"), "lane", 1)
    schedule.add(ready("c", 4.0, state="s"), "lane", 1)
    assert [runs for _, runs in drain(schedule)] == [["a", "c"], ["b"], ["b"]]


def test_cancel_takes_out_one_run() -> None:
    schedule = Schedule()
    for run, lane in (("a", "x"), ("b", "x"), ("a", "y")):
        schedule.add(ready(run, 1.0), lane, 1)
    assert names(schedule.cancel("a")) == ["a", "a"]
    assert schedule.cancel("a") == []
    assert drain(schedule) == [("x", ["b"])]
