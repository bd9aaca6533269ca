"""Loops on the device: where a port's value comes from, iteration by iteration; faults, which end runs, not ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.loop_calls import LoopInput, WrittenUse, body_of, written
from tests.unit.engine.plans import engine_of, plan_of
from tests.unit.engine.test_resident import Walk, loop, naive, serve
from tests.unit.engine.test_resident import engine as walking
from walkgraph.abi.calls import Call, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.body import Form
from walkgraph.engine.loops.program import Program
from walkgraph.engine.loops.slot_tables import PackedEntry, SlotTables
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput
from walkgraph.models.synthetic import operators as synthetic

NUMBER = Row((), torch.float64)


class Sum(Operator):
    """a + b, and a parameter that counts."""

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        return StepSpec(inputs={"a": NUMBER, "b": NUMBER}, outputs={"sum": NUMBER}, params={"more": torch.int64})

    def step(self, batch: StepBatch) -> StepOutputs:
        assert batch.params["more"].dtype == torch.int64
        total = batch.inputs["a"] + batch.inputs["b"] + (batch.params["more"] // 2)
        return StepOutputs({"sum": total.to(torch.float64)})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        raise AssertionError("a loop on the device steps")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "SumForTest", Sum, raising=False)
    monkeypatch.setattr(synthetic, "WalkForTest", Walk, raising=False)


@pytest.fixture(scope="module")
def summing() -> Engine:
    synthetic.SumForTest = Sum  # type: ignore[attr-defined]
    return engine_of(
        plan_of({name: ("walkgraph.models.synthetic.operators:SumForTest", {}) for name in ("one", "two")})
    )


def sums(
    times: int, *ports: Sequence[LoopInput], run: str = "r", more: Mapping[str, Any] | None = None, **changes: Any
) -> LoopCall:
    """Uses `one`, `two` with these ports."""
    params = {"more": 0} | dict(more or {})
    body = tuple(
        WrittenUse(node=node, inputs=tuple(inputs), params=params, varying={}, states={}, seed=0)
        for node, inputs in zip(("one", "two"), ports, strict=False)
    )
    outputs = tuple(LoopOutput(f"u{i}", i, "sum", "each") for i in range(len(body)))
    fields: dict[str, Any] = {"body": body, "until": None, "outputs": outputs, **changes}
    return written(run=run, walk="w", step=0, use=0, loop="l", iteration=(), times=times, **fields)


def told(engine: Engine, call: LoopCall) -> tuple[dict[str, list[float]], Any]:
    engine.add_loop(call)
    found: dict[str, list[float]] = {}
    error: Any = None
    while not engine.idle:
        for event in engine.step():
            if isinstance(event, Items):
                for key, values in event.values.items():
                    found.setdefault(key, []).extend(value.tolist() for value in values)
            else:
                error = getattr(event, "error", None)
    return found, error


def given(port: str, value: float) -> LoopInput:
    return LoopInput(port, "value", torch.tensor(value, dtype=torch.float64))


def slices(port: str, count: int, carried: tuple[int, str] | None = None) -> LoopInput:
    return LoopInput(port, "each", torch.arange(10, 10 + count, dtype=torch.float64), carried=carried)


OWN = (0, "sum")


def test_a_sequence_may_be_longer_than_the_loop(summing: Engine) -> None:
    found, error = told(summing, sums(3, (slices("a", 40), given("b", 1))))
    assert error is None
    assert found == {"u0": [11, 12, 13]}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_sequence_that_runs_out_ends_the_run_and_shows_no_slice_of_another(summing: Engine, count: int) -> None:
    told(summing, sums(16, (slices("a", 16), given("b", 1)), run="other"))
    found, error = told(summing, sums(16, (slices("a", count), given("b", 1))))
    assert found.get("u0", []) == [11, 12, 13][:count]
    assert error.code == "invalid_input"
    assert f"`one.a` has {count} slices" in error.message


def test_a_carried_port_begins_with_the_first_slice(summing: Engine) -> None:
    found, error = told(summing, sums(4, (slices("a", 4, carried=OWN), given("b", 1))))
    assert error is None
    assert found == {"u0": [11, 12, 13, 14]}


@pytest.mark.parametrize("times", [1, 5])
def test_a_carried_port_begins_with_what_an_earlier_use_gives(summing: Engine, times: int) -> None:
    """`two` goes on from its own value, after it has begun with that of `one`."""
    told(summing, sums(times, (given("a", 70), given("b", 7)), (given("a", 7), given("b", 7)), run="other"))
    begins = LoopInput("a", "use", use=0, output="sum", carried=(1, "sum"))
    found, error = told(summing, sums(times, (given("a", 20), given("b", 3)), (begins, given("b", 1))))
    assert error is None
    assert found["u1"] == [24.0 + i for i in range(times)]


def test_a_carried_port_may_begin_with_the_index(summing: Engine) -> None:
    found, _ = told(summing, sums(3, (LoopInput("a", "index", carried=OWN), given("b", 5))))
    assert found["u0"] == [5, 10, 15]


def test_a_whole_number_that_changes_with_the_index_stays_one(summing: Engine) -> None:
    call = sums(4, (given("a", 0), given("b", 0)))
    use = body_of(call)[0]
    varying = WrittenUse(use.node, use.inputs, {}, {"more": (1, 3.0, 5, 7)}, {}, 0)
    found, error = told(summing, sums(4, run="v", body=(varying,), outputs=call.spec.outputs))
    assert error is None
    assert found["u0"] == [0, 1, 2, 3]


# ── faults ──


def broken(raised: Exception) -> Callable[[Any, StepBatch], StepOutputs]:
    def step(self: Any, batch: StepBatch) -> StepOutputs:
        raise raised

    return step


@pytest.mark.parametrize(
    ("raised", "code"), [(torch.OutOfMemoryError("no room"), "out_of_memory"), (KeyError("x"), "node_error")]
)
def test_a_step_that_raises_ends_the_runs_in_it(monkeypatch: pytest.MonkeyPatch, raised: Exception, code: str) -> None:
    here = walking()
    free = here.pools.pages()
    with monkeypatch.context() as patched:
        patched.setattr(Walk, "step", broken(raised))
        each, done = serve(here, loop("a", 1.0, 5), loop("b", 1.0, 5))
    assert each == {}
    assert [end.error and end.error.code for end in done.values()] == [code, code]
    for run in done:
        here.drop(run)
    assert here.pools.pages() == free
    here.states.audit()
    each, done = serve(here, loop("c", 1.0, 5), loop("d", 2.0, 5))
    assert each == {"c": naive(1.0, 5), "d": naive(2.0, 5)}


def test_a_batch_size_that_can_not_be_captured_ends_the_runs_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here, made = walking(), Program.buffers

    def buffers(self: Program, form: Form, batch: int, *sizes: Any) -> Any:
        if batch > 1:
            raise torch.OutOfMemoryError("no room")
        return made(self, form, batch, *sizes)

    monkeypatch.setattr(Program, "buffers", buffers)
    each, done = serve(here, loop("a", 1.0, 5), loop("b", 1.0, 5))
    assert each == {}
    assert [end.error and end.error.code for end in done.values()] == ["out_of_memory"] * 2
    here.drop("a")
    here.drop("b")
    each, _ = serve(here, loop("c", 1.0, 5))
    assert each == {"c": naive(1.0, 5)}


@pytest.mark.parametrize("name", ["value", "tensor", "cells_of"])
def test_what_can_not_be_taken_from_its_row_ends_that_run_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    here, taken = walking(), getattr(SlotTables, name)
    failed: list[int] = []

    def take(self: SlotTables, *given: Any) -> Any:
        if not failed:
            failed.append(1)
            raise torch.OutOfMemoryError("no room")
        return taken(self, *given)

    monkeypatch.setattr(SlotTables, name, take)
    calls = [loop("a", 1.0, 5), loop("b", 1.0, 9)]
    for call in calls:
        here.add_loop(call)
    here.step()
    here.swap.suspend("a")
    events: list[Any] = []
    while not here.idle:
        events += here.step()
    here.swap.resume("a")
    while not here.idle:
        events += here.step()
    ends = {event.call.run: event.error for event in events if hasattr(event, "iterations") and hasattr(event, "error")}
    assert len(ends) == 2
    assert [error.code for error in ends.values() if error is not None] == ["out_of_memory"]
    for run in "ab":
        here.drop(run)
    here.states.audit()


def test_a_slot_that_can_not_be_filled_ends_its_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here, fill = walking(), SlotTables.fill

    def fills(self: SlotTables, entries: Sequence[PackedEntry]) -> None:
        fill(self, entries[:1])
        if any(value == 2.0 for one in entries for value in one.cells.values()):
            raise torch.OutOfMemoryError("no room")
        fill(self, entries)

    monkeypatch.setattr(SlotTables, "fill", fills)
    each, done = serve(here, *(loop(run, value, 5) for run, value in zip("abc", (1.0, 2.0, 3.0), strict=True)))
    assert each == {"a": naive(1.0, 5), "c": naive(3.0, 5)}
    assert {run: end.error and end.error.code for run, end in done.items()} == {
        "a": None,
        "b": "out_of_memory",
        "c": None,
    }
    for run in "abc":
        here.drop(run)
    here.states.audit()
    each, _ = serve(here, loop("d", 4.0, 5))
    assert each == {"d": naive(4.0, 5)}


def test_a_loop_without_room_for_one_iteration_is_told_what_is_full() -> None:
    plan = plan_of(
        {"walk": ("walkgraph.models.synthetic.operators:WalkForTest", {"kv": "main", "count": "count"})},
        kv_bytes=1 << 16,
        capacity="n",
    )
    here = engine_of(plan)
    here.limits.admit("a", {"n": 6})
    serve(here, loop("a", 1.0, 6))
    _, done = serve(here, loop("a", 1.0, 2))
    error = done["a"].error
    assert error is not None
    assert error.code == "invalid_input"
    assert "at most 6 tokens" in error.message
    assert here.transfers.export(StateKey("a", "main"))["counters"].tolist() == [[6, 6]]


def test_what_is_longer_than_a_row_is_refused_even_if_it_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader(Walk):
        def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
            spec = super().step_spec(inputs, params)
            assert spec is not None
            return replace(spec, appends={"kv": 0})

        def step(self, batch: StepBatch) -> StepOutputs:
            return StepOutputs({"value": batch.inputs["value"], "stop": batch.inputs["value"][:, 0] > 0})

    monkeypatch.setattr("walkgraph.engine.kv.slot_pages.MOST_PAGES", 1)
    monkeypatch.setattr(synthetic, "WalkForTest", Reader)
    here = walking()
    kv = torch.zeros(2, 1, 17, 1, 1, dtype=torch.float64)
    here.transfers.import_state(StateKey("a", "main"), {"counters": torch.tensor([[17, 17]]), "kv.0": kv})
    _, done = serve(here, loop("a", 1.0, 2))
    error = done["a"].error
    assert error is not None
    assert error.code == "invalid_input"
    assert "at most 16 tokens" in error.message
