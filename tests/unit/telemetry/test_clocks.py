"""Clocks of other hosts: whatever their offset, drift and jumps, and however long messages take, times are within the
stated bound, and the bound is small."""

import random
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest

from tests.unit.telemetry.test_emit import Reader, launch, phase
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.clocks import (
    MOST_ASKED,
    MOST_DRIFT,
    SLACK,
    SLOT_SECONDS,
    SLOTS,
    TIMES,
    WANDER,
    FarClock,
    HostClocks,
    OffsetEstimate,
    moved,
)
from walkgraph.telemetry.emit import CAPACITY, Buffered
from walkgraph.wire.processes.host_clocks import Alignment, HostClock

MICRO = 1e-6
PING = 0.5
Delays = Callable[[random.Random], tuple[float, float]]
"""Seconds that a ping is under way, and its answer."""


def quick(dice: random.Random) -> tuple[float, float]:
    return 40 * MICRO + dice.expovariate(1 / (60 * MICRO)), 40 * MICRO + dice.expovariate(1 / (60 * MICRO))


def lopsided(dice: random.Random) -> tuple[float, float]:
    return 30 * MICRO, 900 * MICRO + dice.expovariate(1 / (60 * MICRO))


def busy(dice: random.Random) -> tuple[float, float]:
    """The rank computes for long and reads seldom."""
    there, back = quick(dice)
    return there + (dice.uniform(0.0, 0.2) if dice.random() < 0.9 else 0.0), back


class Far:
    """A host whose clock is off, asked now and then."""

    def __init__(self, offset: float, drift: float, delays: Delays, seed: int = 1) -> None:
        self.offset, self.drift, self.delays, self.dice = offset, drift, delays, random.Random(seed)
        self.estimate, self.now, self.shortest = OffsetEstimate("b"), 1000.0, float("inf")

    def read(self, now: float) -> float:
        """Its clock, at a time of this host."""
        return now - self.offset - self.drift * (now - 1000.0)

    def ping(self) -> HostClock:
        there, back = self.delays(self.dice)
        self.estimate.measure(self.now, self.read(self.now + there), self.now + there + back)
        self.shortest = min(self.shortest, there + back)
        self.now += there + back + PING
        assert self.estimate.clock is not None
        return self.estimate.clock

    def wrong(self, clock: HostClock, now: float) -> float:
        """By how much more than stated a time is wrong: at most 0, and what floats round off."""
        at = self.read(now)
        return abs(clock.here(at) - now) - clock.error_at(at)


@pytest.mark.parametrize("delays", [quick, lopsided, busy])
@pytest.mark.parametrize(("offset", "drift"), [(0.0, 0.0), (-86_400.0, 4e-5), (3e6, -9e-5), (1e-3, MOST_DRIFT)])
def test_times_are_within_the_bound(delays: Delays, offset: float, drift: float) -> None:
    far = Far(offset, drift, delays)
    for _ in range(200):
        clock = far.ping()
        for ago in (2.0, 0.5, 0.0):
            assert far.wrong(clock, far.now - ago) < 1e-8


@pytest.mark.parametrize("drift", [0.0, 4e-5, -9e-5])
def test_on_a_quick_network_the_bound_is_half_the_shortest_round_trip(drift: float) -> None:
    far = Far(123.0, drift, quick)
    first = far.ping()
    assert first.error < 200 * MICRO
    for _ in range(240):
        clock = far.ping()
    assert clock.error <= SLACK * far.shortest / 2 + 10 * MICRO
    assert abs(clock.drift - drift / (1 - drift)) <= clock.drift_error < 10 * MICRO


def test_the_bound_is_no_worse_than_that_of_the_best_single_round_trip() -> None:
    """The naive twin takes the round trip that is best by now, and lets its bound grow by the most drift."""
    far, trips = Far(-5.0, 3e-5, busy, seed=7), list[tuple[float, float]]()
    for _ in range(400):
        before = far.now
        clock = far.ping()
        trips.append((clock.at, (far.now - PING - before) / 2))
        recent = [(at, half) for at, half in trips if clock.at - at < SLOT_SECONDS * (SLOTS - 1)]
        naive = min(half + (MOST_DRIFT + WANDER) * (clock.at - at) for at, half in recent)
        assert clock.error <= SLACK * naive + 1e-9


def test_a_lopsided_way_is_as_wrong_as_the_bound_says() -> None:
    far = Far(0.0, 0.0, lopsided)
    for _ in range(120):
        clock = far.ping()
    at = far.read(far.now)
    assert 300 * MICRO < abs(clock.here(at) - far.now) < clock.error < 700 * MICRO


@pytest.mark.parametrize("jump", [0.3, -0.02, 5000.0])
def test_a_jump_is_found_by_the_next_round_trip(jump: float) -> None:
    far = Far(50.0, 2e-5, quick)
    for _ in range(60):
        far.ping()
    far.offset += jump
    for _ in range(60):
        clock = far.ping()
        assert far.wrong(clock, far.now) < 1e-8
        assert clock.error < 500 * MICRO


def test_a_clock_that_is_corrected_faster_than_clocks_drift_is_followed() -> None:
    """NTP may change a clock's speed by 500 ppm: what contradicts it is forgotten; times are wrong by no more than
    what is corrected in two pings."""
    far = Far(0.0, 0.0, quick)
    for _ in range(60):
        far.ping()
    far.offset, far.drift = far.offset - 5e-4 * (far.now - 1000.0), 5e-4
    for _ in range(60):
        clock = far.ping()
        assert far.wrong(clock, far.now) < 5e-4 * 2 * PING


def test_times_step_seldom() -> None:
    """An estimate that is still good is kept, or calls that follow each other would overlap."""
    far = Far(77.0, 1e-5, quick)
    lines = {(round(clock.here(0.0), 9), clock.drift) for clock in (far.ping() for _ in range(240))}
    assert len(lines) < 20


@pytest.mark.parametrize("at", [float("nan"), float("inf")])
def test_what_is_no_time_is_not_taken(at: float) -> None:
    estimate = OffsetEstimate("b")
    estimate.measure(1.0, at, 2.0)
    estimate.measure(2.0, 5.0, 1.0)
    assert estimate.clock is None


def test_all_ranks_of_a_host_measure_one_clock() -> None:
    clocks = HostClocks()
    clocks.asked(1, "b", 10.0)
    clocks.asked(2, "b", 10.0)
    clocks.asked(3, "c", 10.0)
    assert clocks.clock("b") is None
    clocks.answered(2, 110.0005, 10.001)
    clocks.answered(1, 110.4, 10.9)
    clocks.answered(2, 0.0, 99.0)
    clocks.answered(4, 0.0, 99.0)
    found = clocks.clock("b")
    assert found is not None
    assert (found.host, clocks.clock("c")) == ("b", None)
    assert found.here(110.0005) == pytest.approx(10.0005, abs=1e-6)
    assert found.error_at(110.0005) < 600 * MICRO


def test_pings_without_an_answer_are_forgotten() -> None:
    clocks = HostClocks()
    for number in range(MOST_ASKED + 1):
        clocks.asked(number, "b", 0.0)
    clocks.answered(0, 5.0, 1.0)
    assert clocks.clock("b") is None
    clocks.answered(1, 5.0, 1.0)
    assert clocks.clock("b") is not None


# ── events ──────────────────────────────────────────────────────────────────────────────────────

CLOCK = HostClock(host="b", at=1e6, offset=-9e5, drift=1e-5, error=4e-5, drift_error=1e-5)
SPANS = {"busy", "queued"}
"""Numbers that are no times: seconds, shares."""


def test_every_time_of_every_event_is_known() -> None:
    assert TIMES.keys() == set(e.Any.__args__)
    for kind, names in TIMES.items():
        floats = {name for name, hint in get_type_hints(kind).items() if hint is float}
        many = {name for name, hint in get_type_hints(kind).items() if hint == tuple[float, ...]}
        assert floats - SPANS == set(names), kind
        assert many == ({"ready"} if kind in (e.Forward, e.Launch) else {"picked"} if kind is e.Sample else set())


def test_times_move_and_nothing_else_does() -> None:
    event = launch(2)
    found = moved(event, CLOCK)
    times: dict[str, Any] = {name: CLOCK.here(getattr(event, name)) for name in TIMES[e.Launch]}
    assert found == msgspec.structs.replace(event, ready=tuple(map(CLOCK.here, event.ready)), **times)
    assert found.taken == pytest.approx(1e5 + 0.1, abs=1e-5)
    work = e.LoopWork(nodes=(), uses=(), calls=(), spans=False, busy=1.0, queued=2.0, began=1e6, batch=1)
    ended = e.LoopEnded(
        run=RunId("r"), rank=Rank(1), walk="w", loop="l", step=0, iteration=(), iterations=1, reason="stop",
        at=1e6 + 1, work=work,
    )  # fmt: skip
    told = moved(ended, CLOCK)
    assert told == msgspec.structs.replace(ended, at=CLOCK.here(1e6 + 1), work=told.work)
    assert told.work == msgspec.structs.replace(work, began=1e5)


def test_a_far_rank_holds_its_events_until_it_is_told_its_clock() -> None:
    reader = Reader()
    emitter = Buffered("d", "rank 1.1", "summary", reader.send, FarClock())
    emitter.emit(phase(1_000_000))
    emitter.flush(1e6 + 1, force=True)
    assert (emitter.wait(1e6 + 1), reader.packets) == (None, [])
    emitter.tell(CLOCK)
    assert emitter.wait(1e6 + 1) is not None
    emitter.flush(1e6 + 1, force=True)
    [packet] = reader.packets
    assert packet.events == (msgspec.structs.replace(phase(1_000_000), at=1e5),)
    assert packet.clock is not None
    assert packet.clock == Alignment("b", pytest.approx(-9e5, abs=1e-4), pytest.approx(5e-5))


def test_of_too_many_events_the_first_are_held() -> None:
    reader = Reader()
    emitter = Buffered("d", "rank 1.1", "summary", reader.send, FarClock())
    for number in range(CAPACITY + 5):
        emitter.emit(phase(number))
    emitter.tell(CLOCK)
    emitter.flush(0.0, force=True)
    assert (len(reader.events), emitter.dropped) == (CAPACITY, 5)
