"""How events leave a process: one call on the hot path, a bounded buffer, a send that never waits.

Whoever owns the loop calls `flush` where it costs nothing (between steps, when idle). What can't be sent at once,
because the reader is slow or gone, is dropped and counted.
"""

import time
from collections.abc import Callable
from typing import Literal, Protocol

from walkgraph.telemetry import events as e

CAPACITY = 2048
"""Events held between two flushes."""
INTERVAL = 0.05
"""Seconds between packets while nothing urges."""
PACKET_EVENTS = 1024

Level = Literal["summary", "full"]


class Emitter(Protocol):
    level: Level | None
    """None: off."""

    def emit(self, event: e.Any) -> None: ...

    def call(self, span: e.CallSpan, calls: int = 1, share: float = 1.0) -> None:
        """Calls have ended: their span is sent as it is on level `full`, folded into an `Activity` on `summary`, where
        `calls` of the node count, which took this share of the span."""
        ...

    def begin(self, activity: e.Activity) -> None:
        """Calls that nothing tells of until they have ended are under way; `activity` has none of them. On `summary`,
        sent unless they end before it is."""
        ...

    def flush(self, now: float, force: bool = False) -> None: ...

    @property
    def dropped(self) -> int: ...


class Off:
    """Telemetry switched off."""

    level: Level | None = None
    dropped = 0

    def emit(self, event: e.Any) -> None:
        return

    def call(self, span: e.CallSpan, calls: int = 1, share: float = 1.0) -> None:
        return

    def begin(self, activity: e.Activity) -> None:
        return

    def flush(self, now: float, force: bool = False) -> None:
        return


class Buffered:
    def __init__(self, deployment: str, source: str, level: Level, send: Callable[[bytes], bool]) -> None:
        """`send` must not wait; False: not taken."""
        self.level: Level | None = level
        self.dropped = 0
        self._deployment, self._source, self._send = deployment, source, send
        self._events: list[e.Any] = []
        self._folded: dict[tuple[str, str], e.Activity] = {}
        self._begun: dict[tuple[str, str], e.Activity] = {}
        self._number = 0
        self._last = 0.0

    def emit(self, event: e.Any) -> None:
        if len(self._events) >= CAPACITY:
            self._lose(1)
        else:
            self._events.append(event)

    def call(self, span: e.CallSpan, calls: int = 1, share: float = 1.0) -> None:
        if self.level == "full":
            self.emit(span)
            return
        key = (span.run, span.node)
        self._begun.pop(key, None)
        before = self._folded.get(key)
        if before is None and len(self._folded) >= CAPACITY:
            self._lose(1)
            return
        self._folded[key] = _fold(before, span, calls, share)

    def begin(self, activity: e.Activity) -> None:
        if self.level == "summary" and len(self._begun) < CAPACITY:
            self._begun[activity.run, activity.node] = activity

    def flush(self, now: float, force: bool = False) -> None:
        """Send what there is, at most once an INTERVAL unless forced."""
        if not force and now - self._last < INTERVAL:
            return
        self._last = now
        pending: list[e.Any] = [*self._events, *self._folded.values(), *self._begun.values()]
        self._events, self._folded, self._begun = [], {}, {}
        for at in range(0, len(pending), PACKET_EVENTS):
            self._post(tuple(pending[at : at + PACKET_EVENTS]))

    def _post(self, events: tuple[e.Any, ...]) -> None:
        packet = e.Packet(
            deployment=self._deployment,
            source=self._source,
            first=self._number,
            dropped=self.dropped,
            wall=time.time() - time.monotonic(),
            events=events,
        )
        if self._send(e.encode(packet)):
            self._number += len(events)
        else:
            self._lose(len(events))

    def _lose(self, count: int) -> None:
        # A number each, so that the reader sees the gap.
        self.dropped += count
        self._number += count


def _fold(before: e.Activity | None, span: e.CallSpan, calls: int, share: float) -> e.Activity:
    return e.Activity(
        run=span.run,
        rank=span.rank,
        node=span.node,
        walk=span.walk,
        iteration=span.iteration,
        calls=(before.calls if before else 0) + calls,
        busy=(before.busy if before else 0.0) + (span.finished - span.launched) * share,
        queued=(before.queued if before else 0.0) + (span.launched - span.ready) * share,
        launched=before.launched if before else span.launched,
        finished=span.finished,
        batch=max(before.batch if before else 0, span.batch),
    )
