"""Operators of a simulated rank: functions that compute calls, with what the engine asks of an operator."""

from collections.abc import Hashable, Sequence
from typing import Any

from walkgraph.abi.calls import Call, Outputs
from walkgraph.simulation.rank.device import Serve


class SimulatedOperator:
    """Stands for `abi.operator.Operator`. As a function it computes one call."""

    pure = True
    deferring = False
    """Some of its calls may be deferred."""
    threaded = False
    """Its calls may be made by threads."""

    def __init__(self, serve: Serve, *, alike: bool = False) -> None:
        """`alike`: of calls with equal inputs, one is served first, so that the others may find what it gives."""
        self._serve, self._alike = serve, alike

    def __call__(self, call: Call) -> dict[str, Any]:
        return self._serve(call)

    def bucket(self, call: Call) -> Hashable:
        return None

    def rows(self, call: Call) -> int:
        return 1

    def quick(self, call: Call) -> bool:
        return False

    def alike(self, call: Call) -> Hashable:
        return (call.node, repr(call.inputs)) if self._alike else None

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        return (call,)

    def defers(self, call: Call) -> bool:
        return False

    def forward(self, calls: Sequence[Call]) -> list[Outputs]:
        """Computes a batch. Raises ValueError, and has changed nothing then, if one of the calls fails."""
        return [self._serve(call) for call in calls]
