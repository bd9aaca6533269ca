"""Simulated time: what happens next, and when. Nothing here reads a clock."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]


class Timeline:
    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the world began."""
        self._coming: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def at(self, when: float, action: Action) -> None:
        """Things of one time happen in the order in which they were asked for."""
        heappush(self._coming, (max(when, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def step(self) -> bool:
        """Let the next thing happen; False where nothing will."""
        if not self._coming:
            return False
        self.now, _, action = heappop(self._coming)
        action()
        return True
