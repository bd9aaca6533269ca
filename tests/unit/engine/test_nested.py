"""Loops with loops inside them, which the engine is handed unrolled: as plain Python runs them, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support import nested as support
from tests.support.nested import Nested, drawn, filled, held, naive, unrolled
from tests.unit.engine.plans import engine_of
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.models.synthetic import operators as synthetic

Each = dict[str, dict[str, list[float]]]
"""Run -> key -> values."""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, operator in support.OPERATORS.items():
        monkeypatch.setattr(synthetic, name, operator, raising=False)


def run_all(engine: Engine, calls: Sequence[LoopCall] = ()) -> tuple[Each, dict[str, LoopDone]]:
    """Run -> key -> values; run -> its end."""
    for call in calls:
        engine.add_loop(call)
    each: Each = {}
    done: dict[str, LoopDone] = {}
    while not engine.idle:
        take(engine.step(), each, done)
    return each, done


def take(events: Sequence[Any], each: Each, done: dict[str, LoopDone]) -> None:
    for event in events:
        if isinstance(event, Items):
            for key, values in event.values.items():
                had = each.setdefault(event.call.run, {}).setdefault(key, [])
                assert event.first == len(had)
                had += [value.item() for value in values]
        elif isinstance(event, LoopDone):
            done[event.call.run] = event


def entered(engine: Engine, runs: dict[str, Nested], **more: Any) -> list[LoopCall]:
    for run, one in runs.items():
        filled(engine, run, one)
    return [unrolled(run, one, **more) for run, one in runs.items()]


def check(engine: Engine, runs: dict[str, Nested], each: Each, done: dict[str, LoopDone]) -> None:
    for run, one in runs.items():
        assert done[run].error is None, done[run].error
        wanted = naive(one)
        assert each[run] == {"x": wanted.x, "before": wanted.before, "after": wanted.after}
        outputs = done[run].outputs
        assert outputs is not None
        assert outputs["end"].tolist() == wanted.x[-1:]
        assert held(engine, run, "main") == wanted.main
        assert held(engine, run, "samples") == wanted.samples
        if one.context:
            assert held(engine, run, "context") == ([list(one.context)], len(one.context))
    engine.states.audit()
    for run in runs:
        engine.drop(run)
    free, total = engine.pools.pages()
    assert engine.states.paged or free == total


@pytest.mark.parametrize("seed", range(16))
def test_nested_loops_do_what_plain_python_does(seed: int) -> None:
    engine = engine_of(support.plan())
    runs = {"a": drawn(seed)}
    check(engine, runs, *run_all(engine, entered(engine, runs)))


def test_runs_of_one_shape_share_launches() -> None:
    engine = engine_of(support.plan())
    shape = {"n": 2, "w": 2, "tokens": 7, "advance": 3}
    runs = {
        f"r{i}": drawn(i, times=2 + i, looks=[[True] * 2] * 9, notes=[[i % 2 == 0] * 2] * 9, **shape) for i in range(5)
    }
    each, done = run_all(engine, entered(engine, runs))
    assert max(end.batch for end in done.values()) > 1
    assert len(engine.loops.groups) == 1
    check(engine, runs, each, done)
