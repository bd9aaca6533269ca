"""The launches that a device still has to do, one after the other. Pure: it sees seconds.

launched        over                  now               free
   |--- first ---|------ second -------|---- of second ---|
                                       |------ left ------|
"""

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Queued:
    """A launch that the device has not done, as far as the host knows."""

    began: float
    """When the host launched it."""
    seconds: float
    """That it probably takes; 0 if such launches were never measured."""


class Backlog:
    """The launches of one queue of a device."""

    def __init__(self) -> None:
        self._queue: deque[Queued] = deque()
        self._over = 0.0
        """When the last one was seen to be over."""

    def launched(self, now: float, seconds: float) -> Queued:
        self._queue.append(Queued(now, seconds))
        return self._queue[-1]

    def over(self, launch: Queued, now: float) -> float:
        """Note that a launch is over, and thus all before it. Returns the seconds since the device could begin it."""
        took = now - max(launch.began, self._over)
        if launch in self._queue:
            while self._queue.popleft() is not launch:
                pass
        self._over = now
        return took

    def left(self, now: float, launch: Queued) -> float:
        """Seconds until a launch is probably over; not positive if it should be."""
        at = self._over
        for one in self._queue:
            at = max(at, one.began) + one.seconds
            if one is launch:
                break
        return at - now
