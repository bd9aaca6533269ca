"""Times of a device are the host's to 50 us: a device is played, whose clock drifts, stamps late, and is seen late."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from walkgraph.engine.device.clocks import MOST_SPANS, BusyTime, ClockOffset, DeviceClock, Stamp, Stopwatch, StreamTrack

US = 1e-6
CPU = torch.device("cpu")


@dataclass
class Device:
    """Work of a stream goes on when what was launched there before is over."""

    seed: int
    drift: float = 0.0
    latency: float = 4 * US
    """Mean time of a stamp on an idle stream."""
    now: float = 5000.0
    """The host's."""
    free: dict[str | None, float] = field(default_factory=dict[str | None, float])
    made: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.epoch = self.draw.uniform(0, 1e5)

    def clock(self) -> float:
        self.now += 0.1 * US
        return self.now

    def event(self) -> Played:
        self.made += 1
        return Played(self)

    def own(self, host: float) -> float:
        """The device's clock, which counts from its start."""
        return self.epoch + (host - 5000.0) * (1 + self.drift)

    def launch(self, seconds: float, stream: str | None = None) -> tuple[float, float]:
        """True start and end."""
        started = max(self.now + self.draw.uniform(1, 4) * US, self.free.get(stream, 0.0))
        self.free[stream] = started + seconds
        return started, started + seconds


@dataclass
class Played:
    device: Device
    at: float = float("inf")
    """The host's time of the stamp."""

    def record(self, stream: str | None = None) -> None:
        device = self.device
        # The host may be interrupted between reading its clock and recording.
        device.now += device.draw.expovariate(1 / (1 * US)) + (device.draw.random() < 0.02) * 0.002
        late = device.draw.expovariate(1 / device.latency)
        self.at = max(device.now, device.free.get(stream, 0.0)) + late

    def query(self) -> bool:
        return self.device.now >= self.at

    def synchronize(self) -> None:
        self.device.now = max(self.device.now, self.at + self.device.draw.uniform(5, 60) * US)

    def wait(self, stream: object = None) -> None:
        raise AssertionError

    def elapsed_time(self, end_event: Played) -> float:
        assert self.query(), "events that were not reached have no time"
        assert end_event.query(), "events that were not reached have no time"
        own = [round(self.device.own(one.at) / (0.5 * US)) * 0.5 * US for one in (self, end_event)]
        return float(np.float32((own[1] - own[0]) * 1000))


def decode(device: Device, steps: int, step: float, late: float) -> list[tuple[float, float]]:
    """Launches, two of them under way at a time, that the host sees late. Told and true times of their ends."""
    clock = DeviceClock(device.event, "anchors", device.clock)
    track = StreamTrack(clock)
    told: list[tuple[float, float]] = []
    spans: list[tuple[float, float]] = []
    flights: list[tuple[Stamp, float, float]] = []
    for _ in range(steps):
        device.now += device.draw.uniform(20, 200) * US
        began = device.clock()
        _, end = device.launch(device.draw.uniform(0.5, 1.5) * step)
        flights.append((track.stamp(), began, end))
        if len(flights) == 2:
            stamp, began, end = flights.pop(0)
            stamp.synchronize()
            device.now += device.draw.uniform(0, late)
            spans.append(track.span(stamp, began))
            told.append((spans[-1][1], stamp_time(stamp, end)))
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans)), "spans of one stream don't overlap"
    assert device.made <= 6, "events are used again"
    return told


def stamp_time(stamp: Stamp, end: float) -> float:
    """The stamp is what is told; it comes a little after the work."""
    assert isinstance(stamp.event, Played)
    return max(end, stamp.event.at)


@pytest.mark.parametrize("drift", [0.0, 20e-6, -20e-6])
@pytest.mark.parametrize(("step", "late"), [(0.004, 60 * US), (0.004, 0.004), (0.0003, 0.001), (0.2, 0.01)])
def test_ends_are_told_to_50_us(drift: float, step: float, late: float) -> None:
    for seed in range(3):
        told = decode(Device(seed, drift), 200, step, late)
        errors = [abs(found - true) for found, true in told]
        assert max(errors) <= 50 * US
        assert sorted(errors)[len(errors) // 2] <= 25 * US


def test_after_an_hour_without_work_it_is_as_good() -> None:
    device = Device(1, 20e-6)
    clock = DeviceClock(device.event, "anchors", device.clock)
    track = StreamTrack(clock)
    for _ in range(5):
        for _ in range(20):
            began = device.clock()
            _, end = device.launch(0.003)
            stamp = track.stamp()
            stamp.synchronize()
            found = track.span(stamp, began)
            assert abs(found[1] - end) <= 50 * US
        device.now += 3600.0


def test_clocks_that_part_faster_than_is_thought_are_followed() -> None:
    told = decode(Device(3, 500e-6), 1500, 0.004, 100 * US)
    assert max(abs(found - true) for found, true in told) <= 300 * US


def test_anchors_that_wait_behind_others_work_make_it_no_worse_than_what_the_host_sees() -> None:
    """Streams may share a queue of the device: then anchors are no better than all events."""
    device = Device(4)
    clock = DeviceClock(device.event, None, device.clock)
    track = StreamTrack(clock)
    for _ in range(200):
        began = device.clock()
        _, end = device.launch(0.004)
        stamp = track.stamp()
        stamp.synchronize()
        seen = device.now
        _, found = track.span(stamp, began)
        assert end - 0.004 <= found <= seen


def test_a_launch_starts_when_what_was_launched_before_it_has_ended() -> None:
    device = Device(5)
    track = StreamTrack(DeviceClock(device.event, "anchors", device.clock))
    begun = [device.clock()]
    first = device.launch(0.010)
    stamps = [track.stamp()]
    begun.append(device.clock())
    second = device.launch(0.010)
    stamps.append(track.stamp())
    stamps[1].synchronize()
    # The second is asked first.
    spans = [track.span(stamps[1], begun[1]), track.span(stamps[0], begun[0])][::-1]
    for found, true in zip(spans, (first, second), strict=True):
        assert found == pytest.approx(true, abs=50 * US)
    assert spans[0][1] == spans[1][0]


def test_a_launch_does_not_have_the_time_of_the_copies_that_it_waits_for() -> None:
    device = Device(7)
    track = StreamTrack(DeviceClock(device.event, "anchors", device.clock))
    device.launch(0.050)
    # Nobody asks when the state had come.
    track.stamp()
    begun = device.clock()
    true = device.launch(0.002)
    launch = track.stamp()
    launch.synchronize()
    assert track.span(launch, begun) == pytest.approx(true, abs=50 * US)


def test_the_host_is_not_asked_to_wait() -> None:
    class Never(Played):
        def synchronize(self) -> None:
            raise AssertionError

    device = Device(6)
    clock = DeviceClock(lambda: Never(device), "anchors", device.clock)
    track = StreamTrack(clock)
    for _ in range(10):
        began = device.clock()
        _, end = device.launch(0.001)
        stamp = track.stamp()
        while not stamp.query():
            device.now += 100 * US
        assert abs(track.span(stamp, began)[1] - end) <= 50 * US


def test_bounds_are_the_naive_ones() -> None:
    """Without drift, the offset lies between the highest lower bound and the lowest upper one."""
    draw = random.Random(7)
    for _ in range(50):
        true, offset = draw.uniform(-1e4, 1e4), ClockOffset()
        lows: list[float] = []
        highs: list[float] = []
        for _ in range(draw.randrange(1, 8)):
            recorded, seen = true - draw.uniform(0, 1e-3), true + draw.uniform(0, 1e-3)
            offset.bound(0.0, recorded, seen)
            lows.append(recorded)
            highs.append(seen)
        wanted = min(max(lows) + 5 * US, (max(lows) + min(highs)) / 2)
        assert offset.host(0.0) == pytest.approx(wanted, abs=1e-9)


def test_busy_time_is_that_of_the_union() -> None:
    draw = random.Random(8)
    for _ in range(50):
        spans = [(at, at + draw.randrange(1, 6)) for at in (draw.randrange(90) for _ in range(12))]
        busy = BusyTime()
        for started, finished in spans:
            busy.add(started, finished)
        naive = sum(any(a <= second < b for a, b in spans) for second in range(100))
        assert busy.share(100.0, None) == pytest.approx(naive / 100)
        assert busy.share(110.0, None) == 0.0


def test_however_many_spans_there_are_few_are_kept() -> None:
    busy = BusyTime()
    for at in range(3 * MOST_SPANS):
        busy.add(at, at + 0.25)
    assert len(vars(busy)["_spans"]) < MOST_SPANS
    assert busy.share(3.0 * MOST_SPANS, None) == pytest.approx(0.25)


def test_what_is_under_way_counts_as_busy_once() -> None:
    busy = BusyTime()
    assert busy.share(10.0, 5.0) == 0.5
    busy.add(5.0, 14.0)
    assert busy.share(20.0, None) == pytest.approx(0.4)
    assert busy.share(20.0, None) == 0.0


def test_on_a_cpu_the_hosts_clock_is_all_there_is() -> None:
    now = [1.0]
    watch = Stopwatch(CPU, lambda: now[0])
    watch.switch(on=True)
    assert watch.stamp(CPU) is None
    assert watch.span(CPU, None, 2.0, 5.0) == (2.0, 5.0)
    assert watch.busy.share(9.0, None) == pytest.approx(3 / 8)


def test_the_busy_time_is_that_of_the_ranks_own_device() -> None:
    watch = Stopwatch(torch.device("cuda:0"), lambda: 0.0)
    watch.switch(on=True)
    watch.span(CPU, None, 1.0, 2.0)
    assert watch.busy.share(4.0, None) == 0.0
