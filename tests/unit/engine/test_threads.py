"""Calls that threads make: what goes on meanwhile, in which order they end, and how they fail."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, plan_of, serve
from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.engine.calls import call_scheduler, finite, runner
from walkgraph.engine.calls.threads import THREADS, Threads
from walkgraph.engine.device.outside import FIRSTHAND
from walkgraph.engine.engine import Done, Engine

NUMBERS = "walkgraph.models.numbers.operators"
SECONDS = 60.0
QUICK = 1000
"""A number that is surely doubled at once."""
NOTHING = 2000
"""A number whose double is none."""


class Gated(Operator):
    """Doubles a number once its gate is open."""

    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def __init__(self) -> None:
        self.gates: dict[int, threading.Event] = {}
        self.threads: list[str] = []
        self.begun: list[int] = []

    def quick(self, call: Call) -> bool:
        return int(call.inputs["x"]) == QUICK

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._one(one) for one in calls]

    def _one(self, one: Call) -> Outputs:
        x = int(one.inputs["x"])
        self.begun.append(x)
        self.threads.append(threading.current_thread().name)
        if (gate := self.gates.get(x)) is not None:
            assert gate.wait(SECONDS)
        if x < 0:
            raise CallFailed("a number is below zero", "x", code="invalid_input")
        return {"y": torch.tensor(float("nan") if x == NOTHING else 2 * x)}


@pytest.fixture
def gated() -> Gated:
    return Gated()


def engine_with(gated: Gated) -> Engine:
    """`gated`, and `add`, which is not threaded."""
    nodes: dict[str, Any] = {"gated": (f"{NUMBERS}:Arithmetic", {}), "add": (f"{NUMBERS}:Arithmetic", {})}
    engine = engine_of(plan_of(nodes, params={"add": ADD, "gated": ADD}))
    loaded = engine.calls._nodes
    assert isinstance(loaded, dict)
    loaded["gated"] = loaded["gated"]._replace(operator=gated, index=len(loaded))
    return engine


ADD = {"operation": "add", "type": "tensor", "number": 0.0}


def one(x: int, run: str = "r", **more: Any) -> Call:
    return call("gated", {"x": x}, run=run, **more)


def until(engine: Engine, count: int) -> list[Done]:
    """The next `count` calls that are done."""
    done: list[Done] = []
    while len(done) < count:
        if engine.resting:
            assert engine.wakes is not None
            assert select.select([engine.wakes], [], [], SECONDS)[0], "a call that ends wakes the engine"
        done += [event for event in engine.step() if isinstance(event, Done)]
    return done


def test_other_calls_go_on_while_a_thread_makes_one(gated: Gated) -> None:
    engine, gate = engine_with(gated), threading.Event()
    gated.gates[1] = gate
    engine.add(one(1))
    assert engine.step() == []
    assert (engine.resting, engine.idle) == (True, False)
    engine.add(call("add", {"a": torch.tensor(1), "b": torch.tensor(2)}, run="other", **ADD))
    assert not engine.resting
    [other] = until(engine, 1)
    assert other.call.run == "other"
    assert engine.wakes is not None
    assert not select.select([engine.wakes], [], [], 0)[0]
    gate.set()
    [done] = until(engine, 1)
    assert done.outputs == {"y": torch.tensor(2)}
    assert done.busy > 0
    assert (engine.idle, engine.wakes) == (True, None)
    assert threading.current_thread().name not in gated.threads


def test_results_are_those_of_the_forward(gated: Gated) -> None:
    calls = [one(x, run=f"r{x}") for x in range(20)]
    done = serve(engine_with(gated), *calls)
    assert [d.outputs for d in done] == gated.forward(calls, None)  # type: ignore[arg-type]
    assert {d.batch for d in done} == {1}


def test_the_thread_looks_for_what_is_no_number(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def noted(outputs: Sequence[Outputs]) -> dict[int, str]:
        looked.append(threading.current_thread().name)
        return finite.bad_on_host(outputs)

    monkeypatch.setattr(runner, "bad_on_host", noted)
    monkeypatch.setattr(finite, "_is_finite", watched(finite._is_finite, looked))
    sound, bad = serve(engine_with(gated), one(1, run="a"), one(NOTHING, run="b"))
    assert sound.error is None
    assert bad.error is not None
    assert (bad.error.code, "`gated.y`" in bad.error.message) == ("numeric_error", True)
    assert looked
    assert threading.current_thread().name not in looked


def watched(of: Callable[[torch.Tensor], bool], looked: list[str]) -> Callable[[torch.Tensor], bool]:
    def watching(value: torch.Tensor) -> bool:
        looked.append(threading.current_thread().name)
        return of(value)

    return watching


def test_calls_of_a_run_end_in_their_order_and_those_of_others_at_once(gated: Gated) -> None:
    engine, gate = engine_with(gated), threading.Event()
    gated.gates[1] = gate
    for x, run in ((1, "a"), (2, "a"), (3, "b")):
        engine.add(one(x, run=run, iteration=(x,)))
    assert [d.call.run for d in until(engine, 1)] == ["b"]
    gate.set()
    assert [int(d.call.inputs["x"]) for d in until(engine, 2)] == [1, 2]


def test_the_engine_makes_calls_that_are_surely_quick_itself(gated: Gated) -> None:
    engine, gate = engine_with(gated), threading.Event()
    gated.gates[1] = gate
    engine.add(one(1, run="a"))
    engine.add(one(QUICK, run="b"))
    assert [done.outputs for done in until(engine, 1)] == [{"y": torch.tensor(2 * QUICK)}]
    assert gated.threads[gated.begun.index(QUICK)] == threading.current_thread().name
    gate.set()
    assert [done.outputs for done in until(engine, 1)] == [{"y": torch.tensor(2)}]


def test_an_error_ends_its_call_alone(gated: Gated) -> None:
    done = serve(engine_with(gated), one(1, run="a"), one(-1, run="b"), one(2, run="c"))
    assert [d.error and d.error.code for d in done] == [None, "invalid_input", None]
    assert [d.outputs for d in done] == [{"y": torch.tensor(2)}, None, {"y": torch.tensor(4)}]


def test_what_no_thread_is_free_for_waits_by_priority(gated: Gated) -> None:
    engine = engine_with(gated)
    gated.gates = {x: threading.Event() for x in (*range(THREADS), 11)}
    for x in range(THREADS):
        engine.add(one(x, run=f"r{x}"))
    engine.step()
    for x, run, priority in ((10, "cancelled", 2), (12, "late", 0), (11, "soon", 1)):
        engine.add(one(x, run=run, ready_at=1.0, priority=priority))
    engine.step()
    assert engine.resting, "calls that wait for a thread are nothing to do"
    assert [int(call.inputs["x"]) for call in engine.cancel("cancelled")] == [10]
    gated.gates[0].set()
    until(engine, 1)
    engine.step()
    assert {int(batch.calls[0].inputs["x"]) for batch in engine.calls.in_flight.threaded} == {1, 2, 3, 11}
    for gate in gated.gates.values():
        gate.set()
    until(engine, THREADS + 1)
    assert engine.idle
    assert set(gated.begun) == {*range(THREADS), 11, 12}


def test_a_cancelled_run_leaves_nothing(gated: Gated) -> None:
    engine, gate = engine_with(gated), threading.Event()
    gated.gates[1] = gate
    engine.add(one(1))
    engine.step()
    assert engine.cancel("r") == []
    gate.set()
    until(engine, 1)
    engine.drop("r")
    assert engine.idle


def test_quick_calls_are_made_at_once(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_scheduler, "QUICK_SECONDS", SECONDS)
    engine = engine_with(gated)
    serve(engine, one(1))
    serve(engine, one(2))
    assert gated.threads[0] != gated.threads[1] == threading.current_thread().name


class Held:
    """A mark that is reached when it is let go."""

    def __init__(self) -> None:
        self.let_go, self.waits = threading.Event(), 0

    def query(self) -> bool:
        return self.let_go.is_set()

    def synchronize(self) -> None:
        self.waits += 1
        assert self.let_go.wait(SECONDS)

    wait = synchronize


def test_a_watched_mark_wakes_who_waits_for_threads() -> None:
    threads, first, second = Threads(FIRSTHAND), Held(), Held()
    threads.watch(first)
    threads.watch(first)
    threads.watch(second)
    assert select.select([threads.wakes], [], [], 0)[0] == []
    for mark in first, second:
        mark.let_go.set()
        assert select.select([threads.wakes], [], [], SECONDS)[0]
        threads.heard()
        assert mark.waits == 1
    assert select.select([threads.wakes], [], [], 0)[0] == []
