"""One clock for the times of all hosts: that of the service's host.

    conductor   Ping ──> rank ──> Pong     HostClocks: each round trip bounds the offset of the rank's host
    rank        told its HostClock by the next Ping, it changes the times of its events as they leave

A rank reads its clock after the ping was sent and before its answer came. So the offset of its host lies between two
numbers, as far apart as the round trip was long, whatever each direction took. Of the round trips of a minute the
shortest ones count, and with them all lines (an offset that drifts) that pass between the numbers of each: the middle
one is the estimate, and half of their width is its error bound. No line passes where a clock has jumped; then older
round trips are forgotten until one does.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from walkgraph.telemetry import events as e
from walkgraph.wire.processes.host_clocks import Alignment, HostClock

SLOT_SECONDS = 4.0
"""Of the round trips in such a time, the shortest is kept."""
SLOTS = 15
"""The most round trips that are kept."""
MOST_DRIFT = 1e-4
"""Clocks of two hosts drift apart by no more: quartz is 50 ppm off at most. One that is corrected faster looks like one
that jumps."""
WANDER = 2e-7
"""Change of the drift within the time of all slots: from warmth, and from corrections by NTP."""
SLACK = 1.5
"""An estimate is kept until its bound is so many times that of a new one, so that times don't step without need."""
MOST_ASKED = 1024
"""Pings without an answer whose times are known; older ones would tell nothing."""


class RoundTrip(NamedTuple):
    at: float
    """A time of the other host; the offset then was between:"""
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class _Lines(NamedTuple):
    """Bounds of all lines that pass through round trips."""

    at: float
    low: float
    high: float
    drift_low: float
    drift_high: float


class OffsetEstimate:
    """The clock of one host, from round trips to it."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._trips: list[RoundTrip] = []
        """By time, at most one a slot."""
        self._clock: HostClock | None = None

    @property
    def clock(self) -> HostClock | None:
        """None before the first round trip."""
        return self._clock

    def measure(self, sent: float, at: float, heard: float) -> None:
        """Take a round trip. `at`: the other host's clock after `sent` and before `heard`, times of this one."""
        new = RoundTrip(at, sent - at, heard - at)
        if not (math.isfinite(new.width) and new.width >= 0):
            return
        trips = sorted([*self._trips, new])
        while (lines := _lines(trips)) is None:
            trips.remove(next(trip for trip in trips if trip is not new))
        self._trips = _thinned(trips)
        self._clock = self._kept(lines)

    def _kept(self, lines: _Lines) -> HostClock:
        """The former estimate with its present bound, or a new one."""
        middle, drift = (lines.low + lines.high) / 2, (lines.drift_low + lines.drift_high) / 2
        if (old := self._clock) is not None:
            offset = old.here(lines.at) - lines.at
            if _bound(offset, lines.low, lines.high) <= SLACK * _bound(middle, lines.low, lines.high):
                middle, drift = offset, old.drift
        return HostClock(
            host=self._host,
            at=lines.at,
            offset=middle,
            drift=drift,
            error=_bound(middle, lines.low, lines.high),
            drift_error=_bound(drift, lines.drift_low, lines.drift_high) + WANDER,
        )


class HostClocks:
    """The clocks of the hosts of a deployment's ranks. A host's clock is one for all its ranks."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[str, float]] = {}
        """Number of a ping -> the host, and the time at which it was sent."""
        self._estimates: dict[str, OffsetEstimate] = {}

    def clock(self, host: str) -> HostClock | None:
        """None where it is not known yet."""
        found = self._estimates.get(host)
        return found and found.clock

    def asked(self, number: int, host: str, now: float) -> None:
        self._asked[number] = host, now
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]

    def answered(self, number: int, at: float, now: float) -> None:
        """Take the answer to a ping. `at`: the host's clock when it was read."""
        if (asked := self._asked.pop(number, None)) is not None:
            host, sent = asked
            self._estimates.setdefault(host, OffsetEstimate(host)).measure(sent, at, now)


class EventClock(Protocol):
    """Changes times of events into times of the service's host."""

    @property
    def known(self) -> bool:
        """False while events can't leave."""
        ...

    def tell(self, clock: HostClock) -> None: ...

    def align(self, events: Sequence[e.Any], now: float) -> tuple[Sequence[e.Any], Alignment | None]:
        """The events as they leave, and what was done to their times."""
        ...


class OwnClock:
    """Leaves times as they are: those of a process on the service's host."""

    known = True

    def tell(self, clock: HostClock) -> None:
        return

    def align(self, events: Sequence[e.Any], now: float) -> tuple[Sequence[e.Any], Alignment | None]:
        return events, None


class FarClock:
    """That of a rank on another host, which is told what its clock is."""

    def __init__(self) -> None:
        self._clock: HostClock | None = None

    @property
    def known(self) -> bool:
        return self._clock is not None

    def tell(self, clock: HostClock) -> None:
        self._clock = clock

    def align(self, events: Sequence[e.Any], now: float) -> tuple[Sequence[e.Any], Alignment | None]:
        clock = self._clock
        if clock is None:
            return events, None
        first = min((_first(event) for event in events), default=now)
        error = max(clock.error_at(first), clock.error_at(now))
        return [moved(event, clock) for event in events], Alignment(clock.host, clock.here(now) - now, error)


def moved(event: e.Any, clock: HostClock) -> e.Any:
    """An event of another host with its times as times of the service's."""
    times = {name: clock.here(getattr(event, name)) for name in TIMES[type(event)]}
    match event:
        case e.Forward() | e.Launch():
            return replace(event, ready=tuple(map(clock.here, event.ready)), **times)
        case e.LoopEnded(work=e.LoopWork() as work):
            return replace(event, work=replace(work, began=clock.here(work.began)), **times)
        case _:
            return replace(event, **times)


TIMES: dict[type[e.Any], tuple[str, ...]] = {
    e.RunPhase: ("at",),
    e.RunPasses: ("at",),
    e.RunPart: ("received", "at"),
    e.Forward: ("taken", "launched", "started", "finished"),
    e.Launch: ("taken", "launched", "started", "finished"),
    e.ShardWork: ("started", "finished"),
    e.Activity: ("launched", "finished"),
    e.Looping: ("at",),
    e.LoopEnded: ("at",),
    e.Kept: ("at",),
    e.TaskCalled: ("asked", "at"),
    e.Transfer: ("at",),
    e.Arrival: ("at",),
    e.RankGauge: ("at",),
    e.QueueGauge: ("at",),
    e.Sample: ("at",),
}
"""Fields that are single times. Forwards and launches also have `ready`, and the work of a loop has `began`."""


def _first(event: e.Any) -> float:
    """About the first of an event's times."""
    return getattr(event, TIMES[type(event)][0])


def _lines(trips: Sequence[RoundTrip]) -> _Lines | None:
    """The bounds of all lines through round trips in their order; None if there is no line."""
    drift_low, drift_high = -MOST_DRIFT, MOST_DRIFT
    for number, early in enumerate(trips):
        for late in trips[number + 1 :]:
            if (apart := late.at - early.at) > 0:
                drift_low = max(drift_low, (late.low - early.high) / apart - WANDER)
                drift_high = min(drift_high, (late.high - early.low) / apart + WANDER)
    at = trips[-1].at
    low = max(trip.low + (drift_low - WANDER) * (at - trip.at) for trip in trips)
    high = min(trip.high + (drift_high + WANDER) * (at - trip.at) for trip in trips)
    return _Lines(at, low, high, drift_low, drift_high) if drift_low <= drift_high and low <= high else None


def _thinned(trips: Iterable[RoundTrip]) -> list[RoundTrip]:
    """The shortest round trip of each slot, in order, of the last slots."""
    best: dict[int, RoundTrip] = {}
    for trip in trips:
        slot = math.floor(trip.at / SLOT_SECONDS)
        if slot not in best or trip.width < best[slot].width:
            best[slot] = trip
    return list(best.values())[-SLOTS:]


def _bound(value: float, low: float, high: float) -> float:
    return max(high - value, value - low)
