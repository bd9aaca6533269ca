"""Times of a device's work, on the host's monotonic clock.

A device stamps events with a clock of its own. The offset between the two clocks is never asked of the device, because
that would mean waiting for it. It is bounded by what is known of each event anyway: the device stamped it after the
host recorded it, and before the host saw it reached.

    recorded <= device time + offset <= seen

Events on an otherwise idle stream are stamped at once: these *anchors* give the lower bound. The upper bound is late by
as much as the host looks late. Clocks drift apart, so bounds widen as they age.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from walkgraph.engine.device.marks import Mark
from walkgraph.engine.device.outside import AskedMark, Firsthand, Outside

ANCHOR_SECONDS = 0.1
"""Seconds between anchors while something is launched. Short, because a span of a device's clock is given in
milliseconds as float32."""
DRIFT = 30e-6
"""The most seconds that the clocks drift apart in one second."""
LATENCY = 5e-6
"""Usual seconds from recording an event on an idle stream to its stamp."""
LONG_SECONDS = 50e-6
"""Seconds after which a record counts as interrupted."""
MOST_SPANS = 4096


class TimedEvent(Protocol):
    """The interface of `torch.cuda.Event`."""

    def record(self, stream: Any = None) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to `end_event`; both must have been reached."""
        ...


class ClockOffset:
    """The offset from a device's clock to the host's, as a lower and an upper bound."""

    def __init__(self) -> None:
        self._low, self._high, self._at = float("-inf"), float("inf"), 0.0

    def bound(self, device: float, recorded: float, seen: float) -> None:
        """Narrow the bounds by an event stamped with `device`, not before `recorded` and not after `seen`."""
        low, high, age = recorded - device, seen - device, abs(device - self._at) * DRIFT
        before, after = self._low - age, self._high + age
        # If the bounds contradict each other, the clocks drifted faster than assumed, and the newest bounds hold.
        self._low, self._high = max(min(before, high), low), min(max(after, low), high)
        self._at = device

    def host(self, device: float) -> float:
        """The host's time at a device's time."""
        return device + self._low + min(LATENCY, (self._high - self._low) / 2)


class DeviceClock:
    """Translates the times of one device's events. Used by one thread."""

    def __init__(
        self, make: Callable[[], TimedEvent], anchors: Any, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`make`: makes a timed event. `anchors`: a stream that nothing else is launched on."""
        self._make, self._anchors, self._clock = make, anchors, clock
        self._offset = ClockOffset()
        self._pool: list[TimedEvent] = []
        self._anchor: TimedEvent | None = None
        """The latest anchor reached; `_base` is its time on the device's clock, in seconds."""
        self._base = 0.0
        self._next: tuple[TimedEvent, float] | None = None
        """An anchor that may not be reached yet, and when it was recorded."""
        self._anchored = float("-inf")

    def record(self, stream: Any) -> tuple[TimedEvent, float]:
        """Record an event behind everything launched on the stream. Returns it with the time of its recording."""
        now = self._look(self._clock())
        return self._recorded(stream), now

    def give(self, event: TimedEvent) -> None:
        """Return an event for reuse."""
        self._pool.append(event)

    def told(self, event: TimedEvent, recorded: float) -> float:
        """When an event was reached, on the host's clock. It must have been reached."""
        seen = self._clock()
        self._move(seen)
        self._look(seen)
        if self._anchor is None:
            return seen
        device = self._base + self._anchor.elapsed_time(event) / 1000
        self._offset.bound(device, recorded, seen)
        return self._offset.host(device)

    def _look(self, now: float) -> float:
        """Record an anchor if one is due. Returns the time now."""
        if self._next is not None or now - self._anchored < ANCHOR_SECONDS:
            return now
        self._next = self._recorded(self._anchors), now
        done = self._clock()
        # If the host was interrupted, the anchor says little: take another one soon.
        self._anchored = now if done - now < LONG_SECONDS else float("-inf")
        return done

    def _move(self, seen: float) -> None:
        """Go on to the next anchor if it was reached."""
        if self._next is None or not self._next[0].query():
            return
        (event, recorded), self._next = self._next, None
        if self._anchor is not None:
            # Rounded to 24 bits: an error smaller than the drift meanwhile.
            self._base += self._anchor.elapsed_time(event) / 1000
            self._pool.append(self._anchor)
        self._anchor = event
        self._offset.bound(self._base, recorded, seen)

    def _recorded(self, stream: Any) -> TimedEvent:
        event = self._pool.pop() if self._pool else self._make()
        event.record(stream)
        return event


class StreamTrack:
    """The launches on one stream, in order."""

    def __init__(self, clock: DeviceClock, stream: Any = None) -> None:
        """`stream`: None for the current stream."""
        self._clock, self._stream = clock, stream
        self._last: Stamp | None = None

    def stamp(self) -> "Stamp":
        """Record a stamp behind a launch."""
        event, recorded = self._clock.record(self._stream)
        self._last = Stamp(self, event, recorded, self._last)
        return self._last

    def finished(self, stamp: "Stamp") -> float:
        if stamp.finished is None:
            stamp.finished = self._clock.told(stamp.event, stamp.recorded)
        return stamp.finished

    def span(self, stamp: "Stamp", began: float) -> tuple[float, float]:
        """When the launch before a reached stamp started and finished. It starts when the host begins to launch it,
        but not before the launch ahead of it has finished. Call it once for each stamp."""
        finished = self.finished(stamp)
        if stamp.before is not None:
            began = max(began, self.finished(stamp.before))
        stamp.before = None
        self._clock.give(stamp.event)
        return min(began, finished), finished


class Stamp:
    """An event of a track whose time will be needed. It is a `device.Mark`."""

    __slots__ = ("before", "event", "finished", "query", "recorded", "synchronize", "track", "wait")

    def __init__(self, track: StreamTrack, event: TimedEvent, recorded: float, before: "Stamp | None") -> None:
        """`before`: the stamp before it on the track."""
        self.track, self.event, self.recorded, self.before = track, event, recorded, before
        self.query, self.synchronize, self.wait = event.query, event.synchronize, event.wait
        self.finished: float | None = None


class BusyTime:
    """The share of time in which a device had work."""

    def __init__(self, now: float = 0.0) -> None:
        self._spans: list[tuple[float, float]] = []
        self._covered = self._asked = now
        self._sum = 0.0

    def add(self, started: float, finished: float) -> None:
        """Add a span; spans may overlap and come in any order."""
        self._spans.append((started, finished))
        if len(self._spans) >= MOST_SPANS:
            self._settle()

    def share(self, now: float, since: float | None) -> float:
        """The busy share of the time since the last call, 0 to 1. `since`: when the oldest work in flight was
        launched; None if there is none."""
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
    """The clock of a GPU."""
    # `blocking`: a wait must leave the core to others. Priority -1: anchors wait behind no kernels.
    make = lambda: torch.cuda.Event(enable_timing=True, blocking=True)  # noqa: E731
    return DeviceClock(make, torch.cuda.Stream(device, priority=-1), clock)


class Stopwatch:
    """Times the work of a rank's devices while it is on. A CPU is timed by the host's clock: its launches are over
    when the host returns from them."""

    def __init__(
        self, device: torch.device, clock: Callable[[], float] = time.monotonic, outside: Outside | None = None
    ) -> None:
        """`device`: the rank's device, whose busy time counts. `outside`: answers what choices follow from."""
        self.on = False
        self.busy = BusyTime()
        self._device, self._clock, self._outside = device, clock, outside or Firsthand(clock)
        self._clocks: dict[torch.device, DeviceClock] = {}
        self._tracks: dict[tuple[torch.device, Any], StreamTrack] = {}

    def switch(self, *, on: bool) -> None:
        if on and not self.on:
            self.busy = BusyTime(self._clock())
        self.on = on

    def share(self, since: float | None) -> float:
        """The busy share of the time since the last call, 0 to 1. `since`: when the oldest work in flight was launched;
        None if there is none."""
        return self.busy.share(self._clock(), since)

    def mark(self, device: torch.device, stream: "torch.cuda.Stream | None" = None) -> Mark:
        """Mark the end of everything launched on a GPU's stream; the mark is a stamp while the watch is on. `stream`:
        None for the current stream."""
        if self.on:
            return self._outside.mark(self._track(device, stream).stamp())
        event = torch.cuda.Event(blocking=True)
        event.record(stream)
        return self._outside.mark(event)

    def stamp(self, device: torch.device) -> Stamp | None:
        """Stamp the current stream; None if the watch is off or the device is a CPU."""
        return self._track(device, None).stamp() if self.on and device.type == "cuda" else None

    def span(self, device: torch.device, mark: object, began: float, now: float) -> tuple[float, float]:
        """When a launch started and finished. `mark`: a reached mark behind it. `began`, `now`: when the host began to
        launch it, and when it saw the end; these are returned if the mark is no stamp."""
        stamp = mark.own if isinstance(mark, AskedMark) else mark
        if isinstance(stamp, Stamp) and stamp.query():
            began, now = stamp.track.span(stamp, began)
        if device.type == self._device.type:
            self.busy.add(began, now)
        return self._outside.span(began, now)

    def _track(self, device: torch.device, stream: "torch.cuda.Stream | None") -> StreamTrack:
        track = self._tracks.get((device, stream))
        if track is None:
            if device not in self._clocks:
                self._clocks[device] = device_clock(device, self._clock)
            track = self._tracks[device, stream] = StreamTrack(self._clocks[device], stream)
        return track
