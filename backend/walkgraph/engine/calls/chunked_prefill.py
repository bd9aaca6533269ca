"""Splits long calls: a prefill is served over several forwards, between which other calls get theirs.

The parts of a call share its states, so the schedule keeps their order. The outputs are those of the last part. An
error in any part is the error of the call, and the parts after it are not computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from walkgraph.abi.calls import Call, Outputs
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.kv.paged_state import NOTHING, TokensRead
from walkgraph.errors import ErrorInfo


class Done(NamedTuple):
    """A call that succeeded or failed."""

    call: Call
    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    busy: float
    """Seconds of its forwards, each shared with the other calls of its batch."""
    queued: float
    """Seconds from `ready_at` to the first forward."""
    batch: int
    """Calls in its last forward."""
    read: TokensRead = NOTHING
    kept: bool = False
    """It was not made: its outputs are those of an earlier call."""
    links: tuple[float, ...] = ()
    """Seconds of the forwards of each call of a chain that was made."""


class Begun(NamedTuple):
    """A call in flight whose outputs may be given to other calls on this device: they are launched behind it. `Done`
    follows."""

    call: Call
    outputs: Outputs


class Forwarded(NamedTuple):
    """A finished batch of calls or parts of calls."""

    calls: Sequence[Call]
    ready: Sequence[float]
    """When each call could have been served first."""
    failed: tuple[int, ...]
    """Indices of the failed calls in `calls`."""
    timing: Timing


@dataclass(slots=True)
class _SplitCall:
    call: Call
    parts: list[Call]
    since: float = 0.0
    """When the part before was done."""
    busy: float = 0.0
    queued: float | None = None
    read: TokensRead = NOTHING


class SplitCalls:
    def __init__(self) -> None:
        self._wholes: dict[int, _SplitCall] = {}
        """By the `id` of each part, which the split call keeps alive."""

    def add(self, call: Call, parts: Sequence[Call]) -> None:
        """Add a call with its parts. If `call` is itself a part, they take its place."""
        whole = self._wholes.pop(id(call), None)
        if whole is None:
            whole = _SplitCall(call, list(parts))
        else:
            at = next(i for i, one in enumerate(whole.parts) if one is call)
            whole.parts[at : at + 1] = parts
        self._wholes.update({id(part): whole for part in parts})

    def has(self, call: Call) -> bool:
        """True if the call is a part of a split call."""
        return id(call) in self._wholes

    def ready_at(self, calls: Sequence[Call], finished: float) -> list[float]:
        """Note that a batch is over, so that the next parts may be served, and return when each of its calls could
        have been served: a part, when the part before it was done."""
        ready = [call.ready_at for call in calls]
        # Parts are rare.
        for row, call in enumerate(calls) if self._wholes else ():
            whole = self._wholes.get(id(call))
            if whole is not None:
                ready[row] = max(whole.since, whole.call.ready_at)
                whole.since = finished
        return ready

    def settle(self, done: Done) -> tuple[Done | None, Sequence[Call]]:
        """Take a part that is done. Returns the `Done` of the whole call if this part ends it, and the parts that need
        not be made any more."""
        whole = self._wholes.pop(id(done.call), None)
        if whole is None:
            return done, ()
        whole.busy += done.busy
        whole.read = whole.read.plus(done.read)
        whole.queued = done.queued if whole.queued is None else whole.queued
        if done.error is None and done.call is not whole.parts[-1]:
            return None, ()
        rest = [part for part in whole.parts if self._wholes.pop(id(part), None) is not None]
        return done._replace(call=whole.call, busy=whole.busy, queued=whole.queued, read=whole.read), rest

    def forget(self, parts: Sequence[Call]) -> list[Call]:
        """Forget these parts and return the calls they belong to, each once. Calls that are not parts are returned as
        they are."""
        wholes = [self._wholes.pop(id(part), None) for part in parts]
        calls = [part if whole is None else whole.call for part, whole in zip(parts, wholes, strict=True)]
        return list({id(call): call for call in calls}.values())
