"""How events leave a process: one call on the hot path, a bounded buffer, a send that never waits.

The owner of the loop calls `flush` where it costs nothing (between steps, when idle), and waits no longer than `wait`
says. Events that can't be sent at once, because the reader is slow or gone, are dropped and counted.

Events are gathered for an INTERVAL from the first on: a short request is told of once, behind its work.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from walkgraph.telemetry import events as e
from walkgraph.telemetry.clocks import EventClock, OwnClock
from walkgraph.wire.processes.host_clocks import Alignment, HostClock
from walkgraph.wire.watching import Level

CAPACITY = 4096
"""Events held between two flushes."""
CAPACITY_BYTES = 2 * 1024 * 1024
"""Approximate bytes of events held between two flushes."""
INTERVAL = 0.02
"""Seconds for which a packet's events are gathered."""
PACKET_BYTES = 256 * 1024
"""Approximate bytes of a packet."""
_ROW_BYTES = 96
_EVENT_BYTES = 256


class Emitter(Protocol):
    @property
    def level(self) -> Level: ...

    @property
    def dropped(self) -> int:
        """Events that were never sent since the start."""
        ...

    def set_level(self, level: Level) -> None:
        """Set the level from now on; events already held still leave."""
        ...

    def tell(self, clock: HostClock) -> None:
        """Tell it the clock of its host, which is not the service's."""
        ...

    def rename(self, deployment: str, now: float) -> None:
        """Use another name for the events from now on; those already held leave under the former one."""
        ...

    def emit(self, event: e.Any) -> None:
        """Record an event. At level `off` only samples are taken, as somebody has asked for them."""
        ...

    def gather(self, now: float) -> float:
        """Begin to gather a packet, unless it has begun. Returns the seconds until it is due."""
        ...

    def wait(self, now: float) -> float | None:
        """Seconds until held events are due; None if there are none."""
        ...

    def flush(self, now: float, force: bool = False) -> None:
        """Send what there is, if it is due or forced."""
        ...


class Off:
    """Discards events where nobody reads them."""

    level: Level = "off"
    dropped = 0

    def set_level(self, level: Level) -> None:
        return

    def tell(self, clock: HostClock) -> None:
        return

    def rename(self, deployment: str, now: float) -> None:
        return

    def emit(self, event: e.Any) -> None:
        return

    def gather(self, now: float) -> float:
        return 0.0

    def wait(self, now: float) -> float | None:
        return None

    def flush(self, now: float, force: bool = False) -> None:
        return


class Buffered:
    def __init__(
        self,
        deployment: str,
        source: str,
        level: Level,
        send: Callable[[bytes], bool],
        clock: EventClock | None = None,
    ) -> None:
        """`send` must not wait; it returns False if it can't take the packet. `clock`: that of another host; None: it
        is the service's."""
        self.level: Level = level
        self.dropped = 0
        self._clock = clock or OwnClock()
        self._deployment, self._source, self._send = deployment, source, send
        self._events: list[e.Any] = []
        self._weights: list[int] = []
        self._bytes = 0
        self._number = 0
        self._began: float | None = None
        """The time at which the packet was begun; None if nothing is gathered."""

    def set_level(self, level: Level) -> None:
        self.level = level

    def tell(self, clock: HostClock) -> None:
        self._clock.tell(clock)

    def rename(self, deployment: str, now: float) -> None:
        self.flush(now, force=True)
        self._deployment = deployment

    def emit(self, event: e.Any) -> None:
        if self.level == "off" and not isinstance(event, e.Sample):
            return
        nbytes = weight(event)
        if len(self._events) >= CAPACITY or self._bytes + nbytes > CAPACITY_BYTES:
            self._lose(1)
            return
        self._events.append(event)
        self._weights.append(nbytes)
        self._bytes += nbytes

    def gather(self, now: float) -> float:
        if self._began is None:
            self._began = now
        return max(0.0, self._began + INTERVAL - now)

    def wait(self, now: float) -> float | None:
        return self.gather(now) if self._events and self._clock.known else None

    def flush(self, now: float, force: bool = False) -> None:
        if not self._events or (self.gather(now) and not force):
            return
        self._began = None
        if not self._clock.known:
            return
        weights = self._weights
        events, alignment = self._clock.align(self._events, now)
        self._events, self._weights, self._bytes = [], [], 0
        first = nbytes = 0
        for at, one in enumerate(weights):
            if nbytes and nbytes + one > PACKET_BYTES:
                self._post(events[first:at], alignment)
                first, nbytes = at, 0
            nbytes += one
        self._post(events[first:], alignment)

    def _post(self, events: Sequence[e.Any], alignment: Alignment | None) -> None:
        packet = e.Packet(
            deployment=self._deployment,
            source=self._source,
            first=self._number,
            dropped=self.dropped,
            wall=time.time() - time.monotonic(),
            events=tuple(events),
            clock=alignment,
        )
        frame = e.encode(packet)
        if len(frame) > e.MAX_BYTES and len(events) > 1:
            half = len(events) // 2
            self._post(events[:half], alignment)
            self._post(events[half:], alignment)
        elif len(frame) <= e.MAX_BYTES and self._send(frame):
            self._number += len(events)
        else:
            self._lose(len(events))

    def _lose(self, count: int) -> None:
        # Each dropped event uses a number, so that the reader sees the gap.
        self.dropped += count
        self._number += count


def weight(event: e.Any) -> int:
    """Approximate bytes of an event, an overestimate unless its names are long."""
    # Most of the thousands of events are activities: a look-up by type instead of a check for each kind.
    more = _MORE.get(type(event))
    return _EVENT_BYTES if more is None else _EVENT_BYTES + more(event)


def _rows_bytes(event: e.Forward | e.Launch | e.Looping) -> int:
    return _ROW_BYTES * len(event.runs)


def _sample_bytes(event: e.Sample) -> int:
    return _EVENT_BYTES + 9 * len(event.picked) + _preview_bytes(event.preview)


def _preview_bytes(preview: e.AnyPreview | None) -> int:
    match preview:
        case None:
            return 0
        case e.TextPreview():
            return 4 * len(preview.text)
        case e.NumbersPreview():
            return 9 * len(preview.values)
        case e.PicturePreview():
            return len(preview.rgb)
        case e.SoundPreview():
            return len(preview.pcm)
        case e.HeatPreview():
            return len(preview.cells)
        case e.MediaPreview():
            return len(preview.data)


_MORE: dict[type[e.Any], Callable[[Any], int]] = {
    e.Forward: _rows_bytes,
    e.Launch: _rows_bytes,
    e.Looping: _rows_bytes,
    e.Sample: _sample_bytes,
}
