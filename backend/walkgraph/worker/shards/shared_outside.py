"""What the choices of a shard's engine follow from: the first one tells what it observes, and the others take that."""

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
        """What comes behind a mark that the first shard's device had reached reads what came before it here, too."""
        reached = self._told.reached()
        if reached:
            mark.synchronize()
        return reached
