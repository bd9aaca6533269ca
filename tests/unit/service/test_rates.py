"""Never more than allowed in any window, and never less than promised."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.service.access.rates import Meter, RateLimited, burst_of

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 5 * SECOND

    def __call__(self) -> int:
        return self.now


def tried(meter: Meter) -> int:
    """Seconds to wait; 0: it was taken."""
    try:
        meter.take()
    except RateLimited as error:
        return error.retry_after
    return 0


@settings(max_examples=150)
@given(
    per_minute=st.integers(1, 3000),
    gaps=st.lists(st.one_of(st.integers(0, 50_000_000), st.integers(0, 200 * SECOND)), min_size=1, max_size=120),
)
def test_no_window_has_more_than_is_allowed(per_minute: int, gaps: list[int]) -> None:
    clock = Clock()
    meter = Meter(per_minute, None, clock)
    taken: list[int] = []
    for gap in gaps:
        clock.now += gap
        if not tried(meter):
            taken.append(clock.now)
    burst = burst_of(per_minute)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span = taken[last] - taken[first]
            assert last - first + 1 <= burst + span * per_minute / (60 * SECOND) + 1e-9


@settings(max_examples=150)
@given(per_minute=st.integers(1, 6000), greedy=st.integers(0, 400), gap=st.integers(0, 20_000_000))
def test_who_waits_as_long_as_told_is_served(per_minute: int, greedy: int, gap: int) -> None:
    clock = Clock()
    meter = Meter(per_minute, None, clock)
    for _ in range(greedy):
        clock.now += gap
        tried(meter)
    wait = tried(meter)
    if wait:
        assert 1 <= wait <= 61
        clock.now += wait * SECOND
        assert tried(meter) == 0


@pytest.mark.parametrize("per_minute", [1, 7, 60, 600, 6000])
def test_a_steady_caller_at_its_rate_is_never_refused(per_minute: int) -> None:
    clock = Clock()
    meter = Meter(per_minute, None, clock)
    for _ in range(3 * per_minute):
        assert tried(meter) == 0
        clock.now += -(-60 * SECOND // per_minute)


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    meter = Meter(60, None, clock)
    assert [tried(meter) for _ in range(11)] == [0] * 10 + [1]
    with pytest.raises(RateLimited, match="60 requests a minute") as refused:
        meter.take()
    assert refused.value.reason == "requests_per_minute"
    for _ in range(1000):
        assert tried(meter) == 1
    clock.now += SECOND
    assert tried(meter) == 0


def test_the_burst_is_ten_seconds_worth_and_comes_back() -> None:
    clock = Clock()
    meter = Meter(600, None, clock)
    assert meter.burst == 100
    for _ in range(3):
        assert sum(tried(meter) == 0 for _ in range(1000)) == 100
        clock.now += 3600 * SECOND
    assert [burst_of(count) for count in (1, 5, 6, 12)] == [1, 1, 1, 2]
    assert all(burst_of(a) <= burst_of(b) for a, b in pairwise(range(1, 500)))


def test_without_a_rate_nothing_is_counted() -> None:
    meter = Meter(None, None, Clock())
    assert [tried(meter) for _ in range(1000)] == [0] * 1000


def test_runs_at_once_are_bounded() -> None:
    meter = Meter(None, 2)
    for _ in range(2):
        meter.admit()
        meter.begun()
    with pytest.raises(RateLimited) as refused:
        meter.admit()
    assert (refused.value.reason, refused.value.retry_after, refused.value.retryable) == ("concurrent_runs", 1, True)
    meter.ended()
    meter.admit()
