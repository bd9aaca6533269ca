"""`control.rate_limit`: when values pass, against a naive count in every window."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tests.support.outside import given
from walkgraph.service.outward.given import Given
from walkgraph.service.outward.rate_limits import MOST_NODES, RateLimits, TooManyValues, next_free
from walkgraph.wire import messages as m

VALUE = m.Small(value="hello")


class Clock:
    """Time passes only while somebody waits, and is told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


def asked(place: str = "a/limit", **params: Any) -> Given:
    found = given("control.rate_limit", params, {"value": VALUE}, outputs=("value",))
    return Given(**{**vars(found), "place": place})


@drawn(st.lists(st.floats(0, 20), max_size=40), st.integers(1, 5), st.floats(0.1, 5))
@settings(deadline=None)
def test_no_window_has_more_and_no_time_is_wasted(moments: list[float], count: int, window: float) -> None:
    times: list[float] = []
    for now in sorted(moments):
        at = next_free(times, count, window, now)
        assert at >= max([now, *times])
        earlier = [one for one in times if one > at - window + 1e-9]
        assert len(earlier) < count
        # Nothing keeps it from passing now, or else it passes when the oldest in its way is a window ago.
        assert at == now or any(at in (one, pytest.approx(one + window)) for one in times)
        times.append(at)


async def test_values_of_all_runs_share_a_rate_and_nodes_do_not() -> None:
    clock = Clock()
    rates = RateLimits(clock, clock.sleep)
    for _ in range(5):
        assert await rates.passed(asked(count=2, window=10.0)) == {"value": VALUE}
    await rates.passed(asked("a/other", count=2, window=10.0))
    assert clock.waits == [0, 0, 10, 10, 20, 0]
    clock.now += 25
    await rates.passed(asked(count=2, window=10.0))
    assert clock.waits[-1] == 0
    await rates.passed(asked(count=2, window=10.0))
    assert clock.waits[-1] == 5


async def test_one_that_would_wait_too_long_is_refused_at_once_and_takes_no_time() -> None:
    clock = Clock()
    rates = RateLimits(clock, clock.sleep)
    await rates.passed(asked(window=10.0))
    for _ in range(3):
        with pytest.raises(TooManyValues, match=r"1 values may pass in 10 s.* would wait 10\.0 s; try again later"):
            await rates.passed(asked(window=10.0, wait=9.0))
    await rates.passed(asked(window=10.0, wait=10.0))
    assert clock.waits == [0, 10]


async def test_a_run_that_ends_gives_its_time_back() -> None:
    clock = Clock()

    async def forever(seconds: float) -> None:
        clock.waits.append(seconds)
        await (asyncio.Event().wait() if seconds else asyncio.sleep(0))

    rates = RateLimits(clock, forever)
    await rates.passed(asked(window=10.0))
    waiting = asyncio.create_task(rates.passed(asked(window=10.0)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = asyncio.create_task(rates.passed(asked(window=10.0)))
    await asyncio.sleep(0)
    assert clock.waits == [0, 10, 10]
    again.cancel()


async def test_nodes_that_are_idle_are_forgotten() -> None:
    clock = Clock()
    rates = RateLimits(clock, clock.sleep)
    for number in range(3 * MOST_NODES):
        clock.now += 1
        await rates.passed(asked(f"a/{number}", window=10.0))
    assert len(rates._times) <= MOST_NODES
