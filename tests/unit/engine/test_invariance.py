"""Runs alone and among others, where numbers may not depend on batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import call, engine_of, plan_of
from walkgraph.abi.calls import StateKey
from walkgraph.architectures.language import backbone
from walkgraph.engine.calls.chunked_prefill import Done
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput
from walkgraph.layers.invariance import is_batch_invariant

PARAMS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 0.95,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
OUTPUTS = (LoopOutput("code", 0, "code", "each"), LoopOutput("token", 0, "token", "last"))
RUNS = {"a": 5, "b": 70, "c": 17, "d": 33, "e": 48, "f": 20, "g": 5, "h": 31}
TIMES = 12


def engine(**options: Any) -> Engine:
    nodes = {"llm": ("walkgraph.models.orpheus.operators:Backbone", {"kv": "main", "seen": "seen"})}
    plan = plan_of(nodes, kv_bytes=1 << 22, source="random:orpheus-tiny:3", params={"llm": PARAMS})
    return engine_of(plan, batch_invariant=True, threads=1, **options)


def spoken(here: Engine, runs: dict[str, int]) -> tuple[dict[str, list[int]], list[int]]:
    """Codes of the runs, which enter one after the other while earlier ones decode; calls of each prefill's batch."""
    found: dict[str, list[int]] = {run: [] for run in runs}
    batches: list[int] = []
    for run, length in runs.items():
        states = {"kv": StateKey(run, "main"), "seen": StateKey(run, "seen")}
        ids = torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length))
        here.add(replace(call("llm", {"ids": ids}, run=run, **PARAMS), states=states, seed=len(run) + length))
    while not here.idle:
        for event in here.step():
            if isinstance(event, Done):
                assert event.outputs is not None, event.error
                batches.append(event.batch)
                here.add_loop(loop(event.call.run, event.outputs["token"], event.call.seed))
            elif isinstance(event, Items):
                found[event.call.run] += [code for value in event.values["code"] for code in value.tolist()]
            elif isinstance(event, LoopDone):
                assert event.error is None, event.error
    for run in runs:
        here.drop(run)
    return found, batches


def loop(run: str, token: torch.Tensor, seed: int) -> LoopCall:
    states = {"kv": StateKey(run, "main"), "seen": StateKey(run, "seen")}
    use = WrittenUse("llm", (LoopInput("token", "value", token, carried=(0, "token")),), PARAMS, {}, states, seed)
    return written(run, "decode", 1, 0, "tokens", (), (use,), TIMES, (0, "stop"), OUTPUTS, grain=7)


def test_a_run_says_alone_what_it_says_among_others() -> None:
    here = engine()
    together, batches = spoken(here, RUNS)
    assert batches == [1] * len(RUNS)
    assert any(together.values())
    for run, length in RUNS.items():
        assert spoken(here, {run: length})[0][run] == together[run]
    assert spoken(here, dict(reversed(RUNS.items())))[0] == together


def test_logits_of_steps_are_equal_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    here, seen = engine(), {}
    sample = backbone.sample

    def watched(logits: torch.Tensor, params: Any, *more: Any) -> torch.Tensor:
        assert is_batch_invariant()
        for row, seed, position in zip(logits, params.seed.tolist(), params.position.tolist(), strict=True):
            seen.setdefault((seed, position), []).append(row.clone())
        return sample(logits, params, *more)

    monkeypatch.setattr(backbone, "sample", watched)
    spoken(here, RUNS)
    for run, length in RUNS.items():
        spoken(here, {run: length})
    assert sum(len(rows) > 1 for rows in seen.values()) >= len(RUNS)
    assert not is_batch_invariant()
    for rows in seen.values():
        assert all(torch.equal(rows[0], row) for row in rows)


def test_prompts_are_cut_alike_whatever_runs_and_share_no_beginnings() -> None:
    mix = Mix(single=True)
    assert {mix.part(running) for running in (True, False)} == {mix.mixed}
    assert mix.rows() == mix.rows({"a"}, {"b", "c"}) == 0
    here = engine()
    spoken(here, {"one": 70})
    spoken(here, {"two": 70})
    assert not any(here.pools.prefix_stats())
