"""Several iterations per launch: their number, their outputs, and that the work is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support import nested as support
from tests.support.nested import drawn, naive
from tests.unit.engine import test_forms as forms
from tests.unit.engine import test_resident as walks
from tests.unit.engine.plans import engine_of, graphs_of
from tests.unit.engine.test_nested import Each, check, entered, run_all, take
from walkgraph.abi.calls import StateKey
from walkgraph.engine.device.capture import Capturer, Work
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.graphs import LoopGraphs, counts_of
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.spec import Items
from walkgraph.models.synthetic import operators as synthetic

SHAPE = {"n": 2, "w": 3, "tokens": 7, "advance": 3}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "WalkForTest", walks.Walk, raising=False)
    for name, operator in support.OPERATORS.items():
        monkeypatch.setattr(synthetic, name, operator, raising=False)


def by(monkeypatch: pytest.MonkeyPatch, *counts: int) -> None:
    monkeypatch.setattr(LoopGraphs, "counts_at", lambda self, size: list(counts))


def launches(engine: Engine, *calls: object) -> list[int]:
    """Iterations of each."""
    engine.time_steps(on=True)
    for call in calls:
        engine.add_loop(call)  # type: ignore[arg-type]
    found: list[int] = []
    while not engine.idle:
        found += [event.iterations for event in engine.step() if isinstance(event, Stepped)]
    return found


@pytest.mark.parametrize(
    ("seconds", "usual", "ends", "counts"),
    [
        (0.0, (10,), False, [1]),
        (0.0004, (10,), False, [1, 2, 4, 8, 10]),
        (0.001, (), False, [1, 2, 4, 8]),
        (0.001, (4, 15), False, [1, 2, 4, 8, 15]),
        (0.00001, (), False, [1, 2, 4, 8, 16, 32, 64]),
        (0.00001, (100,), False, [1, 2, 4, 8, 16, 32, 64]),
        (0.006, (10,), False, [1]),
        (0.004, (10,), False, [1, 2, 10]),
        (0.2, (10,), False, [1]),
        (0.0001, (10,), True, [1, 5]),
        (0.02, (), True, [1]),
    ],
)
def test_counts_follow_from_what_an_iteration_takes(
    seconds: float, usual: Sequence[int], ends: bool, counts: list[int]
) -> None:
    assert counts_of(seconds, usual, ends=ends) == counts


@pytest.mark.parametrize(
    ("times", "counts", "wanted"),
    [(10, (1, 2, 4, 8, 10), [10]), (15, (1, 2, 4, 8), [8, 4, 2, 1]), (20, (1, 2, 4, 8, 10), [10, 10])],
)
def test_a_launch_takes_the_largest_count_that_its_runs_can_go(
    monkeypatch: pytest.MonkeyPatch, times: int, counts: Sequence[int], wanted: list[int]
) -> None:
    by(monkeypatch, *counts)
    here = engine_of(support.plan())
    runs = {"a": drawn(1, times=times, looks=[[True] * 2] * times, notes=[[True] * 2] * times, **SHAPE)}
    assert launches(here, *entered(here, runs)) == wanted


def test_a_launch_ends_where_a_form_does(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 2, 4)
    here = engine_of(support.plan())
    looks = [[True] * 2] * 3 + [[False, True]] * 6
    runs = {"a": drawn(1, times=9, looks=looks, notes=[[True] * 2] * 9, **SHAPE)}
    assert launches(here, *entered(here, runs)) == [2, 1, 4, 2]


@pytest.mark.parametrize("seed", range(4))
def test_four_iterations_at_once_are_four_one_by_one(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    runs = {f"r{i}": drawn(10 * seed + i, times=3 + i, **SHAPE) for i in range(3)}
    alike = {"looks": [[True, False]] * 9, "notes": [[False, True]] * 9}
    runs |= {f"s{i}": drawn(10 * seed + i, times=4 + i, **SHAPE, **alike) for i in range(3)}
    found: list[tuple[Each, dict[str, LoopDone]]] = []
    for counts in ((1,), (1, 4), (1, 2, 4, 8)):
        by(monkeypatch, *counts)
        here = engine_of(support.plan(kv_bytes=1 << 19))
        found.append(run_all(here, entered(here, runs)))
        check(here, runs, *found[-1])
    assert found[0][0] == found[1][0] == found[2][0]


def test_what_is_run_to_be_captured_is_run_on_nobody_s_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 2, 4)

    def captured(self: Capturer, work: Work, what: str, runs: int = 2) -> Work:
        for _ in range(runs):
            work()
        return work

    monkeypatch.setattr(Capturer, "__call__", captured)
    here = engine_of(support.plan(kv_bytes=1 << 19))
    alike = {"looks": [[True, False]] * 9, "notes": [[True] * 2] * 9, **SHAPE}
    runs = {"a": drawn(1, times=7, **alike), "b": drawn(2, times=8, **alike)}
    first, second = entered(here, runs)
    first.allowed = 1
    each, done = run_all(here, [first, second])
    here.loops.allow("a", 0, 0, (), 7)
    while not here.idle:
        take(here.step(), each, done)
    check(here, runs, each, done)


@pytest.mark.parametrize("together", [True, False])
def test_counts_share_the_dense_contexts_of_their_blocks(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    by(monkeypatch, 1, 2)
    monkeypatch.setattr(synthetic, "BranchForTest", forms.Branch, raising=False)
    monkeypatch.setattr(synthetic, "CombineForTest", forms.Combine, raising=False)
    here = forms.engine()
    contexts = {run: [forms.context(10 * i + k, 5 + 9 * k + i) for k in range(3)] for i, run in enumerate("abc")}
    for run, tokens in contexts.items():
        for state, one in zip(("main", "cfg_text", "cfg_img"), tokens, strict=True):
            forms.filled(here, run, state, one)
    calls = [forms.loop(run, forms.latents(9), forms.TIMES, together=together) for run in contexts]
    calls[0].allowed = 1
    _, done = forms.serve(here, *calls)
    here.loops.allow("a", 0, 0, (), 5)
    done |= forms.serve(here)[1]
    for run, tokens in contexts.items():
        outputs = done[run].outputs
        assert outputs is not None
        wanted = forms.naive(forms.latents(9), forms.TIMES, tokens, [None] * 3)
        torch.testing.assert_close(outputs["x"], wanted)
    (group,) = graphs_of(here)
    assert {key.iterations for key in group.graphs} == {1, 2}
    dense = {id(one) for graph in group.graphs.values() for one in graph.buffers.contexts.values()}
    alone = [graph for key, graph in group.graphs.items() if key.iterations == 1]
    assert len(dense) == sum(len(graph.buffers.contexts) for graph in alone)


def test_dense_contexts_are_made_ready_for_those_that_a_step_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    made = forms.Branch.step_spec
    monkeypatch.setattr(synthetic, "BranchForTest", forms.Branch, raising=False)
    monkeypatch.setattr(synthetic, "CombineForTest", forms.Combine, raising=False)
    found: list[set[tuple[int, ...]]] = []
    for expected in ({}, {"kv": 500}):

        def spec(self: Any, inputs: Any, params: Any, contexts: Any = expected) -> Any:
            return replace(made(self, inputs, params), contexts=contexts)  # type: ignore[type-var]

        monkeypatch.setattr(forms.Branch, "step_spec", spec)
        here = forms.engine()
        here.prepare(forms.loop("warm-up", forms.latents(9), forms.TIMES, together=False))
        (group,) = graphs_of(here)
        found.append({key.capacities for key in group.graphs if key.batch == 2})
    block = forms.N
    assert found == [{tuple(2 * (size + block) for _ in range(3))} for size in (128, 1024)]


def test_values_of_a_launch_leave_together_by_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 8)
    here = walks.engine()
    here.add_loop(walks.loop("a", 1.0, 20, grain=3, offset=1, until=None, allowed=17))
    counts: list[tuple[int, int]] = []
    while not here.idle:
        counts += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
    assert counts == [(0, 8), (8, 6), (14, 3)]
    here.loops.allow("a", 0, 0, (), 20)
    while not here.idle:
        counts += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
    assert counts[3:] == [(17, 3)]


def test_values_between_grains_stay_while_a_loop_waits_for_items(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 8)
    here = walks.engine()
    here.add_loop(walks.loop("a", 1.0, 20, grain=4, offset=1, until=None, allowed=18, fed=5))
    given: list[tuple[int, int]] = []
    done: list[int] = []
    for fed in 6, 10, None:
        while not here.idle:
            given += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
        done += here.loops.positions().values()
        here.loops.allow("a", 0, 0, (), 18, (), fed)
    assert (done, given) == ([5, 6, 10], [(0, 3), (3, 4)])
    while not here.idle:
        given += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
    assert given[2:] == [(7, 11)], "no room is left"
    here.loops.allow("a", 0, 0, (), 20)
    while not here.idle:
        given += [(e.first, e.count) for e in here.step() if isinstance(e, Items)]
    assert given[3:] == [(18, 1), (19, 1)]


def test_what_was_due_before_a_nan_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 2, 4)
    here = engine_of(support.plan())
    same = {"looks": [[True] * 2] * 4, "notes": [[True] * 2] * 4, "times": 4, **SHAPE}
    runs = {"bad": drawn(1, s=[1.0, 2.0, float("nan"), 3.0], **same), "good": drawn(2, **same)}
    each, done = run_all(here, entered(here, runs))
    assert done["good"].batch == 2
    wanted = naive(drawn(1, s=[1.0, 2.0, 0.0, 3.0], **same))
    assert each["bad"]["x"] == wanted.x[:2]
    error = done["bad"].error
    assert error is not None
    assert (error.code, error.iteration) == ("numeric_error", (2,))
    here.drop("bad")
    check(here, {"good": runs["good"]}, each, done)


def test_a_run_goes_no_further_than_allowed_while_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 2, 4, 8)
    here = engine_of(support.plan(kv_bytes=1 << 19))
    same = {"looks": [[True] * 2] * 9, "notes": [[False] * 2] * 9, "times": 9, **SHAPE}
    runs = {"a": drawn(1, **same), "b": drawn(2, **same)}
    first, second = entered(here, runs)
    first.allowed = 3
    each, done = run_all(here, [first, second])
    assert len(each["a"]["x"]) == 3
    assert "b" in done
    here.loops.allow("a", 0, 0, (), 9)
    while not here.idle:
        take(here.step(), each, done)
    check(here, runs, each, done)


def test_runs_come_and_are_cancelled_while_others_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, 1, 2)
    here = engine_of(support.plan(kv_bytes=1 << 20))
    same = {"looks": [[True] * 2] * 9, "notes": [[True] * 2] * 9, **SHAPE}
    runs = {f"r{i}": drawn(i, times=3 + i, **same) for i in range(6)}
    each: Each = {}
    done: dict[str, LoopDone] = {}
    for number, call in enumerate(entered(here, runs)):
        here.add_loop(call)
        take(here.step(), each, done)
        if number == 4:
            here.drop("r3")
    while not here.idle:
        take(here.step(), each, done)
    del runs["r3"]
    each.pop("r3", None)
    assert set(done) == set(runs)
    check(here, runs, each, done)


@pytest.mark.parametrize("grain", [1, 2, 3])
def test_a_loop_that_is_full_hands_out_what_it_has_done(monkeypatch: pytest.MonkeyPatch, grain: int) -> None:
    same = {"looks": [[True] * 2] * 9, "notes": [[True] * 2] * 9, "context": [], "main": [], "times": 9}
    for counts in ((1,), (1, 7)):
        by(monkeypatch, *counts)
        here = engine_of(support.plan(capacity="n"))
        runs = {"a": drawn(1, **(SHAPE | same | {"n": 2, "w": 1}))}
        here.limits.admit("a", {"n": 7 * 7})
        each, done = run_all(here, entered(here, runs, grain=grain))
        assert done["a"].error is not None
        assert (done["a"].error.code, done["a"].iterations) == ("invalid_input", 7)
        wanted = naive(runs["a"])
        assert each["a"] == {"x": wanted.x[:7], "before": wanted.before[:7], "after": wanted.after[:7]}


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_suspended_run_begins_its_iterations_as_before(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    by(monkeypatch, 1, 2)
    here = engine_of(support.plan(kv_bytes=1 << 20))
    same = {"looks": [[True, False]] * 9, "notes": [[True] * 2] * 9, "context": [3.0] * 20, **SHAPE}
    runs = {"a": drawn(1, times=8, **same), "b": drawn(2, times=9, **same)}
    each: Each = {}
    done: dict[str, LoopDone] = {}
    for call in entered(here, runs):
        here.add_loop(call)
    for _ in range(steps):
        take(here.step(), each, done)
    here.swap.suspend("a")
    while not here.idle:
        take(here.step(), each, done)
    assert "a" not in done
    assert here.states.glance(StateKey("a", "samples")) is None, "what begins anew is nothing to be kept meanwhile"
    other = {"c": drawn(3, times=3, **same)}
    check(here, other, *run_all(here, entered(here, other)))  # takes the pages that it had
    here.swap.resume("a")
    while not here.idle:
        take(here.step(), each, done)
    check(here, runs, each, done)
