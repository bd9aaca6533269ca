"""Warms an engine up before its rank is ready: every operator once, through the real step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

from walkgraph.abi.calls import Call
from walkgraph.abi.operator import Operator
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.calls.chunked_prefill import Done
from walkgraph.engine.load import WARM_UP, example_calls
from walkgraph.engine.loops.body import Loaded
from walkgraph.errors import RunFailed
from walkgraph.placement.tables import NodePlan, Plan

Progress = Callable[[str, float], None]


class WarmableEngine(Protocol):
    @property
    def idle(self) -> bool: ...

    def add(self, call: Call) -> None: ...

    def step(self) -> Sequence[object]: ...

    def drop(self, run: str) -> None: ...


def warm_up(
    engine: WarmableEngine, plan: Plan, plans: Sequence[NodePlan], nodes: Mapping[str, Loaded], progress: Progress
) -> None:
    """Execute the examples of every operator that isn't warm. Raises `RunFailed` if one fails."""
    first = {nodes[node.name].index: node for node in reversed(plans) if not nodes[node.name].warm}
    for done, (_, node) in enumerate(sorted(first.items())):
        progress(f"warm-up of `{node.name}`", done / len(first))
        for call in example_calls(plan, node, nodes[node.name].operator):
            engine.add(call)
            while not engine.idle:
                failed = [one.error for one in engine.step() if isinstance(one, Done) and one.error is not None]
                if failed:
                    raise RunFailed(failed[0])
        engine.drop(WARM_UP)
    progress("warm-up", 1.0)


def capture_steps(
    nodes: Mapping[str, Loaded], captured_of: Callable[[torch.device], CapturedSteps | None], progress: Progress
) -> None:
    """Capture the steps of operators that declare `step_inputs`, for their examples. Other steps are captured in
    loops."""
    operators = {
        id(loaded.operator): (loaded, name)
        for name, loaded in nodes.items()
        if type(loaded.operator).step_inputs is not Operator.step_inputs
    }
    for number, (loaded, name) in enumerate(operators.values()):
        captured = captured_of(loaded.device)
        if captured is None:
            continue
        for inputs in loaded.operator.step_examples():
            with torch.inference_mode():
                captured.prepare(loaded.operator, inputs, {})
        progress(f"capture of `{name}`", (number + 1) / len(operators))
