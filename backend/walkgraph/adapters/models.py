"""Models of plug-ins as operators: calls of equal shapes are stacked along a batch axis in front, for one forward."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.adapters.reporting import Reporter
from walkgraph.adapters.values import outputs_of, taken
from walkgraph.functions.signatures import Signature


class Batched(Protocol):
    """Runs a model once."""

    def __call__(self, inputs: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Any]:
        """Tensors with a batch axis in front -> the same for each output; absent ones are missing or None."""
        ...


class ModelOperator(Operator):
    """Integers are given as int64, floats in the type of the model."""

    def __init__(
        self, signature: Signature, run: Batched, dtype: torch.dtype, reporter: Reporter, *, single: bool = False
    ) -> None:
        """`single`: the model takes one call at a time."""
        self._signature, self._run, self._dtype, self._reporter = signature, run, dtype, reporter
        self._single_only = single

    @classmethod
    def of(
        cls, signature: Signature, run: Batched, dtype: torch.dtype, reporter: Reporter, *, single: bool = False
    ) -> Self:
        return cls(signature, run, dtype, reporter, single=single)

    def bucket(self, call: Call) -> Hashable:
        if self._single_only:
            return call.run, call.step, call.use, call.iteration
        shapes = tuple(_shape(call.inputs.get(port)) for port in self._signature.inputs)
        return shapes, tuple(sorted(self._params(call).items()))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        given = {
            port: torch.stack([self._input(call, port) for call in calls])
            for port in self._signature.inputs
            if calls[0].inputs.get(port) is not None
        }
        for port, declared in self._signature.inputs.items():
            if port not in given:
                taken(calls[0], port, declared)  # which is an error where it isn't optional
        try:
            found = self._run(given, self._params(calls[0]))
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as raised:  # noqa: BLE001 (the code of a plug-in may raise anything)
            raise self._reporter.failed(calls[0].node, raised) from None
        rows = (self._row(call, found, row, len(calls)) for row, call in enumerate(calls))
        return [outputs_of(call, self._signature, one) for call, one in zip(calls, rows, strict=True)]

    def _input(self, call: Call, port: str) -> Tensor:
        value: Tensor = taken(call, port, self._signature.inputs[port])
        wanted = self._signature.inputs[port].type.dtype
        if wanted == "float":
            return value.to(self._dtype)
        return value.to(torch.int64) if wanted == "int" else value

    def _row(self, call: Call, found: Mapping[str, Any], row: int, rows: int) -> dict[str, Any]:
        """A call's outputs, by the names of the fields."""
        kept: dict[str, Any] = {}
        for port in self._signature.outputs:
            value = found.get(port)
            if isinstance(value, Tensor):
                if value.dim() == 0 or value.shape[0] != rows:
                    shape = list(value.shape)
                    message = f"`{port}` of `{call.node}` must have the batch in front, {rows} here, and is {shape}"
                    raise CallFailed(message, port)
                value = value[row]
            kept[port] = value
        return _as_answered(self._signature, kept)

    def _params(self, call: Call) -> dict[str, Scalar]:
        return {name: call.params[name] for name in self._signature.params if name in call.params}


def _as_answered(signature: Signature, kept: dict[str, Any]) -> Any:
    """As a function would have returned it: `outputs_of` reads it."""
    if signature.answer == "single":
        [value] = kept.values()
        return value
    return kept if signature.answer == "items" else _Fields(kept)


class _Fields:
    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)


def _shape(value: Any) -> Hashable:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else type(value)
