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
from walkgraph.engine.failures import Failures
from walkgraph.engine.single import Singles
from walkgraph.engine.sound import Unsound
from walkgraph.engine.states import StateTable
from walkgraph.errors import ErrorInfo
from walkgraph.networks.base import FINITE, Call, Operator, Outputs

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
        self._states, self._clock, self._host_ports, self._stamp = states, clock, host_ports, stamp
        self.failures = Failures(states, rank)
        self._lines: dict[torch.device, Lines] = {}

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
            errors = [
                None if good else self.failures.numeric(call, served.port)
                for call, good in zip(calls, sound, strict=True)
            ]
            return [
                Result(None if error else outputs, error, took, len(calls))
                for outputs, error in zip(served.outputs, errors, strict=True)
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
                failed = Result(None, self.failures.of(calls[0], raised), self._clock() - started, 1)
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
                return Result(None, self.failures.numeric(calls[index], port), took, len(calls))
            self._states.confirm(one for one in fresh if one.key in calls[index].states.values())
            return Result(given[index], None, took, len(calls))

        return [lambda index=index: result(index) for index in range(len(calls))]

    def _given(self, call: Call, ports: Outputs, lines: Lines) -> Outputs:
        wanted = self._host_ports(call)
        given = ((port, value) for port, value in ports.items() if port != FINITE)
        return {port: lines.to_host(value) if port in wanted else value for port, value in given}


def _place(call: Call, device: torch.device) -> None:
    for port, value in call.inputs.items():
        if isinstance(value, Tensor) and value.device != device:
            if value.device.type == "cpu" and value.dim() == 1 and not value.is_floating_point():
                call.host[port] = value
            call.inputs[port] = value.to(device, non_blocking=True)
