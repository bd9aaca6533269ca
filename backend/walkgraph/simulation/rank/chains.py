"""Chains of small nodes on a simulated rank: the real runner of chains, over functions in place of forwards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.call_chains import ChainRunner
from walkgraph.engine.calls.inflight import Result
from walkgraph.errors import ErrorInfo
from walkgraph.simulation.rank.device import Serve

Made = Callable[[Call], Result]


class _ChainedNode(NamedTuple):
    """A node as the runner of chains knows it; it stands for its operator too."""

    name: str
    device: Any = None

    @property
    def operator(self) -> "_ChainedNode":
        return self

    def bucket(self, call: Call) -> str:
        return self.name


class _ChainFailures:
    def of(self, call: Call, raised: Exception) -> ErrorInfo:
        return ErrorInfo(code="node_error", message=str(raised), node=call.node)

    def lacking(self, call: Call, port: str) -> ErrorInfo:
        return ErrorInfo(code="node_error", message=f"`{port}` has no value", node=call.node)


class _ChainForwards:
    """Makes the calls of a link, one by one."""

    def __init__(self, made: Made) -> None:
        self._make, self.failures = made, _ChainFailures()

    def made(self, operator: Any, device: Any, calls: Sequence[Call]) -> list[Result]:
        return [self._make(call) for call in calls]


def chain_runner(functions: Mapping[str, Serve], made: Made, clock: Callable[[], float]) -> ChainRunner:
    nodes = {name: _ChainedNode(name) for name in functions}
    return ChainRunner(cast("Any", nodes), cast("Any", _ChainForwards(made)), clock)
