"""Runs one batch: the forward, whose fault it was if it raised, and whether the numbers are finite.

What may enter this file: what every forward needs. What may not: names of models, kinds of nodes, scheduling.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.pages import OutOfPages
from walkgraph.engine.states import StateTable
from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.networks.base import Call, CallFailed, Operator, Outputs

_log = logging.getLogger(__name__)


class Result(NamedTuple):
    """Of one call."""

    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    busy: float
    """Seconds of the forward that served or failed it, shared with the other calls of its batch."""
    batch: int
    """Calls in that forward."""


class Runner:
    def __init__(self, states: StateTable, rank: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._states, self._rank, self._clock = states, rank, clock

    def run(self, operator: Operator, device: torch.device, calls: Sequence[Call]) -> list[Result]:
        """A result per call, in order. A call that fails takes no other with it, and leaves no state behind."""
        started = self._clock()
        transaction = self._states.transaction()
        try:
            with torch.inference_mode():
                for call in calls:
                    _place(call, device)
                outputs = operator.forward(calls, transaction)
                if len(outputs) != len(calls):
                    raise RuntimeError(f"{len(outputs)} outputs for {len(calls)} calls")
                bad = _not_finite(outputs)
        except Exception as raised:  # noqa: BLE001 (whatever a forward raises ends that run, never the rank)
            transaction.rollback()
            if len(calls) == 1:
                return [Result(None, self.failed(calls[0], raised), self._clock() - started, 1)]
            half = len(calls) // 2
            return self.run(operator, device, calls[:half]) + self.run(operator, device, calls[half:])
        transaction.settle()
        busy = self._clock() - started
        return [
            Result(None, self._numeric(call, bad[i]), busy, len(calls))
            if i in bad
            else Result(outputs[i], None, busy, len(calls))
            for i, call in enumerate(calls)
        ]

    def failed(self, call: Call, raised: Exception) -> ErrorInfo:
        """What the client learns of an exception: our own sentence, never a foreign one's text."""
        if isinstance(raised, CallFailed):
            return self._error(call, raised.code, str(raised), raised.port)
        if isinstance(raised, OutOfPages):
            return self._error(call, "out_of_memory", str(raised))
        if is_memory(raised):
            advice = "ask for less, or try again when other runs have ended"
            return self._error(call, "out_of_memory", f"`{call.node}` needs more memory than its rank has; {advice}")
        _log.error("node `%s` failed in run %s at %s", call.node, call.run, call.iteration, exc_info=raised)
        where = f"the log of rank {self._rank} says where, under this run's id"
        return self._error(call, "node_error", f"`{call.node}` failed; {where}")

    def _numeric(self, call: Call, port: str) -> ErrorInfo:
        where = f" at iteration {list(call.iteration)}" if call.iteration else ""
        message = f"`{call.node}.{port}` gave NaN or infinite numbers{where}; check its inputs and parameters"
        return self._error(call, "numeric_error", message, port)

    def _error(self, call: Call, code: ErrorCode, message: str, port: str | None = None) -> ErrorInfo:
        return ErrorInfo(
            code=code,
            message=message,
            node=call.node,
            port=port,
            walk=call.walk,
            iteration=call.iteration,
            rank=self._rank,
            retryable=code == "out_of_memory",
        )


def _place(call: Call, device: torch.device) -> None:
    for port, value in call.inputs.items():
        if isinstance(value, Tensor) and value.device != device:
            call.inputs[port] = value.to(device, non_blocking=True)


def is_memory(raised: Exception) -> bool:
    """Whether memory ran out, on the host or on a device."""
    # The CPU allocator of torch raises a plain RuntimeError, which only its own name tells from others.
    allocator = isinstance(raised, RuntimeError) and "DefaultCPUAllocator" in str(raised)
    return allocator or isinstance(raised, (MemoryError, torch.OutOfMemoryError))


def _not_finite(outputs: Sequence[Outputs]) -> dict[int, str]:
    """Call index -> its first port with a NaN or infinity. One small reduction per tensor, one read per device."""
    floats = [(i, port, value) for i, ports in enumerate(outputs) for port, value in ports.items() if _is_float(value)]
    sums: dict[torch.device, list[Tensor]] = {}
    bad: dict[int, str] = {}
    for i, port, value in floats:
        if isinstance(value, Tensor):
            sums.setdefault(value.device, []).append(value.sum(dtype=torch.float64))
        elif not math.isfinite(value):
            bad.setdefault(i, port)
    if all(bool(torch.stack(found).isfinite().all()) for found in sums.values()):
        return bad
    for i, port, value in floats:
        if isinstance(value, Tensor) and not bool(value.isfinite().all()):
            bad.setdefault(i, port)
    return bad


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())
