"""When work was done, as the host's monotonic clock tells it.

A device stamps events with a clock of its own. Where that stands on the host's is never asked of the device, which
would have to be waited for; it is bound by what is known of each event anyway: it was not stamped before the host
recorded it, and was stamped when the host saw it reached.

    recorded <= device time + offset <= seen

Events on a stream that has nothing else to do are stamped at once: these *anchors* are what the lower bound is from.
The upper one is late by as much as the host looks late. Clocks drift apart, so that bounds widen as they grow old.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from walkgraph.engine.device.marks import Mark

ANCHOR_SECONDS = 0.1
"""From one anchor to the next, while something is launched: spans of a device's clock are told in ms as float32."""
DRIFT = 30e-6
"""Seconds by which the clocks may part in one."""
LATENCY = 5e-6
"""From recording an event on an idle stream to its stamp, usually."""
LONG_SECONDS = 50e-6
"""No record takes so long."""
MOST_SPANS = 4096


class TimedEvent(Protocol):
    """As `torch.cuda.Event` is."""

    def record(self, stream: Any = None) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this one to that one, both reached."""
        ...


class ClockOffset:
    """Of a device's clock to the host's, within bounds."""

    def __init__(self) -> None:
        self._low, self._high, self._at = float("-inf"), float("inf"), 0.0

    def bound(self, device: float, recorded: float, seen: float) -> None:
        """Something was stamped with `device`, not before `recorded` and not after `seen`."""
        low, high, age = recorded - device, seen - device, abs(device - self._at) * DRIFT
        before, after = self._low - age, self._high + age
        # Where they contradict each other, the clocks have parted faster, and what is newest holds.
        self._low, self._high = max(min(before, high), low), min(max(after, low), high)
        self._at = device

    def host(self, device: float) -> float:
        """When it was for the host."""
        return device + self._low + min(LATENCY, (self._high - self._low) / 2)


class DeviceClock:
    """Of one device, on one thread."""

    def __init__(
        self, make: Callable[[], TimedEvent], anchors: Any, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`make`: an event that is timed. `anchors`: a stream that nothing else is launched on."""
        self._make, self._anchors, self._clock = make, anchors, clock
        self._offset = ClockOffset()
        self._pool: list[TimedEvent] = []
        self._anchor: TimedEvent | None = None
        """The latest that was reached, and its time."""
        self._base = 0.0
        self._next: tuple[TimedEvent, float] | None = None
        """One that may not be reached yet, and when it was recorded."""
        self._anchored = float("-inf")

    def record(self, stream: Any) -> tuple[TimedEvent, float]:
        """An event behind all that was launched on the stream, and when it was recorded."""
        now = self._look(self._clock())
        return self._recorded(stream), now

    def give(self, event: TimedEvent) -> None:
        """It may be used again."""
        self._pool.append(event)

    def told(self, event: TimedEvent, recorded: float) -> float:
        """When an event was reached, as it has been."""
        seen = self._clock()
        self._move(seen)
        self._look(seen)
        if self._anchor is None:
            return seen
        device = self._base + self._anchor.elapsed_time(event) / 1000
        self._offset.bound(device, recorded, seen)
        return self._offset.host(device)

    def _look(self, now: float) -> float:
        """Record an anchor, if it is time; what time it is now."""
        if self._next is not None or now - self._anchored < ANCHOR_SECONDS:
            return now
        self._next = self._recorded(self._anchors), now
        done = self._clock()
        # The host was interrupted: it says little.
        self._anchored = now if done - now < LONG_SECONDS else float("-inf")
        return done

    def _move(self, seen: float) -> None:
        """On to the next anchor, if it was reached."""
        if self._next is None or not self._next[0].query():
            return
        (event, recorded), self._next = self._next, None
        if self._anchor is not None:
            # Rounded to 24 bits, which is less than clocks may part meanwhile.
            self._base += self._anchor.elapsed_time(event) / 1000
            self._pool.append(self._anchor)
        self._anchor = event
        self._offset.bound(self._base, recorded, seen)

    def _recorded(self, stream: Any) -> TimedEvent:
        event = self._pool.pop() if self._pool else self._make()
        event.record(stream)
        return event


class StreamTrack:
    """What is launched on one stream, one after the other."""

    def __init__(self, clock: DeviceClock, stream: Any = None) -> None:
        """`stream`: None for the one that is current."""
        self._clock, self._stream = clock, stream
        self._last: Stamp | None = None

    def stamp(self) -> "Stamp":
        """Behind a launch."""
        event, recorded = self._clock.record(self._stream)
        self._last = Stamp(self, event, recorded, self._last)
        return self._last

    def finished(self, stamp: "Stamp") -> float:
        if stamp.finished is None:
            stamp.finished = self._clock.told(stamp.event, stamp.recorded)
        return stamp.finished

    def span(self, stamp: "Stamp", began: float) -> tuple[float, float]:
        """When the launch before a stamp that was reached has started and finished: it starts when the host has begun
        to launch it, but not before what was launched before it has finished. Asked once of each."""
        finished = self.finished(stamp)
        if stamp.before is not None:
            began = max(began, self.finished(stamp.before))
        stamp.before = None
        self._clock.give(stamp.event)
        return min(began, finished), finished


class Stamp:
    """An event of a track, whose time will be asked for. It is a `device.Mark`."""

    __slots__ = ("before", "event", "finished", "query", "recorded", "synchronize", "track", "wait")

    def __init__(self, track: StreamTrack, event: TimedEvent, recorded: float, before: "Stamp | None") -> None:
        """`before`: the one before it on the track."""
        self.track, self.event, self.recorded, self.before = track, event, recorded, before
        self.query, self.synchronize, self.wait = event.query, event.synchronize, event.wait
        self.finished: float | None = None


class BusyTime:
    """How much of the time a device had work."""

    def __init__(self, now: float = 0.0) -> None:
        self._spans: list[tuple[float, float]] = []
        self._covered = self._asked = now
        self._sum = 0.0

    def add(self, started: float, finished: float) -> None:
        """Spans may overlap, and come in any order."""
        self._spans.append((started, finished))
        if len(self._spans) >= MOST_SPANS:
            self._settle()

    def share(self, now: float, since: float | None) -> float:
        """Of the time since the last call. `since`: what is under way was launched then; None: nothing is."""
        if since is not None:
            self._spans.append((since, now))
        self._settle()
        found, passed = self._sum, now - self._asked
        self._sum, self._asked = 0.0, now
        return min(1.0, found / passed) if passed > 0 else 0.0

    def _settle(self) -> None:
        for started, finished in sorted(self._spans):
            if finished > self._covered:
                self._sum += finished - max(started, self._covered)
                self._covered = finished
        self._spans.clear()


def device_clock(device: torch.device, clock: Callable[[], float] = time.monotonic) -> DeviceClock:
    """Of a GPU."""
    # Waiting for an event must leave the core to others; anchors wait behind nobody's kernels.
    make = lambda: torch.cuda.Event(enable_timing=True, blocking=True)  # noqa: E731
    return DeviceClock(make, torch.cuda.Stream(device, priority=-1), clock)


class Stopwatch:
    """Times the work of a rank's devices while it is on. On a CPU, where a launch is over once the host has done it,
    the host's clock is all there is."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        """`device`: whose busy time counts, that of the rank."""
        self.on = False
        self.busy = BusyTime()
        self._device, self._clock = device, clock
        self._clocks: dict[torch.device, DeviceClock] = {}
        self._tracks: dict[tuple[torch.device, Any], StreamTrack] = {}

    def switch(self, *, on: bool) -> None:
        if on and not self.on:
            self.busy = BusyTime(self._clock())
        self.on = on

    def mark(self, device: torch.device, stream: "torch.cuda.Stream | None" = None) -> Mark:
        """Behind all that was launched on a GPU's stream: a stamp, where the watch is on. `stream`: None for the one
        that is current."""
        if self.on:
            return self._track(device, stream).stamp()
        event = torch.cuda.Event(blocking=True)
        event.record(stream)
        return event

    def stamp(self, device: torch.device) -> Stamp | None:
        """On the current stream; None where there is no need for it."""
        return self._track(device, None).stamp() if self.on and device.type == "cuda" else None

    def span(self, device: torch.device, mark: object, began: float, now: float) -> tuple[float, float]:
        """When a launch has started and finished. `mark`: behind it, and reached. `began`, `now`: when the host has
        begun to launch it, and knows that it is over; the best there is, where the mark is no stamp."""
        if isinstance(mark, Stamp) and mark.query():
            began, now = mark.track.span(mark, began)
        if device.type == self._device.type:
            self.busy.add(began, now)
        return began, now

    def _track(self, device: torch.device, stream: "torch.cuda.Stream | None") -> StreamTrack:
        track = self._tracks.get((device, stream))
        if track is None:
            if device not in self._clocks:
                self._clocks[device] = device_clock(device, self._clock)
            track = self._tracks[device, stream] = StreamTrack(self._clocks[device], stream)
        return track
