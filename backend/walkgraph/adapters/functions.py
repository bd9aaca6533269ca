"""A Python function of a plug-in as an operator: called once for each call, or once for a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.adapters.reporting import Reporter
from walkgraph.adapters.values import outputs_of, taken
from walkgraph.functions.signatures import Signature


@dataclass(frozen=True)
class FunctionNetwork:
    """Loads the operator of a function."""

    signature: Signature
    function: Callable[..., Any]
    batched: Callable[..., Any] | None
    reporter: Reporter
    options: tuple[str, ...] = ()

    def load(self, context: LoadContext) -> Operator:
        kind = DeterministicFunction if self.signature.deterministic else FunctionOperator
        return kind.around(self.signature, self.function, self.batched, self.reporter)


class FunctionOperator(Operator):
    def __init__(
        self,
        signature: Signature,
        function: Callable[..., Any],
        batched: Callable[..., Any] | None,
        reporter: Reporter,
    ) -> None:
        self._signature, self._function, self._batched, self._reporter = signature, function, batched, reporter

    @classmethod
    def around(
        cls,
        signature: Signature,
        function: Callable[..., Any],
        batched: Callable[..., Any] | None,
        reporter: Reporter,
    ) -> Self:
        return cls(signature, function, batched, reporter)

    def bucket(self, call: Call) -> Hashable:
        """Without a batched form every call is alone, so that none is repeated for the failure of another."""
        if self._batched is None:
            return call.run, call.step, call.use, call.iteration
        return self._params(call), tuple(_shape(call.inputs.get(port)) for port in self._signature.inputs)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        if self._batched is not None and len(calls) > 1:
            return self._together(self._batched, calls)
        return [self._single(call) for call in calls]

    def _single(self, call: Call) -> Outputs:
        arguments = [_own(taken(call, port, declared)) for port, declared in self._signature.inputs.items()]
        keywords: dict[str, Any] = dict(self._params(call))
        if self._signature.seed is not None:
            keywords[self._signature.seed] = call.seed
        return outputs_of(call, self._signature, self._called(call, self._function, arguments, keywords))

    def _together(self, batched: Callable[..., Any], calls: Sequence[Call]) -> list[Outputs]:
        inputs = self._signature.inputs.items()
        lists = [[_own(taken(call, port, declared)) for call in calls] for port, declared in inputs]
        given = self._called(calls[0], batched, lists, dict(self._params(calls[0])))
        if not isinstance(given, (list, tuple)) or len(given) != len(calls):
            raise CallFailed(f"`{self._signature.batched}` must return a list with an answer for each call")
        return [outputs_of(call, self._signature, one) for call, one in zip(calls, given, strict=True)]

    def _called(self, call: Call, function: Callable[..., Any], arguments: list[Any], keywords: dict[str, Any]) -> Any:
        try:
            return function(*arguments, **keywords)
        except MemoryError:
            raise
        except (Exception, SystemExit) as raised:
            if _is_memory(raised):
                raise
            raise self._reporter.failed(call.node, raised) from None

    def _params(self, call: Call) -> tuple[tuple[str, Scalar], ...]:
        params = self._signature.params
        return tuple(
            (name, float(call.params[name]) if params[name].type == "number" else call.params[name]) for name in params
        )


class DeterministicFunction(FunctionOperator):
    """A function that says that its outputs follow from inputs and parameters alone."""

    pure: ClassVar[bool] = True


def _own(value: Any) -> Any:
    """A copy of tensors and arrays, which others read too: a function may change its arguments in place."""
    if isinstance(value, list):
        return [_own(one) for one in value]
    if isinstance(value, Tensor):
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _shape(value: Any) -> Hashable:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else type(value)


def _is_memory(raised: BaseException) -> bool:
    """True for torch's errors of a full device, which the engine knows."""
    return type(raised).__name__ == "OutOfMemoryError"
