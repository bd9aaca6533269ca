"""Which ready calls form the next batch. Pure: counts and keys only; knows nothing of operators, tensors or clocks.

A *lane* holds the calls that may share a forward (one operator, one bucket). Calls are served in the order of their
ready time, moved forward by `patience` seconds for each level of priority: the lane of the first one is next, and takes
along whatever else of the lane fits the budget. A call therefore waits at most for those that came before it, whatever
its node, and a low priority is a delay, never a denial.
"""

from bisect import insort
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from walkgraph.networks.base import Call, StateKey


class Batch(NamedTuple):
    lane: Hashable
    calls: list[Call]


class _Waiting(NamedTuple):
    due: float
    number: int
    """Of arrival: breaks ties, so that calls are never compared."""
    rows: int
    call: Call


class Schedule:
    def __init__(self, *, budget: int = 4096, patience: float = 1.0) -> None:
        """`budget`: rows of a batch at most, unless one call has more. `patience`: seconds that a priority is worth."""
        self._budget, self._patience = budget, patience
        self._lanes: dict[Hashable, list[_Waiting]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, call: Call, lane: Hashable, rows: int) -> None:
        self._arrivals += 1
        due = call.ready_at - call.priority * self._patience
        insort(self._lanes.setdefault(lane, []), _Waiting(due, self._arrivals, rows, call))

    def next(self) -> Batch | None:
        """Takes the next batch out; none if nothing waits."""
        if not self._lanes:
            return None
        lane = min(self._lanes, key=lambda name: self._lanes[name][0][:2])
        chosen: list[Call] = []
        left: list[_Waiting] = []
        rows, busy = 0, set[StateKey]()
        for waiting in self._lanes[lane]:
            # Calls on one state keep their order: what is passed over blocks its states for those behind it.
            clash = not busy.isdisjoint(waiting.call.states.values())
            busy.update(waiting.call.states.values())
            if clash or (chosen and rows + waiting.rows > self._budget):
                left.append(waiting)
            else:
                chosen.append(waiting.call)
                rows += waiting.rows
        self._keep(lane, left)
        return Batch(lane, chosen)

    def cancel(self, run: str) -> list[Call]:
        """Takes out the waiting calls of a run."""
        removed = [w.call for queue in self._lanes.values() for w in queue if w.call.run == run]
        self.remove(removed)
        return removed

    def remove(self, calls: Sequence[Call]) -> None:
        """Takes out these calls, told by identity."""
        if not calls:
            return
        gone = {id(call) for call in calls}
        for lane, queue in list(self._lanes.items()):
            self._keep(lane, [w for w in queue if id(w.call) not in gone])

    def _keep(self, lane: Hashable, queue: list[_Waiting]) -> None:
        if queue:
            self._lanes[lane] = queue
        else:
            del self._lanes[lane]
