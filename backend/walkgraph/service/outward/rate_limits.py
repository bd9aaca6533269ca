"""The component `control.rate_limit`: values pass on one after another, at most so many within a time.

values of all runs of a deployment ──> each gets the next free time of its node ──> passes then, or is refused
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from walkgraph.errors import WalkgraphError
from walkgraph.service.outward.given import Given
from walkgraph.wire import messages as m

Sleep = Callable[[float], Awaitable[object]]
"""Waits so many seconds."""
MOST_NODES = 256
"""Nodes that are remembered. Beyond, those are forgotten at which no value waits or passed of late."""


class TooManyValues(WalkgraphError):
    """A value would wait longer than its node allows."""

    code = "rate_limited"
    retryable = True


class RateLimits:
    """The times at which values pass, by node. All runs of a deployment share those of its node."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._times: dict[str, list[float]] = {}
        """Place of a node -> times on the clock within the last window and after it, in order."""

    async def passed(self, given: Given) -> Mapping[str, m.Value]:
        """The value, at the time at which it may pass. Raises TooManyValues at once if that is over `wait` seconds from
        now. A value whose run ends meanwhile gives its time back."""
        count, window = int(given.params["count"]), float(given.params["window"])
        now, longest = self._clock(), float(given.params["wait"])
        times = self._recent(given.place, now - window)
        at = next_free(times, count, window, now)
        if at - now > longest:
            allowed = f"{count} values may pass in {window:g} s"
            raise TooManyValues(f"{allowed}, and this one would wait {at - now:.1f} s; try again later")
        times.append(at)
        try:
            await self._sleep(at - now)
        except asyncio.CancelledError:
            times.remove(at)
            raise
        return {"value": given.inputs["value"]}

    def _recent(self, place: str, since: float) -> list[float]:
        if place not in self._times and len(self._times) >= MOST_NODES:
            now = self._clock()
            self._times = {name: times for name, times in self._times.items() if times and times[-1] > now}
        times = self._times.setdefault(place, [])
        times[:] = [at for at in times if at > since]
        return times


def next_free(times: list[float], count: int, window: float, now: float) -> float:
    """The first time from `now` on that leaves at most `count` in any `window` seconds, behind all `times`."""
    if len(times) < count:
        return max(now, times[-1] if times else now)
    return max(now, times[-1], times[-count] + window)
