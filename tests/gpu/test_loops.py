"""On a GPU: loops on the device, captured and eager, alone and together, without the host waiting for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec.structs import replace as with_fields

from tests.support import nested as support
from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine import test_nested
from tests.unit.engine.plans import call, graphs_of, plan_of
from walkgraph.abi.calls import StateKey
from walkgraph.engine.calls.chunked_prefill import Done
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput
from walkgraph.ids import Rank
from walkgraph.models.orpheus.presets import ORPHEUS
from walkgraph.models.synthetic import operators

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
PARAMS: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
OUTPUTS = (LoopOutput("code", 0, "code", "each"), LoopOutput("token", 0, "token", "last"))


@pytest.fixture(autouse=True)
def _two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ORPHEUS["orpheus-3b"]
    monkeypatch.setitem(ORPHEUS, "orpheus-two-layers", replace(whole, llm=replace(whole.llm, layers=2)))


def engine(*, capture: bool, prefix_cache: bool = True) -> Engine:
    nodes = {"llm": ("walkgraph.models.orpheus.operators:Backbone", {"kv": "main", "seen": "seen"})}
    plan = plan_of(nodes, kv_bytes=1 << 28, source="random:orpheus-two-layers:3", params={"llm": PARAMS})
    device = with_fields(plan.ranks[0], device="cuda:0")
    here = Engine(with_fields(plan, ranks=(device,)), Rank(0), capture=capture, prefix_cache=prefix_cache)
    here.load()
    return here


def states(run: str) -> dict[str, StateKey]:
    return {"kv": StateKey(run, "main"), "seen": StateKey(run, "seen")}


def prefilled(here: Engine, runs: dict[str, int]) -> dict[str, torch.Tensor]:
    """Run -> the token after a prompt of so many tokens."""
    found: dict[str, torch.Tensor] = {}
    for run, length in runs.items():
        generator = torch.Generator().manual_seed(length)
        ids = torch.randint(0, 100_000, (length,), generator=generator)
        here.add(replace(call("llm", {"ids": ids}, run=run, states={}, **PARAMS), states=states(run), seed=length))
    while not here.idle:
        for event in here.step():
            assert isinstance(event, Done)
            assert event.error is None, event.error
            assert event.outputs is not None
            found[event.call.run] = event.outputs["token"]
    return found


def loop(run: str, token: torch.Tensor, times: int, seed: int) -> LoopCall:
    use = WrittenUse("llm", (LoopInput("token", "value", token, carried=(0, "token")),), PARAMS, {}, states(run), seed)
    return written(run, "decode", 1, 0, "tokens", (), (use,), times, (0, "stop"), OUTPUTS, grain=7)


def codes(here: Engine, runs: dict[str, int], times: dict[str, int]) -> dict[str, list[int]]:
    tokens = prefilled(here, runs)
    for run, length in runs.items():
        here.add_loop(loop(run, tokens[run], times[run], length))
    found: dict[str, list[int]] = {run: [] for run in runs}
    done: set[str] = set()
    while not here.idle:
        for event in here.step():
            if isinstance(event, Items):
                found[event.call.run] += [int(value) for value in event.values["code"]]
            elif isinstance(event, LoopDone):
                assert event.error is None, event.error
                done.add(event.call.run)
    assert done == set(runs)
    for run in runs:
        here.drop(run)
    here.states.audit()
    return found


RUNS = {"a": 5, "b": 130, "c": 17, "d": 300, "e": 64}
TIMES = {"a": 40, "b": 9, "c": 1, "d": 25, "e": 33}


def test_captured_and_eager_steps_speak_the_same() -> None:
    captured, eager = codes(engine(capture=True), RUNS, TIMES), codes(engine(capture=False), RUNS, TIMES)
    assert captured == eager
    assert {run: len(found) for run, found in captured.items()} == TIMES


def test_a_second_round_says_what_the_first_said() -> None:
    # A prompt of which a part is there already is computed in another shape, and rounded otherwise.
    here = engine(capture=True, prefix_cache=False)
    assert codes(here, RUNS, TIMES) == codes(here, RUNS, TIMES)


def test_a_prompt_that_was_read_before_is_not_read_again() -> None:
    here = engine(capture=False)
    rounds: list[list[torch.Tensor]] = []
    for _ in range(2):
        prefilled(here, RUNS)
        rounds.append([here.transfers.export(StateKey(run, "main"))["kv.0"].float() for run in RUNS])
        for run in RUNS:
            here.drop(run)
    assert here.pools.prefix_stats().saved == 128 + 16 + 288 + 48
    # Other batches round other numbers, single ones by more than a step of their 16 bits.
    for first, second in zip(*rounds, strict=True):
        assert float((first - second).norm()) < 0.02 * float(first.norm())
    here.states.audit()


def test_no_step_waits_for_the_device() -> None:
    here = engine(capture=True)
    codes(here, RUNS, TIMES)
    torch.cuda.set_sync_debug_mode("error")
    try:
        codes(here, RUNS, TIMES)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ── loops inside loops ──


@pytest.fixture
def nested(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, operator in support.OPERATORS.items():
        monkeypatch.setattr(operators, name, operator, raising=False)


def nesting(*, capture: bool) -> Engine:
    plan = support.plan(kv_bytes=1 << 22)
    here = Engine(with_fields(plan, ranks=(with_fields(plan.ranks[0], device="cuda:0"),)), Rank(0), capture=capture)
    here.load()
    return here


SHAPE: dict[str, Any] = {"n": 3, "w": 3, "tokens": 7, "advance": 3}
ALIKE: dict[str, Any] = {"looks": [[True, False, True]] * 40, "notes": [[False, True, True]] * 40, **SHAPE}


@pytest.mark.usefixtures("nested")
@pytest.mark.parametrize("capture", [True, False])
def test_nested_wide_growing_loops_are_plain_python_s_to_the_last_bit(capture: bool) -> None:
    here = nesting(capture=capture)
    runs = {f"r{i}": support.drawn(i, times=1 + 5 * i, **ALIKE) for i in range(7)}
    runs |= {f"s{i}": support.drawn(i, times=4, **SHAPE) for i in range(3)}
    for _ in range(2):
        calls = test_nested.entered(here, runs)
        test_nested.check(here, runs, *test_nested.run_all(here, calls))
    if capture:
        (failed,) = [graphs.capturer.failed for graphs in graphs_of(here)[:1]]
        assert failed == []


@pytest.mark.usefixtures("nested")
def test_the_usual_count_is_one_launch_and_another_goes_by_powers_of_two() -> None:
    here = nesting(capture=True)
    for times, wanted in ((10, [10]), (15, [10, 4, 1]), (7, [4, 2, 1])):
        call = test_nested.entered(here, {f"t{times}": support.drawn(3, times=times, **ALIKE)}, usual=(10,))[0]
        here.prepare(replace(call, run="warm-up"))
        here.time_steps(on=True)
        here.add_loop(call)
        found: list[int] = []
        while not here.idle:
            found += [event.iterations for event in here.step() if isinstance(event, Stepped)]
        assert found == wanted
    (graphs,) = graphs_of(here)
    print({size: (seconds, graphs.counts_at(size)) for size, seconds in graphs.seconds.items()})


@pytest.mark.usefixtures("nested")
def test_no_nested_step_waits_for_the_device() -> None:
    here = nesting(capture=True)
    runs = {f"r{i}": support.drawn(i, times=12, **ALIKE) for i in range(2)}
    test_nested.check(here, runs, *test_nested.run_all(here, test_nested.entered(here, runs)))
    calls = test_nested.entered(here, runs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        each, done = test_nested.run_all(here, calls)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    test_nested.check(here, runs, each, done)
