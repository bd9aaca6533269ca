"""The outside of a shard's engine: the first shard tells what it observes, and the others take that."""

from collections.abc import Callable

from walkgraph.engine.device.marks import Mark
from walkgraph.engine.device.outside import AskedMark
from walkgraph.worker.shards.broadcast import Broadcast, Receiver


class ToldOutside:
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
    def __init__(self, told: Receiver, clock: Callable[[], float]) -> None:
        """`clock`: the process's own."""
        self._told, self.own = told, clock

    def time(self) -> float:
        return self._told.time()

    def mark(self, mark: Mark) -> Mark:
        return AskedMark(mark, self._reached)

    def span(self, began: float, finished: float) -> tuple[float, float]:
        return self._told.span()

    def _reached(self, mark: Mark) -> bool:
        """The first shard's answer. This device waits for a mark that was reached there, so that readers behind it find
        the same values."""
        reached = self._told.reached()
        if reached:
            mark.synchronize()
        return reached
