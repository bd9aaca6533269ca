"""Steps of calls outside loops, captured by batch size: a forward of fixed shape that keeps nothing (a vocoder's
window)."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.capture import Capturer, bucket
from walkgraph.networks.base import Call, Operator, Outputs, Scalar, StepBatch, StepOutputs, StepSpec

SIZES = (1, 2, 4, 8, 16, 32)


class _Graph(NamedTuple):
    inputs: Mapping[str, Tensor]
    params: Mapping[str, Tensor]
    seed: Tensor
    outputs: list[StepOutputs]
    """One, which every replay writes anew."""
    replay: Callable[[], None]


class Singles:
    def __init__(self, capturer: Capturer) -> None:
        self._capturer = capturer
        self._graphs: dict[Hashable, _Graph] = {}

    @property
    def enabled(self) -> bool:
        return self._capturer.enabled

    def serve(self, operator: Operator, calls: Sequence[Call]) -> list[Outputs] | None:
        """The outputs of the calls by captured steps; None where `forward` must serve them."""
        given = [operator.step_inputs(call) for call in calls]
        first = given[0]
        if first is None or any(one is None or one.keys() != first.keys() for one in given):
            return None
        spec = operator.step_spec(first, calls[0].params)
        if spec is None or spec.tensors or spec.appends:
            return None
        outputs: list[Outputs] = []
        for start in range(0, len(calls), SIZES[-1]):
            part = slice(start, start + SIZES[-1])
            outputs += self._serve(operator, spec, calls[part], [one for one in given[part] if one is not None])
        return outputs

    def prepare(self, operator: Operator, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> None:
        """Capture all batch sizes of a step that keeps nothing; another one is left alone."""
        spec = operator.step_spec(inputs, params)
        if spec is not None and not spec.tensors and not spec.appends:
            for size in reversed(SIZES):
                self._graph(operator, spec, size)

    def _serve(
        self, operator: Operator, spec: StepSpec, calls: Sequence[Call], given: Sequence[Mapping[str, Any]]
    ) -> list[Outputs]:
        count = len(calls)
        graph = self._graph(operator, spec, bucket(count, SIZES))
        for port, (_, dtype) in spec.inputs.items():
            values = [one[port] for one in given]
            if isinstance(values[0], Tensor):
                torch.stack(values, out=graph.inputs[port][:count])
            else:
                graph.inputs[port][:count].copy_(torch.tensor(values, dtype=dtype), non_blocking=True)
        for name, dtype in spec.params.items():
            numbers = torch.tensor([call.params[name] for call in calls], dtype=dtype)
            graph.params[name][:count].copy_(numbers, non_blocking=True)
        graph.seed[:count].copy_(torch.tensor([call.seed for call in calls]), non_blocking=True)
        graph.replay()
        # The next replay writes over what this one gave.
        ports = {port: graph.outputs[-1].ports[port][:count].clone() for port in spec.outputs}
        return [{port: rows[i] for port, rows in ports.items()} for i in range(count)]

    def _graph(self, operator: Operator, spec: StepSpec, size: int) -> _Graph:
        key = (id(operator), spec.key, size)
        if key not in self._graphs:
            self._graphs[key] = self._captured(operator, spec, size)
        return self._graphs[key]

    def _captured(self, operator: Operator, spec: StepSpec, size: int) -> _Graph:
        device = self._capturer.device
        inputs = {n: torch.zeros(size, *row.shape, dtype=row.dtype, device=device) for n, row in spec.inputs.items()}
        params = {n: torch.zeros(size, dtype=dtype, device=device) for n, dtype in spec.params.items()}
        seed = torch.zeros(size, dtype=torch.int64, device=device)
        batch = StepBatch(
            rows=torch.arange(size, dtype=torch.int32, device=device),
            inputs=inputs,
            params=params,
            seed=seed,
            iteration=torch.zeros(size, dtype=torch.int64, device=device),
        )
        outputs: list[StepOutputs] = []
        what = f"a step of {type(operator).__name__} at batch {size}"
        return _Graph(inputs, params, seed, outputs, self._capturer(lambda: outputs.append(operator.step(batch)), what))
