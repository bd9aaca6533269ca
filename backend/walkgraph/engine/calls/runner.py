"""Runs one batch: the forward, the search for the call at fault if it raises, and the check for finite numbers.

A batch is launched, then collected: on a GPU the host goes on meanwhile, and reads only what has been copied back.

This file holds what every forward needs, and nothing about single models, kinds of nodes or scheduling.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Call, Outputs, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.calls.digests import Digests
from walkgraph.engine.calls.finite import FiniteCheck, bad_on_host
from walkgraph.engine.calls.inflight import InFlightCall, Launched, Result
from walkgraph.engine.calls.readback import ReadBack
from walkgraph.engine.calls.threads import ThreadedWork, Threads
from walkgraph.engine.device.cuda_streams import HostCopies, Marks, sent_together
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.failures import Failures
from walkgraph.engine.kv.paged_state import NOTHING
from walkgraph.engine.kv.states import StateTable
from walkgraph.wire.fault_points import FaultPoints

_log = logging.getLogger(__name__)

_Computed = tuple[list[Outputs], dict[int, str]]
"""The outputs of calls that a thread has made, and what `bad_on_host` found in them."""
_SMALL = 1 << 16
"""The most bytes of any input that is kept in host memory too, where it came from."""


class Runner:
    def __init__(
        self,
        states: StateTable,
        rank: int,
        clock: Callable[[], float] = time.perf_counter,
        reads: Callable[[Call], ReadBack] = lambda call: {},
        marks: Marks | None = None,
        stamp: Callable[[torch.device], Mark | None] = lambda device: None,
        faults: FaultPoints | None = None,
        digested: Callable[[str], bool] = lambda node: True,
    ) -> None:
        """`reads`: gives what the host reads of a call. `marks`: makes the marks behind batches. `digested`: true for
        nodes whose outputs get digests."""
        self._states, self._clock, self._reads, self._stamp = states, clock, reads, stamp
        self.failures = Failures(states, rank)
        self._faults = faults
        self._copies = cache(partial(HostCopies, marks=marks))
        self.digests = Digests(digested)

    def launch(self, operator: Operator, device: torch.device, calls: Sequence[Call]) -> Launched:
        """Launch a batch. A failed call fails no other, and leaves no state behind."""
        copies = self._copies(device)
        under_way = self._launch(operator, device, calls, copies)
        stamp = self._stamp(device)
        given = [one.outputs for one in under_way]
        return Launched(copies.mark(), lambda: [one.result() for one in under_way], given, stamp)

    def made(self, operator: Operator, device: torch.device, calls: Sequence[Call]) -> list[Result]:
        """Make calls that the host's processor computes."""
        return [one.result() for one in self._launch(operator, device, calls, self._copies(device))]

    def start(self, threads: Threads, operator: Operator, device: torch.device, call: Call) -> Launched:
        """Let a thread make a call of a threaded operator."""
        started = self._clock()
        try:
            with inferring():
                self._prepare([call], device)
        except Exception as raised:  # noqa: BLE001 (as below)
            failed = Result(None, self.failures.of(call, raised), self._clock() - started, 1)
            return Launched(None, lambda: [failed], [None])
        transaction = self._states.transaction(operator)
        work = threads.start(partial(_computed, operator, [call], transaction))

        def results() -> list[Result]:
            return [one.result() for one in self._launch(operator, device, [call], self._copies(device), work)]

        return Launched(work.mark, results, [None], times=work.span)

    def launch_beside(
        self, captured: CapturedSteps, operator: Operator, device: torch.device, calls: Sequence[Call]
    ) -> Launched:
        """Launch captured steps for calls of one key; if that raises, launch the forward instead."""
        started = self._clock()
        try:
            with torch.inference_mode():
                served = captured.serve(operator, calls, self._reads)
        except Exception as raised:  # noqa: BLE001 (the forward finds which call is at fault)
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

        return Launched(served.mark, results, served.outputs)

    def _launch(
        self,
        operator: Operator,
        device: torch.device,
        calls: Sequence[Call],
        copies: HostCopies,
        made: ThreadedWork[_Computed] | None = None,
    ) -> list[InFlightCall]:
        """`made`: the forward, if a thread has done it."""
        started = self._clock()
        transaction = self._states.transaction(operator)
        try:
            with inferring():
                if made is None:
                    self._prepare(calls, device)
                outputs, on_host = (operator.forward(calls, transaction), None) if made is None else made.result()
                if len(outputs) != len(calls):
                    raise RuntimeError(f"{len(outputs)} outputs for {len(calls)} calls")
                bad = FiniteCheck(outputs, copies, on_host)
                given = self._given(calls, outputs, copies)
                if operator.pure:
                    for call, ports in zip(calls, given, strict=True):
                        self._note(operator, call, ports, copies)
        except Exception as raised:  # noqa: BLE001 (whatever a forward raises ends that run, never the rank)
            transaction.rollback()
            if len(calls) == 1:
                failed = Result(None, self.failures.of(calls[0], raised), self._clock() - started, 1)
                return [InFlightCall(None, lambda: failed)]
            half = len(calls) // 2
            first = self._launch(operator, device, calls[:half], copies)
            return first + self._launch(operator, device, calls[half:], copies)
        last = _last_on_states(calls)
        read = [transaction.read(call) if alone else NOTHING for call, alone in zip(calls, last, strict=True)]
        fresh = transaction.settle()
        busy = None if copies.asynchronous else self._clock() - started
        if made is not None:
            began, ended = made.span()
            busy = ended - began

        def result(index: int) -> Result:
            took = (self._clock() - started if busy is None else busy) if last[index] else 0.0
            port = bad.port(index)
            if port is not None:
                return Result(None, self.failures.numeric(calls[index], port), took, len(calls))
            if fresh:
                self._states.confirm(one for one in fresh if one.key in calls[index].states.values())
            return Result(given[index], None, took, len(calls), read[index])

        return [InFlightCall(one, partial(result, index)) for index, one in enumerate(given)]

    def _prepare(self, calls: Sequence[Call], device: torch.device) -> None:
        if self._faults is not None:
            _reach(self._faults)
        self.digests.watch(calls)
        _place(calls, device, self.digests)

    def _note(self, operator: Operator, call: Call, outputs: Outputs, copies: HostCopies) -> None:
        """Note what the outputs of a deterministic call follow from, and begin to copy those that are to be kept."""
        self.digests.note(operator, call, outputs)
        if call.content is not None and copies.asynchronous:
            call.copies = {port: copies.to_host(value) for port, value in outputs.items()}

    def _given(self, calls: Sequence[Call], outputs: Sequence[Outputs], copies: HostCopies) -> list[Outputs]:
        """The outputs of each call, in host memory those that are read there."""
        given = [{port: value for port, value in ports.items() if port != FINITE} for ports in outputs]
        if not copies.asynchronous:
            return given
        read = [
            (ports, port, dtype)
            for call, ports in zip(calls, given, strict=True)
            for port, dtype in self._reads(call).items()
            if port in ports
        ]
        for (ports, port, _), value in zip(
            read, copies.all_to_host([(ports[port], dtype) for ports, port, dtype in read]), strict=True
        ):
            ports[port] = value
        return given


def _last_on_states(calls: Sequence[Call]) -> list[bool]:
    """True for a call whose states no later call of the batch has. It has the time and the tokens of those before."""
    found, seen = [True] * len(calls), set[StateKey]()
    for at in reversed(range(len(calls))):
        states = calls[at].states.values()
        found[at] = seen.isdisjoint(states)
        seen.update(states)
    return found


def _computed(operator: Operator, calls: Sequence[Call], states: States) -> _Computed:
    with torch.inference_mode():
        outputs = operator.forward(calls, states)
        return outputs, bad_on_host(outputs)


def inferring() -> AbstractContextManager[object]:
    """Inference mode, entered once: each entry takes as long as a small node."""
    return nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode()


def _is_numbers(value: Tensor) -> bool:
    return value.dim() == 1 and not value.is_floating_point()


def _reach(faults: FaultPoints) -> None:
    if faults.due("allocate.tensors"):
        raise torch.OutOfMemoryError("a fault was set here")
    if faults.due("launch.batch"):
        raise RuntimeError("a fault was set here")


def _place(calls: Sequence[Call], device: torch.device, digests: Digests) -> None:
    """Bring the inputs of calls to the device."""
    away = [
        (call, port, value)
        for call in calls
        for port, value in call.inputs.items()
        if isinstance(value, Tensor) and value.device != device
    ]
    copies = sent_together([value for _, _, value in away], device)
    for (call, port, value), copy in zip(away, copies, strict=True):
        if value.device.type == "cpu" and (value.nbytes <= _SMALL or _is_numbers(value)):
            call.host[port] = value
        call.inputs[port] = copy
        digests.same(value, copy)
