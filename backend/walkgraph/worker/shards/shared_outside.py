"""The outside of a shard's engine: the first shard tells what it observes, and the others take that."""

from collections import OrderedDict
from collections.abc import Callable

from walkgraph.engine.device.marks import Mark
from walkgraph.engine.device.outside import AskedMark
from walkgraph.worker.shards.broadcast import Broadcast, Receiver

_RECENT = 1024
"""Times of the first shard whose counterparts here are known: more than one launch needs."""


class ToldOutside:
    hears = None
    """What comes while devices work is told turn by turn."""

    def __init__(self, told: Broadcast, clock: Callable[[], float]) -> None:
        """`clock`: the process's own."""
        self._told, self.own = told, clock

    def time(self) -> float:
        now = self.own()
        self._told.time(now)
        return now

    def mark(self, mark: Mark) -> Mark:
        return AskedMark(mark, self._reached)

    def span(self, began: float, finished: float) -> tuple[float, float]:
        self._told.span(began, finished)
        return began, finished

    def _reached(self, mark: Mark) -> bool:
        reached = mark.query()
        self._told.reached(reached)
        return reached


class RepeatedOutside:
    hears = None
    """What comes while devices work is told turn by turn."""

    def __init__(self, told: Receiver, clock: Callable[[], float]) -> None:
        """`clock`: the process's own."""
        self._told, self.own = told, clock
        self._times: OrderedDict[float, float] = OrderedDict()
        """Recent readings of the first shard's clock -> when they were taken here."""
        self._spans: OrderedDict[tuple[float, float], tuple[float, float]] = OrderedDict()
        """Times of the first shard's recent launches -> those of the same launches here."""

    def time(self) -> float:
        now = self._told.time()
        self._times[now] = self.own()
        if len(self._times) > _RECENT:
            self._times.popitem(last=False)
        return now

    def mark(self, mark: Mark) -> Mark:
        return AskedMark(mark, self._reached)

    def span(self, began: float, finished: float) -> tuple[float, float]:
        span = self._told.span()
        self._spans[span] = self._here(began), self._here(finished)
        if len(self._spans) > _RECENT:
            self._spans.popitem(last=False)
        return span

    def here(self, began: float, finished: float) -> tuple[float, float]:
        """Return the times at which this shard did what the first one did at these, as far as they are known here."""
        return self._spans.get((began, finished)) or (self._here(began), self._here(finished))

    def _here(self, at: float) -> float:
        """The time here at a reading of the first shard's clock. Any other time is this device's own already."""
        return self._times.get(at, at)

    def _reached(self, mark: Mark) -> bool:
        """The first shard's answer. This device waits for a mark that was reached there, so that readers behind it find
        the same values."""
        reached = self._told.reached()
        if reached:
            mark.synchronize()
        return reached
