"""Rate limits of one caller: requests per minute, and concurrent runs. Pure: the clock is passed in.

A caller may send ten seconds' worth at once (`burst`), then as many as its rate allows: in any window of `s` seconds at
most `burst + s * per_minute / 60`. After waiting `RateLimited.retry_after` seconds a request is served, unless the same
caller sends others meanwhile.
"""

import math
import time
from collections.abc import Callable

from walkgraph.errors import WalkgraphError

_MINUTE = 60_000_000_000
"""Nanoseconds."""
BURST_PER_MINUTE = 6


class RateLimited(WalkgraphError):
    """This caller has reached its limit; others may go on."""

    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, reason: str, seconds: int) -> None:
        super().__init__(message)
        self.reason = reason
        """`requests_per_minute` or `concurrent_runs`."""
        self.retry_after = seconds


class Meter:
    """Counts the requests and runs of one caller. A limit of None is unlimited."""

    __slots__ = ("_ahead", "_interval", "_now", "concurrent", "per_minute", "running")

    def __init__(
        self, per_minute: int | None, concurrent: int | None, now: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`now`: monotonic nanoseconds."""
        self.per_minute, self.concurrent = per_minute, concurrent
        self.running = 0
        """Unfinished runs."""
        self._now = now
        # Whole nanoseconds, rounded up: the rate never exceeds the limit.
        self._interval = -(-_MINUTE // per_minute) if per_minute else 0
        self._ahead = 0
        """Time at which the full burst is available again, in nanoseconds."""

    @property
    def burst(self) -> int:
        """Requests that may come at once."""
        return burst_of(self.per_minute) if self.per_minute else 0

    def take(self) -> None:
        """Counts a request. Raises RateLimited, without counting it, if it exceeds the rate."""
        if self.per_minute is None:
            return
        now = self._now()
        ahead = max(self._ahead, now)
        wait = ahead - now - (self.burst - 1) * self._interval
        if wait > 0:
            seconds = max(1, math.ceil(wait / 1e9))
            raise RateLimited(
                f"{self.per_minute} requests a minute are allowed; try again in {seconds} s",
                "requests_per_minute",
                seconds,
            )
        self._ahead = ahead + self._interval

    def admit(self) -> None:
        """Raises RateLimited if one more run would be too many. `begun` counts the run once it is under way."""
        if self.concurrent is not None and self.running >= self.concurrent:
            message = f"{self.running} runs are under way and {self.concurrent} may be at once; wait for the end of one"
            raise RateLimited(message, "concurrent_runs", 1)

    def begun(self) -> None:
        self.running += 1

    def ended(self) -> None:
        self.running -= 1


def burst_of(per_minute: int) -> int:
    """Requests that may come at once: ten seconds' worth, at least one."""
    return max(1, per_minute // BURST_PER_MINUTE)
