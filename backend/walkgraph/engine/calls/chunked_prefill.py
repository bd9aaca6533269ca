"""Long calls in parts: a prefill that is served over several forwards, between which others get theirs.

Parts of a call share its states, so the schedule keeps their order. Outputs are the last part's; an error of any part
is the call's, and the parts after it are not made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from walkgraph.abi.calls import Call, Outputs
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.kv.paged_state import NOTHING, TokensRead
from walkgraph.errors import ErrorInfo


class Done(NamedTuple):
    """A call that was served or failed."""

    call: Call
    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    busy: float
    """Seconds of its forwards, shared with the other calls of the batches."""
    queued: float
    """Seconds from `ready_at` to the first forward."""
    batch: int
    """Calls in its last forward."""
    read: TokensRead = NOTHING


class Begun(NamedTuple):
    """A call that is in flight, whose outputs may be given to other calls of the device: these come behind it. `Done`
    follows."""

    call: Call
    outputs: Outputs


class Forwarded(NamedTuple):
    """A batch that is over, of calls or of parts of them."""

    calls: Sequence[Call]
    ready: Sequence[float]
    """When each could have been served."""
    failed: tuple[int, ...]
    """By their places among the calls."""
    timing: Timing


@dataclass(slots=True)
class _SplitCall:
    call: Call
    parts: list[Call]
    since: float = 0.0
    """The part before was done."""
    busy: float = 0.0
    queued: float | None = None
    read: TokensRead = NOTHING


class SplitCalls:
    def __init__(self) -> None:
        self._wholes: dict[int, _SplitCall] = {}
        """By the identity of each part, which the whole keeps alive."""

    def add(self, call: Call, parts: Sequence[Call]) -> None:
        """`call` may itself be a part: then these take its place."""
        whole = self._wholes.pop(id(call), None)
        if whole is None:
            whole = _SplitCall(call, list(parts))
        else:
            at = next(i for i, one in enumerate(whole.parts) if one is call)
            whole.parts[at : at + 1] = parts
        self._wholes.update({id(part): whole for part in parts})

    def has(self, call: Call) -> bool:
        """Whether it is a part."""
        return id(call) in self._wholes

    def ready_at(self, calls: Sequence[Call], finished: float) -> list[float]:
        """A batch is over, after which the next parts of those that are parts may be served; when each of these could:
        of a part, when the one before it was done."""
        ready = [call.ready_at for call in calls]
        # Hardly ever is there a part.
        for row, call in enumerate(calls) if self._wholes else ():
            whole = self._wholes.get(id(call))
            if whole is not None:
                ready[row] = max(whole.since, whole.call.ready_at)
                whole.since = finished
        return ready

    def settle(self, done: Done) -> tuple[Done | None, Sequence[Call]]:
        """What is done with this part, if anything, and the parts that are not to be made any more."""
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
        """The calls whose parts these are, each once; others as they are."""
        wholes = [self._wholes.pop(id(part), None) for part in parts]
        calls = [part if whole is None else whole.call for part, whole in zip(parts, wholes, strict=True)]
        return list({id(call): call for call in calls}.values())
