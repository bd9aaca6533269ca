"""Figures that operators count on their devices: against counts of what their layers chose, and without waiting."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import call, engine_of, ids, plan_of, serve
from walkgraph.abi.calls import StateKey
from walkgraph.abi.operator import Operator
from walkgraph.engine.device.cuda_streams import HostCopies
from walkgraph.engine.engine import Engine
from walkgraph.engine.figures import FigureReader
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.loops.spec import LoopCall, LoopOutput
from walkgraph.layers.moe.routing import Routing
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.layers.tally import tally, tally_up
from walkgraph.telemetry.events import NodeFigure

CPU = torch.device("cpu")
SAMPLED: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
LLM = ("walkgraph.models.llm.operators:Backbone", {"kv": "main", "seen": "seen"})
STEPS = 6


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The choices of the router, a layer and step each `[rows, chosen]`."""
    found: list[np.ndarray] = []
    route = SparseMLP.routed

    def noted(mlp: SparseMLP, x: Tensor) -> Routing:
        routing = route(mlp, x)
        found.append(routing.experts.numpy())
        return routing

    monkeypatch.setattr(SparseMLP, "routed", noted)
    return found


def engine() -> Engine:
    return engine_of(plan_of({"llm": LLM, "view": LLM}, source="random:qwen3-moe-tiny:3", family="llm"))


def loop(run: str, seed: int) -> LoopCall:
    token = LoopInput("token", "value", torch.tensor([seed]), carried=(0, "token"))
    states = {slot: StateKey(run, name) for slot, name in LLM[1].items()}
    use = WrittenUse("llm", (token,), SAMPLED, {}, states, seed)
    return written(run, "decode", 3, 0, "tokens", (), (use,), STEPS, None, (LoopOutput("token", 0, "token", "last"),))


def stepped(here: Engine) -> None:
    while not here.idle:
        here.step()


def test_distinct_experts_of_a_layer_and_step_are_those_that_the_router_chose(routed: list[np.ndarray]) -> None:
    here = engine()
    assert here.gauges().figures == (), "a warm-up doesn't count"
    for run in range(3):
        serve(here, call("llm", {"ids": ids(7 + run, 5, run)}, run=f"r{run}", states=LLM[1], **SAMPLED))
    assert here.gauges().figures, "short prompts take the form of a step"
    routed.clear()
    for run in range(3):
        here.add_loop(loop(f"r{run}", run))
    stepped(here)
    counts = [len(np.unique(one)) for one in routed]
    assert len(counts) == STEPS * 2, "two of the three layers have experts"
    assert len(set(counts)) > 1, "the steps differ, so that a mean isn't a maximum"
    wanted = NodeFigure(
        nodes=("llm", "view"), name="distinct_experts", count=len(counts), total=sum(counts), most=max(counts)
    )
    assert here.gauges().figures == (wanted,)
    assert here.gauges().figures == (), "each is told once"


def test_what_was_counted_while_nobody_looked_is_forgotten(routed: list[np.ndarray]) -> None:
    here = engine()
    here.add_loop(loop("r", 1))
    stepped(here)
    assert routed
    here.time_steps(on=True)
    assert here.gauges().figures == ()


class Counts(Operator):
    def __init__(self, name: str) -> None:
        self.name, self.tally = name, tally(CPU)

    def figures(self) -> dict[str, Tensor]:
        return {self.name: self.tally}


class SlowMark:
    """A device that has not come so far."""

    reached = False

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        raise AssertionError("nothing waits for a figure")

    wait = synchronize


class SlowCopies:
    """Copies that take as long as the test wants."""

    def __init__(self) -> None:
        self.marks: list[SlowMark] = []

    def to_host(self, value: Tensor) -> Tensor:
        return value.clone()

    def mark(self) -> SlowMark:
        self.marks.append(SlowMark())
        return self.marks[-1]


def test_figures_come_one_reading_later_and_nothing_waits_for_the_device() -> None:
    first, other, copies = Counts("a"), Counts("b"), SlowCopies()
    nodes = {"x": Loaded(first, CPU, 0), "y": Loaded(other, CPU, 1), "z": Loaded(first, CPU, 0)}
    reader = FigureReader(nodes, lambda device: cast(HostCopies, copies))
    tally_up(first.tally, 4)
    tally_up(first.tally, 2)
    assert reader.read() == ()
    assert first.tally.tolist() == [0, 0, 0], "what is on its way is not counted again"
    tally_up(other.tally, 9)
    assert reader.read() == ()
    assert len(copies.marks) == 1, "one reading at a time"
    copies.marks[0].reached = True
    assert reader.read() == (NodeFigure(nodes=("x", "z"), name="a", count=2, total=6, most=4),)
    copies.marks[1].reached = True
    assert reader.read() == (NodeFigure(nodes=("y",), name="b", count=1, total=9, most=9),)
    tally_up(first.tally, 1)
    reader.clear()
    copies.marks[-1].reached = True
    assert reader.read() == ()
    assert len(copies.marks) == 4
