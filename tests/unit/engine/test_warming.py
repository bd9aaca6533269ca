"""Captures before the first request, other than loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from walkgraph.abi.calls import Call, Scalar
from walkgraph.abi.operator import Operator
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.warmup import capture_steps
from walkgraph.models.synthetic.search_operators import Perturb

CPU = torch.device("cpu")


class _Kept:
    """`CapturedSteps` that asks a step for its spec, as a real one does."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []

    def prepare(self, operator: Operator, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> None:
        operator.step_spec(inputs, params)
        self.operators.append(operator)


class _Window(Perturb):
    """A step that serves calls outside loops too, whatever their parameters."""

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        return {"way": call.inputs["way"]}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> Any:
        return super().step_spec(inputs, {"ways": 2, **params})


def test_steps_for_loops_alone_are_not_asked_without_parameters() -> None:
    kept, window = _Kept(), _Window(CPU)
    nodes = {"spread": Loaded(Perturb(CPU), CPU, 0), "window": Loaded(window, CPU, 1), "again": Loaded(window, CPU, 1)}
    told: list[tuple[str, float]] = []
    capture_steps(nodes, lambda device: cast(CapturedSteps, kept), lambda what, done: told.append((what, done)))
    assert kept.operators == [window]
    assert [done for _, done in told] == [1.0]
