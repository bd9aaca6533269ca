"""Deferred calls: they wait for the next one on their states, are made with it, and earlier if anything needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, plan_of
from tests.unit.engine.test_schedule import drain, names, ready
from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.engine import load
from walkgraph.engine.calls.schedule import Mix, Schedule
from walkgraph.engine.engine import Begun, Done, Engine


class Log(Operator):
    """Appends numbers to a state, and answers with all of them. Calls that nothing waits for are deferred."""

    def defers(self, call: Call) -> bool:
        return True

    def bucket(self, call: Call) -> object:
        return call.params.get("bucket")

    def rows(self, call: Call) -> int:
        return len(call.inputs["value"])

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        # In batches of their own, as parts may have other shapes.
        params = {**call.params, "bucket": "part"}
        return [replace(call, inputs={"value": part}, params=params) for part in call.inputs["value"].split(rows)]

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for one in calls:
            if one.params.get("broken"):
                raise ValueError("broken")
            before = states.tensor(one.states["log"])
            new = one.inputs["value"] if before is None else torch.cat([before, one.inputs["value"]])
            states.put(one.states["log"], new)
            outputs.append({"log": new, "batch": len(calls)})
        return outputs


class Mean(Log):
    """Appends numbers to a cache, and answers with the mean of those up to its own."""

    def caches(self) -> dict[str, CacheShape]:
        return {"kv": CacheShape(layers=1, kv_heads=1, head_dim=2, dtype=torch.float64)}

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for one in calls:
            if one.params.get("broken"):
                raise ValueError("broken")
            value = one.inputs["value"].double().expand(1, 1, 2)
            attend = states.attend([Segment(one.states["kv"], torch.zeros(1, dtype=torch.int64), "causal")])
            mean = attend(0, torch.zeros_like(value), torch.zeros_like(value), value)
            states.commit(attend)
            outputs.append({"log": mean[0, 0, :1]})
        return outputs


@pytest.fixture(autouse=True)
def _networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_network", {"Log": Log, "Mean": Mean}.__getitem__)


def made(**options: object) -> Engine:
    return engine_of(plan_of({"log": ("Log", {"log": "log"})}), **options)


def append(run: str, value: int, *, read: bool = False, **params: object) -> Call:
    one = call("log", {"value": torch.tensor([value])}, run=run, states={"log": "log"}, **params)
    return replace(one, awaited=read)


def done(engine: Engine, steps: int = 1) -> list[Done]:
    return [event for _ in range(steps) for event in engine.step() if isinstance(event, Done)]


def logs(events: Sequence[Done]) -> dict[tuple[str, int], list[int]]:
    return {(e.call.run, int(e.call.inputs["value"])): e.outputs["log"].tolist() for e in events if e.outputs}


# ── schedule ──


def deferring(*calls: tuple[str, float, bool]) -> Schedule:
    schedule = Schedule()
    for run, at, deferred in calls:
        schedule.add(ready(run, at, state="s"), "lane", 1, deferred=deferred)
    return schedule


def test_a_deferred_call_waits_and_goes_ahead_of_the_next_one_on_its_state() -> None:
    schedule = deferring(("a", 1.0, True), ("a", 2.0, True), ("b", 3.0, True))
    assert schedule.next() is None
    assert schedule.ahead(lambda key, calls: True) == []
    schedule.add(ready("a", 4.0, state="s"), "lane", 1)
    schedule.add(ready("c", 5.0), "lane", 1)
    batch = schedule.next()
    assert batch is not None
    assert [(one.run, one.ready_at) for one in batch.calls] == [("a", 1.0), ("a", 2.0), ("a", 4.0), ("c", 5.0)]
    assert schedule.deferring() == {"b"}
    assert names(schedule.cancel("b")) == ["b"]
    assert not schedule.deferring()


def test_a_call_that_is_passed_over_keeps_what_is_deferred_for_it() -> None:
    schedule = Schedule(budget=4)
    schedule.add(ready("a", 1.0), "lane", 3)
    schedule.add(ready("b", 2.0, state="s"), "lane", 1, deferred=True)
    schedule.add(ready("b", 3.0, state="s"), "lane", 1)
    assert [runs for _, runs in drain(schedule)] == [["a"], ["b", "b"]]


def test_a_deferred_call_does_not_pass_one_that_waits_on_its_state() -> None:
    schedule = Schedule()
    schedule.add(ready("a", 1.0, state="s"), "lane", 1)
    schedule.add(ready("a", 2.0, state="s"), "lane", 1, deferred=True)
    schedule.add(ready("a", 3.0, state="s"), "lane", 1)
    assert [runs for _, runs in drain(schedule)] == [["a"], ["a", "a"]]


def test_held_calls_stay_deferred() -> None:
    schedule = deferring(("a", 1.0, True))
    schedule.hold("a")
    assert not schedule.deferring()
    assert not schedule
    schedule.release("a")
    assert schedule.next() is None
    schedule.promote("a")
    assert drain(schedule) == [("lane", ["a"])]


def test_promoted_calls_go_together_and_those_taken_keep_their_order() -> None:
    schedule = deferring(("a", 1.0, True), ("a", 2.0, True))
    schedule.promote("a")
    assert drain(schedule) == [("lane", ["a", "a"])]
    schedule = deferring(("a", 1.0, True), ("b", 2.0, True), ("a", 3.0, True))
    assert list(schedule.deferred_on([StateKey("a", "s")], "lane")) == []
    [batch] = schedule.deferred_on([StateKey("a", "s")])
    assert [one.ready_at for one in batch.calls] == [1.0, 3.0]
    assert len(schedule) == 1


def made_for(schedule: Schedule, state: str) -> list[list[float]]:
    return [[one.ready_at for one in batch.calls] for batch in schedule.deferred_on([StateKey("a", state)])]


def test_calls_on_one_state_are_found_until_the_last_of_them_is_gone() -> None:
    calls = [ready("a", at, state="s") for at in (1.0, 2.0, 3.0)]
    schedule = Schedule()
    for one in calls:
        schedule.add(one, "lane", 1, deferred=True)
    schedule.remove(calls[:1])
    assert made_for(schedule, "other") == []
    assert made_for(schedule, "s") == [[2.0, 3.0]]
    assert made_for(schedule, "s") == []
    schedule.add(calls[0], "lane", 1, deferred=True)
    assert made_for(schedule, "s") == [[1.0]]


def test_a_promoted_call_is_still_made_for_what_needs_its_state() -> None:
    schedule = deferring(("a", 1.0, True), ("a", 2.0, True))
    schedule.promote("a")
    assert not schedule.deferring()
    assert made_for(schedule, "s") == [[1.0, 2.0]]
    assert schedule.next() is None
    assert not schedule


def on(run: str, at: float, *states: str) -> Call:
    return replace(ready(run, at), states={name: StateKey(run, name) for name in states})


def test_what_is_deferred_before_a_deferred_call_on_another_state_goes_before_it() -> None:
    schedule = Schedule()
    schedule.add(on("a", 1.0, "s"), "lane", 1, deferred=True)
    schedule.add(on("a", 2.0, "s", "t"), "lane", 1, deferred=True)
    schedule.add(on("a", 3.0, "u"), "lane", 1, deferred=True)
    assert made_for(schedule, "t") == [[1.0, 2.0]]
    assert made_for(schedule, "u") == [[3.0]]


def test_a_deferred_call_goes_with_one_of_those_that_follow() -> None:
    schedule = Schedule()
    schedule.add(on("a", 1.0, "s"), "lane", 1, deferred=True)
    schedule.add(on("a", 2.0, "s", "t"), "lane", 1, deferred=True)
    schedule.add(on("a", 3.0, "t"), "lane", 1)
    schedule.add(on("a", 4.0, "s"), "lane", 1)
    batch = schedule.next()
    assert batch is not None
    assert [one.ready_at for one in batch.calls] == [1.0, 2.0, 3.0, 4.0]
    assert not schedule


# ── engine ──


def test_deferred_calls_are_made_with_the_next_one() -> None:
    engine = made()
    for run in "ab":
        engine.add(append(run, 1))
        engine.add(append(run, 2))
    begun = engine.step()
    assert [(type(event), event.call.run) for event in begun] == [(Begun, run) for run in "aabb"]
    for run in "ab":
        engine.add(append(run, 3, read=True))
    events = done(engine)
    assert {event.batch for event in events} == {6}
    assert logs(events)["a", 3] == logs(events)["b", 3] == [1, 2, 3]
    # The time is that of the call they were made with, and it was not the device that they waited for.
    busy = {int(event.call.inputs["value"]): event.busy > 0 for event in events}
    assert busy == {1: False, 2: False, 3: True}
    assert all(event.queued == 0 for event in events if not event.call.awaited)
    assert engine.idle


def test_a_deferred_call_is_made_alone_once_nothing_comes() -> None:
    engine = made()
    engine.add(append("a", 1))
    events = engine.step()
    steps = 0
    while not engine.idle:
        assert steps < 10
        steps, events = steps + 1, [*events, *engine.step()]
    assert [type(event) for event in events] == [Begun, Done]
    assert engine.states.glance(StateKey("a", "log")).tolist() == [1]


@pytest.mark.parametrize("what", ["fork", "export", "renew", "drop", "other"])
def test_what_needs_a_state_makes_the_calls_deferred_on_it(what: str) -> None:
    engine, key, copy = made(), StateKey("a", "log"), StateKey("b", "log")
    engine.add(append("a", 1))
    engine.add(append("c", 9))
    match what:
        case "fork":
            engine.transfers.fork(key, copy)
            assert engine.states.glance(copy).tolist() == [1]
        case "export":
            assert engine.transfers.export(key)["tensor"].tolist() == [1]
        case "renew":
            engine.states.renew(copy, key, 1)
            assert engine.states.glance(copy).tolist() == [1]
        case "drop":
            engine.states.drop([key])
            assert engine.states.glance(key) is None
        case _:
            engine.add(append("a", 2, read=True, bucket="another"))
    count = 2 if what == "other" else 1
    events = done(engine, count)
    assert [(event.call.run, event.error) for event in events] == [("a", None)] * count
    assert what != "other" or logs(events)["a", 2] == [1, 2]
    if what == "drop":
        assert engine.states.glance(key) is None


def test_a_cancelled_run_leaves_no_deferred_call() -> None:
    engine = made()
    engine.add(append("a", 1))
    assert [one.run for one in engine.cancel("a")] == ["a"]
    engine.drop("a")
    assert engine.idle
    assert not engine.calls.deferred.restless


def test_nothing_comes_of_a_cancelled_run_that_was_told_to_go_on() -> None:
    engine = made()
    engine.add(append("a", 1))
    engine.drop("a")
    engine.add(append("b", 2, read=True))
    assert {event.call.run for event in engine.step()} == {"b"}


def test_a_deferred_call_goes_before_the_parts_of_one_that_is_cut() -> None:
    engine = made(mix=Mix(alone=2, mixed=2))
    engine.add(append("a", 1))
    long = append("a", 2, read=True)
    engine.add(replace(long, inputs={"value": torch.tensor([2, 3, 4, 5])}))
    events = done(engine, 6)
    assert engine.states.glance(StateKey("a", "log")).tolist() == [1, 2, 3, 4, 5]
    assert len(events) == 2
    assert engine.idle


def test_a_deferred_call_is_not_cut() -> None:
    engine = made(mix=Mix(alone=2, mixed=2))
    engine.add(replace(append("a", 1), inputs={"value": torch.tensor([1, 2, 3])}))
    assert len(done(engine, 6)) == 1
    assert engine.calls.deferred.open == 0
    assert engine.idle


def test_if_a_deferred_call_fails_so_does_its_run_alone() -> None:
    engine = made()
    engine.add(append("a", 1, broken=True))
    engine.add(append("b", 1))
    engine.add(append("a", 2, read=True))
    engine.add(append("b", 2, read=True))
    events = done(engine, 2)
    assert {(event.call.run, int(event.call.inputs["value"])) for event in events if event.error} == {("a", 1)}
    assert logs(events)["b", 2] == [1, 2]


def test_deferred_calls_keep_their_order_where_a_call_beside_them_fails() -> None:
    engine = engine_of(plan_of({"mean": ("Mean", {"kv": "cache"})}))

    def add(run: str, value: int, *, read: bool = False, **params: object) -> None:
        one = call("mean", {"value": torch.tensor([value])}, run=run, states={"kv": "cache"}, **params)
        engine.add(replace(one, awaited=read))

    add("a", 1)
    add("a", 2)
    while engine.calls.schedule.deferring():
        engine.step()
    # The first two may go now, with a call that fails; the third comes too late to be promoted.
    add("a", 6)
    add("b", 0, read=True, broken=True)
    events = done(engine)
    assert [event.call.run for event in events if event.error] == ["b"]
    assert logs(events) == {("a", 1): [1], ("a", 2): [1.5]}
    add("a", 3, read=True)
    assert logs(done(engine, 2)) == {("a", 6): [3], ("a", 3): [3]}


def test_where_every_batch_is_one_call_none_is_deferred() -> None:
    engine = made(mix=Mix(single=True))
    engine.add(append("a", 1))
    engine.add(append("a", 2, read=True))
    events = [event for _ in range(3) for event in engine.step()]
    assert [(type(event), event.batch) for event in events if isinstance(event, Done)] == [(Done, 1)] * 2
    assert not any(isinstance(event, Begun) for event in events)


def test_a_suspended_run_keeps_its_deferred_calls_waiting() -> None:
    engine = made()
    engine.add(append("a", 1))
    engine.step()
    engine.swap.suspend("a")
    for _ in range(5):
        engine.step()
    assert not engine.calls.deferred.restless
    engine.swap.resume("a")
    engine.add(append("a", 2, read=True))
    events = done(engine, 4)
    assert logs(events)["a", 2] == [1, 2]
