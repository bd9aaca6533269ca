"""Runs one batch: the forward, whose fault it was if it raised, and whether the numbers are finite.

A batch is launched, then collected: on a GPU the host goes on meanwhile, and reads only what has come back.

What may enter this file: what every forward needs. What may not: names of models, kinds of nodes, scheduling.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.device import Lines, Mark
from walkgraph.engine.pages import OutOfPages
from walkgraph.engine.single import Singles
from walkgraph.engine.sound import Unsound
from walkgraph.engine.states import StateTable
from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.networks.base import FINITE, Call, CallFailed, Operator, Outputs
from walkgraph.networks.loops import LoopCall

_log = logging.getLogger(__name__)

HostPorts = Callable[[Call], Collection[str]]
"""The output ports of a call that are read on the host."""


class Result(NamedTuple):
    """Of one call."""

    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    busy: float
    """Seconds from the launch of the forward that served or failed it, shared with the other calls of its batch."""
    batch: int
    """Calls in that forward."""


class Launched:
    """A batch under way. `wait` before `results`."""

    def __init__(self, mark: Mark | None, results: "Callable[[], list[Result]]", stamp: Mark | None = None) -> None:
        """`stamp`: when its forward was over, where `mark` is of more than that."""
        self._mark, self.results, self.stamp = mark, results, stamp or mark
        self.asynchronous = mark is not None
        """Whether it goes on by itself."""

    @property
    def ready(self) -> bool:
        return self._mark is None or self._mark.query()

    def wait(self) -> None:
        if self._mark is not None:
            self._mark.synchronize()


class Runner:
    def __init__(
        self,
        states: StateTable,
        rank: int,
        clock: Callable[[], float] = time.perf_counter,
        host_ports: HostPorts = lambda call: (),
        stamp: Callable[[torch.device], Mark | None] = lambda device: None,
    ) -> None:
        self._states, self._rank, self._clock, self._host_ports, self._stamp = states, rank, clock, host_ports, stamp
        self._lines: dict[torch.device, Lines] = {}

    def run(self, operator: Operator, device: torch.device, calls: Sequence[Call]) -> list[Result]:
        """A result per call, in order, waited for."""
        launched = self.launch(operator, device, calls)
        launched.wait()
        return launched.results()

    def launch(self, operator: Operator, device: torch.device, calls: Sequence[Call]) -> Launched:
        """A call that fails takes no other with it, and leaves no state behind."""
        lines = self._lines.setdefault(device, Lines(device))
        results = self._launch(operator, device, calls, lines)
        stamp = self._stamp(device)
        return Launched(lines.mark(), lambda: [result() for result in results], stamp)

    def launch_beside(
        self, singles: Singles, operator: Operator, device: torch.device, calls: Sequence[Call]
    ) -> Launched:
        """By captured steps of one lane; where these can't be launched, as `launch` does it."""
        started = self._clock()
        try:
            with torch.inference_mode():
                served = singles.serve(operator, calls, self._host_ports)
        except Exception as raised:  # noqa: BLE001 (what ails a captured step, a forward tells call by call)
            _log.warning("captured steps of `%s` could not be launched", calls[0].node, exc_info=raised)
            return self.launch(operator, device, calls)

        def results() -> list[Result]:
            took = self._clock() - started
            sound = [one for flags in served.sound for one in flags.tolist()] or [True] * len(calls)
            return [
                Result(outputs if good else None, None if good else self.numeric(call, served.port), took, len(calls))
                for call, outputs, good in zip(calls, served.outputs, sound, strict=True)
            ]

        return Launched(served.mark, results)

    def _launch(
        self, operator: Operator, device: torch.device, calls: Sequence[Call], lines: Lines
    ) -> list[Callable[[], Result]]:
        started = self._clock()
        transaction = self._states.transaction(operator)
        try:
            with torch.inference_mode():
                for call in calls:
                    _place(call, device)
                outputs = operator.forward(calls, transaction)
                if len(outputs) != len(calls):
                    raise RuntimeError(f"{len(outputs)} outputs for {len(calls)} calls")
                bad = Unsound(outputs, lines)
                given = [self._given(call, ports, lines) for call, ports in zip(calls, outputs, strict=True)]
        except Exception as raised:  # noqa: BLE001 (whatever a forward raises ends that run, never the rank)
            transaction.rollback()
            if len(calls) == 1:
                failed = Result(None, self.failed(calls[0], raised), self._clock() - started, 1)
                return [lambda: failed]
            half = len(calls) // 2
            first = self._launch(operator, device, calls[:half], lines)
            return first + self._launch(operator, device, calls[half:], lines)
        fresh = transaction.settle()
        busy = None if lines.asynchronous else self._clock() - started

        def result(index: int) -> Result:
            took = self._clock() - started if busy is None else busy
            port = bad.port(index)
            if port is not None:
                return Result(None, self.numeric(calls[index], port), took, len(calls))
            self._states.confirm(one for one in fresh if one.key in calls[index].states.values())
            return Result(given[index], None, took, len(calls))

        return [lambda index=index: result(index) for index in range(len(calls))]

    def _given(self, call: Call, ports: Outputs, lines: Lines) -> Outputs:
        wanted = self._host_ports(call)
        given = ((port, value) for port, value in ports.items() if port != FINITE)
        return {port: lines.to_host(value) if port in wanted else value for port, value in given}

    def failed(self, call: Call | LoopCall, raised: Exception) -> ErrorInfo:
        """What the client learns of an exception: our own sentence, never a foreign one's text."""
        node = _node(call)
        if isinstance(raised, CallFailed):
            return self._error(call, raised.code, str(raised), raised.port)
        if isinstance(raised, OutOfPages):
            return self._error(call, "out_of_memory", str(raised))
        if is_memory(raised):
            advice = "ask for less, or try again when other runs have ended"
            return self._error(call, "out_of_memory", f"`{node}` needs more memory than its rank has; {advice}")
        _log.error("node `%s` failed in run %s at %s", node, call.run, call.iteration, exc_info=raised)
        where = f"the log of rank {self._rank} says where, under this run's id"
        return self._error(call, "node_error", f"`{node}` failed; {where}")

    def numeric(self, call: Call, port: str) -> ErrorInfo:
        where = f" at iteration {list(call.iteration)}" if call.iteration else ""
        message = f"`{call.node}.{port}` gave NaN or infinite numbers{where}; check its inputs and parameters"
        return self._error(call, "numeric_error", message, port)

    def _error(self, call: Call | LoopCall, code: ErrorCode, message: str, port: str | None = None) -> ErrorInfo:
        return ErrorInfo(
            code=code,
            message=message,
            node=_node(call),
            port=port,
            walk=call.walk,
            iteration=call.iteration,
            rank=self._rank,
            retryable=code == "out_of_memory",
        )


def _node(call: Call | LoopCall) -> str:
    """A loop's is the first of its body."""
    return call.node if isinstance(call, Call) else call.body[0].node


def _place(call: Call, device: torch.device) -> None:
    for port, value in call.inputs.items():
        if isinstance(value, Tensor) and value.device != device:
            if value.device.type == "cpu" and value.dim() == 1 and not value.is_floating_point():
                call.host[port] = value
            call.inputs[port] = value.to(device, non_blocking=True)


def is_memory(raised: Exception) -> bool:
    """Whether memory ran out, on the host or on a device."""
    # The CPU allocator of torch raises a plain RuntimeError, which only its own name tells from others.
    allocator = isinstance(raised, RuntimeError) and "DefaultCPUAllocator" in str(raised)
    return allocator or isinstance(raised, (MemoryError, torch.OutOfMemoryError))
