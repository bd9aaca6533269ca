"""Captured steps of calls outside loops, one CUDA graph for each batch size: forwards of fixed shape, such as a
vocoder's chunk. They run beside the steps of loops, on a stream and in memory of their own.

They may keep tensor states, which are copied into a graph's tables before it is replayed, and out of them behind it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.step import StepBatch, StepOutputs, StepSpec
from walkgraph.engine.calls.finite import sound_rows
from walkgraph.engine.calls.readback import ReadBack
from walkgraph.engine.device.capture import Capturer, bucket
from walkgraph.engine.device.cuda_streams import Marks, SideStream, listed, put_rows
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.kv.states import StateTable

SIZES = (1, 2, 4, 8, 16, 32)
"""Batch sizes that are captured if a step doesn't say."""


class Served(NamedTuple):
    outputs: list[Outputs]
    """Outputs of each call, to be read when the mark is reached."""
    sound: list[Tensor]
    """bool tensors on the host, one entry for each call in order: true if its numbers are finite. Empty if they can't
    be otherwise."""
    port: str
    """The port that an error names if they are not finite."""
    mark: Mark | None


class _CapturedStep(NamedTuple):
    batch: StepBatch
    """The tensors that every replay reads: they must live as long as the graph."""
    made: "_StepResult"
    replay: Callable[[], None]


class _StepResult:
    """The tensors that every replay overwrites."""

    ports: Mapping[str, Tensor]
    sound: Tensor | None

    def take(self, out: StepOutputs) -> None:
        self.ports = out.ports
        self.sound = sound_rows(out.ports.values()) if out.finite is None else out.finite


class CapturedSteps:
    def __init__(
        self,
        capturer: Capturer,
        *,
        most: int | None = None,
        marks: Marks | None = None,
        states: StateTable | None = None,
    ) -> None:
        """`capturer`: used by nothing else, because its graphs run beside others. `most`: the most calls in a batch,
        if fewer than the step allows. `marks`: makes the marks behind its launches. `states`: those of the calls; None
        if no step keeps any."""
        self._capturer, self._most, self._states = capturer, most, states
        self._stream = SideStream(capturer.device, marks)
        self._graphs: dict[Hashable, _CapturedStep] = {}
        self._ready: set[Hashable] = set()

    def key(self, operator: Operator, call: Call) -> Hashable | None:
        """Calls of one operator with equal keys may be served together. None if `forward` must serve the call."""
        inputs = operator.step_inputs(call)
        spec = None if inputs is None else operator.step_spec(inputs, call.params)
        if spec is None or not spec.outputs or not (_empty(spec) or (id(operator), spec.key) in self._ready):
            return None
        return spec.key

    def prepare(self, operator: Operator, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> None:
        """Capture all batch sizes of a step that keeps no paged state; do nothing for any other step."""
        spec = operator.step_spec(inputs, params)
        if spec is not None and not spec.appends and (self._states is not None or not spec.tensors):
            for size in reversed(self._sizes(spec)):
                self._graph(operator, spec, size)
            self._ready.add((id(operator), spec.key))

    def serve(self, operator: Operator, calls: Sequence[Call], reads: Callable[[Call], ReadBack]) -> Served:
        """Launch the captured steps of calls with one key. Outputs that the host reads are copied there."""
        inputs = [operator.step_inputs(call) or {} for call in calls]
        spec = operator.step_spec(inputs[0], calls[0].params)
        if spec is None:
            raise ValueError(f"`{calls[0].node}` has no step for these inputs")
        port = min(spec.outputs, key=lambda name: (not spec.outputs[name].dtype.is_floating_point, name))
        if _empty(spec):
            return Served([self._nothing(spec) for _ in calls], [], port, None)
        outputs: list[Outputs] = []
        sound: list[Tensor] = []
        kept: list[tuple[StateKey, Tensor]] = []
        most, before = self._sizes(spec)[-1], [self._before(spec, call) for call in calls]
        read = (value for one in (*inputs, *before) for value in one.values() if isinstance(value, Tensor))
        with self._stream.opened(read):
            for start in range(0, len(calls), most):
                part = slice(start, start + most)
                graph = self._filled(operator, spec, calls[part], inputs[part])
                _put(graph.batch.tensors, before[part])
                graph.replay()
                outputs += self._taken(graph, spec, calls[part], reads)
                kept += self._kept(graph, calls[part])
                if graph.made.sound is not None:
                    sound.append(self._stream.to_host(graph.made.sound[: len(calls[part])]))
            served = Served(outputs, sound, port, self._stream.mark())
        # Only now: if a part can't be launched, `forward` serves all calls, from the states before.
        if self._states is not None:
            for key, value in kept:
                self._states.set(key, value)
        return served

    def _sizes(self, spec: StepSpec) -> tuple[int, ...]:
        return tuple(size for size in spec.sizes or SIZES if self._most is None or size <= self._most)

    def _before(self, spec: StepSpec, call: Call) -> Mapping[str, Tensor | None]:
        """The tensor states of a call, by slot; None for those that hold nothing yet."""
        if self._states is None:
            return {}
        return {slot: self._states.tensors.get(call.states[slot]) for slot in spec.tensors}

    def _kept(self, graph: _CapturedStep, calls: Sequence[Call]) -> list[tuple[StateKey, Tensor]]:
        """Copies of what a graph's tables hold of the calls: each of its own, as they don't end together."""
        return [
            (call.states[slot], self._stream.kept(table[index]))
            for slot, table in graph.batch.tensors.items()
            for index, call in enumerate(calls)
        ]

    def _nothing(self, spec: StepSpec) -> Outputs:
        device = self._capturer.device
        return {port: torch.empty(row.shape, dtype=row.dtype, device=device) for port, row in spec.outputs.items()}

    def _filled(
        self, operator: Operator, spec: StepSpec, calls: Sequence[Call], inputs: Sequence[Mapping[str, Any]]
    ) -> _CapturedStep:
        graph, count = self._graph(operator, spec, bucket(len(calls), self._sizes(spec))), len(calls)
        device, batch = self._capturer.device, graph.batch
        for port, (_, dtype) in spec.inputs.items():
            values = [one[port] for one in inputs]
            if isinstance(values[0], Tensor):
                put_rows(batch.inputs[port], values)
            else:
                batch.inputs[port][:count].copy_(listed(values, device, dtype), non_blocking=True)
        for name, dtype in spec.params.items():
            numbers = listed([call.params[name] for call in calls], device, dtype)
            batch.params[name][:count].copy_(numbers, non_blocking=True)
        batch.seed[:count].copy_(listed([call.seed for call in calls], device), non_blocking=True)
        return graph

    def _taken(
        self,
        graph: _CapturedStep,
        spec: StepSpec,
        calls: Sequence[Call],
        reads: Callable[[Call], ReadBack],
    ) -> list[Outputs]:
        """Copy a graph's outputs, because the next replay overwrites them."""
        wanted = [reads(call) for call in calls]
        outputs: list[Outputs] = [{} for _ in calls]
        for port in spec.outputs:
            rows = graph.made.ports[port][: len(calls)]
            dtypes = {one[port] for one in wanted if port in one}
            copies = {dtype: self._stream.to_host(rows, dtype) for dtype in dtypes}
            kept = self._stream.kept(rows) if any(port not in one for one in wanted) else None
            for index, one in enumerate(wanted):
                copy = copies[one[port]] if port in one else kept
                if copy is not None:
                    outputs[index][port] = copy[index]
        return outputs

    def _graph(self, operator: Operator, spec: StepSpec, size: int) -> _CapturedStep:
        key = (id(operator), spec.key, size)
        if key not in self._graphs:
            self._graphs[key] = self._captured(operator, spec, size)
        return self._graphs[key]

    def _captured(self, operator: Operator, spec: StepSpec, size: int) -> _CapturedStep:
        device = self._capturer.device
        inputs = {n: torch.zeros(size, *row.shape, dtype=row.dtype, device=device) for n, row in spec.inputs.items()}
        params = {n: torch.zeros(size, dtype=dtype, device=device) for n, dtype in spec.params.items()}
        tensors = {n: torch.zeros(size, *row.shape, dtype=row.dtype, device=device) for n, row in spec.tensors.items()}
        seed = torch.zeros(size, dtype=torch.int64, device=device)
        batch = StepBatch(
            rows=torch.arange(size, dtype=torch.int32, device=device),
            inputs=inputs,
            params=params,
            seed=seed,
            iteration=torch.zeros(size, dtype=torch.int64, device=device),
            tensors=tensors,
            variant=spec.variant,
        )
        made = _StepResult()
        what = f"a step of {type(operator).__name__} at batch {size}"
        replay = self._capturer(lambda: made.take(operator.step(batch)), what)
        return _CapturedStep(batch, made, replay)


def _empty(spec: StepSpec) -> bool:
    """True if its steps would make nothing, so that none needs to run."""
    keeps = spec.tensors or spec.appends
    return not keeps and all(0 in row.shape for row in spec.outputs.values())


def _put(tables: Mapping[str, Tensor], before: Sequence[Mapping[str, Tensor | None]]) -> None:
    """Copy the states of calls into the first rows of the tables; zeros where there is none yet."""
    for slot, table in tables.items():
        nothing = torch.zeros_like(table[0])
        rows = [nothing if (held := one[slot]) is None else held for one in before]
        torch.stack(rows, out=table[: len(rows)])
