from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import engine_of, plan_of
from walkgraph.abi.calls import Call, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import CacheShape, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.engine.device.capture import bucket
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.graphs import BUCKETS, SLOTS
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.slot_admission import MOST_GROUPS
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput
from walkgraph.models.synthetic import operators as synthetic

NUMBER = Row((1,), torch.float64)


class Walk(Operator):
    """value' = value * 2 + add + number of steps so far in `count`; stops at a bound. NaN where `value` is `nan_at`."""

    def caches(self) -> dict[str, CacheShape]:
        return {"kv": CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64)}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        return StepSpec(
            inputs={"value": NUMBER},
            outputs={"value": NUMBER, "stop": Row((), torch.bool)},
            params={"add": torch.float32, "bound": torch.int64},
            tensors={"count": NUMBER},
            appends={"kv": 1},
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        count, slot = batch.tensors["count"], batch.paged["kv"]
        steps = count.index_select(0, batch.rows.long())
        value = batch.inputs["value"] * 2 + batch.params["add"][:, None] + steps
        count.index_copy_(0, batch.rows.long(), steps + 1)
        at = slot.rows.lengths.index_select(0, slot.rows.rows).long()
        page = slot.rows.pages[slot.rows.rows.long(), at // 16].long()
        slot.k[0].view(-1).index_copy_(0, page * 16 + at % 16, value[:, 0])
        return StepOutputs({"value": value, "stop": value[:, 0] >= batch.params["bound"]})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        raise AssertionError("a loop on the device steps")


def engine(rows: int = 4) -> Engine:
    plan = plan_of(
        {"walk": ("walkgraph.models.synthetic.operators:WalkForTest", {"kv": "main", "count": "count"})},
        kv_bytes=1 << 16,
    )
    return engine_of(plan)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "WalkForTest", Walk, raising=False)


def loop(run: str, first: float, times: int, *, add: float = 1.0, bound: int = 10**18, **more: Any) -> LoopCall:
    more.setdefault("until", (0, "stop"))
    more.setdefault("outputs", (LoopOutput("each", 0, "value", "each"), LoopOutput("last", 0, "value", "last"), ALL))
    use = WrittenUse(
        node="walk",
        inputs=(LoopInput("value", "value", torch.tensor([first], dtype=torch.float64), carried=(0, "value")),),
        params={"add": add, "bound": bound},
        varying={},
        states={"kv": StateKey(run, "main"), "count": StateKey(run, "count")},
        seed=7,
    )
    return written(
        run=run, walk="w", step=0, use=0, loop="steps", iteration=(), body=(use,), times=times,
        **more,
    )  # fmt: skip


ALL = LoopOutput("all", 0, "value", "collect")


def naive(first: float, times: int, add: float = 1.0, bound: int = 10**18) -> list[float]:
    values: list[float] = []
    for step in range(times):
        first = first * 2 + add + step
        values.append(first)
        if first >= bound:
            break
    return values


def serve(engine: Engine, *calls: LoopCall) -> tuple[dict[str, list[float]], dict[str, LoopDone]]:
    for call in calls:
        engine.add_loop(call)
    each: dict[str, list[float]] = {}
    done: dict[str, LoopDone] = {}
    while not engine.idle:
        for event in engine.step():
            if isinstance(event, Items):
                had = each.setdefault(event.call.run, [])
                assert event.first == len(had)
                had += [value.item() for value in event.values["each"]]
            elif isinstance(event, LoopDone):
                done[event.call.run] = event
    return each, done


def test_loops_of_any_length_share_steps_and_give_what_a_plain_loop_gives() -> None:
    here = engine()
    calls = {f"r{i}": (float(i), 3 + 5 * i, 0.5 * i) for i in range(9)}
    each, done = serve(here, *(loop(run, a, n, add=b) for run, (a, n, b) in calls.items()))
    for run, (first, times, add) in calls.items():
        wanted = naive(first, times, add)
        assert each[run] == wanted
        assert done[run].iterations == times
        outputs = done[run].outputs
        assert outputs is not None
        assert outputs["last"].tolist() == wanted[-1:]
        assert outputs["all"][:, 0].tolist() == wanted


def test_what_ends_a_loop_is_its_last_iteration_and_leaves_no_trace_of_others() -> None:
    here = engine()
    each, done = serve(here, loop("a", 1.0, 50, bound=100), loop("b", 1.0, 50, bound=100))
    wanted = naive(1.0, 50, bound=100)
    assert each["a"] == wanted
    assert each["b"] == wanted
    for run in "ab":
        assert done[run].stopped
        assert done[run].iterations == len(wanted)
        kept = here.transfers.export(StateKey(run, "main"))
        assert kept["counters"].tolist() == [[len(wanted)] * 2]
        assert kept["kv.0"][0, 0, :, 0, 0].tolist() == wanted
        assert here.transfers.export(StateKey(run, "count"))["tensor"].tolist() == [float(len(wanted))]


def test_a_loop_goes_on_from_what_its_states_hold() -> None:
    here = engine()
    serve(here, loop("a", 1.0, 20))
    serve(here, loop("a", 5.0, 7))
    assert here.transfers.export(StateKey("a", "count"))["tensor"].tolist() == [27.0]
    assert here.transfers.export(StateKey("a", "main"))["counters"].tolist() == [[27, 27]]
    here.drop("a")
    here.states.audit()


def test_values_come_in_grains_and_no_further_than_allowed() -> None:
    here = engine()
    call = loop("a", 1.0, 20, grain=7, offset=1, allowed=8)
    here.add_loop(call)
    counts: list[tuple[int, int]] = []
    while not here.idle:
        counts += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
    assert counts == [(0, 6), (6, 2)]
    here.loops.allow("a", 0, 0, (), 100)
    while not here.idle:
        counts += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
    assert counts == [(0, 6), (6, 2), (8, 5), (13, 7)]


def test_loops_that_wait_for_a_row_keep_nobody_busy() -> None:
    here = engine()
    for number in range(SLOTS + 3):
        here.add_loop(loop(f"r{number}", 1.0, 20, allowed=5))
    done: list[str] = []
    while not here.idle:
        here.step()
    here.loops.allow("r0", 0, 0, (), 20)
    here.drop("r1")
    for number in range(SLOTS, SLOTS + 3):
        here.loops.allow(f"r{number}", 0, 0, (), 20)
    while not here.idle:
        done += [event.call.run for event in here.step() if isinstance(event, LoopDone)]
    assert sorted(done) == sorted(["r0", *(f"r{number}" for number in range(SLOTS, SLOTS + 3))])


def test_loops_of_many_shapes_keep_few_tables() -> None:
    here = engine()
    for number in range(3 * MOST_GROUPS):
        output = LoopOutput(f"last {number}", 0, "value", "last")
        _, done = serve(here, loop(f"r{number}", 1.0, 3, outputs=(output,)))
        outputs = done[f"r{number}"].outputs
        assert outputs is not None
        assert outputs[f"last {number}"].tolist() == naive(1.0, 3)[-1:]
    assert len(here.loops.groups) == MOST_GROUPS


def test_a_cancelled_loop_gives_back_its_row_and_pages() -> None:
    here = engine()
    free = here.pools.pages()
    for number in range(200):
        here.add_loop(loop(f"r{number}", 1.0, 1000))
    for _ in range(3):
        here.step()
    for number in range(200):
        here.drop(f"r{number}")
    assert here.idle
    assert here.pools.pages() == free


def test_nan_ends_one_run_and_names_its_iteration() -> None:
    here = engine()
    _, done = serve(here, loop("bad", float("inf"), 5), loop("good", 1.0, 5))
    assert done["bad"].error is not None
    assert done["bad"].error.code == "numeric_error"
    assert done["bad"].error.iteration == (0,)
    assert done["good"].error is None


def test_more_than_the_states_hold_is_told() -> None:
    plan = plan_of(
        {"walk": ("walkgraph.models.synthetic.operators:WalkForTest", {"kv": "main", "count": "count"})},
        kv_bytes=1 << 16,
        capacity="n",
    )
    here = engine_of(plan)
    here.limits.admit("a", {"n": 20})
    _, done = serve(here, loop("a", 1.0, 50))
    error = done["a"].error
    assert error is not None
    assert error.code == "invalid_input"
    assert "at most 20 tokens" in error.message


def test_the_nearest_batch_size_is_chosen() -> None:
    assert [bucket(n, BUCKETS) for n in (1, 3, 17, 64)] == [1, 4, 24, 64]
