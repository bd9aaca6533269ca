"""Which ready calls form the next batch, and how many rows it may have. Pure: counts and keys only; knows nothing of
operators, tensors or clocks.

Calls of one *batch key* may share a forward (one operator, one bucket). Calls are served in the order of their ready
time, moved forward by `patience` seconds for each level of priority: the key of the first one is next, and its batch
takes along whatever else of the key fits the budget. A call therefore waits at most for those that came before it,
whatever its node, and a low priority is a delay, never a denial.

While loops are running on the device, batches are small and come one at a time between two of their steps (`Mix`). A
call that has too many rows is cut when its turn comes, by what runs then.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from walkgraph.abi.calls import Call, StateKey


class Batch(NamedTuple):
    key: Any
    """As it was added."""
    calls: list[Call]


class Mix(NamedTuple):
    """How batches and the steps of running loops share a device. Rows are tokens, or an operator's nearest measure."""

    budget: int = 4096
    """Rows of a batch at most, unless one call that can't be split has more."""
    alone: int = 2048
    """Rows of a part of a call, where no loop is running."""
    mixed: int = 512
    """Rows of a batch while loops are running: what a step of theirs waits for."""
    single: bool = False
    """Every batch is of one call, and calls are cut alike whether loops are running or not."""

    def rows(self, running: bool) -> int:
        """Of a batch; 0: no second call fits."""
        if self.single:
            return 0
        return min(self.budget, self.mixed) if running else self.budget

    def part(self, running: bool) -> int:
        """Rows that a call may have before it is cut, and those of the parts."""
        return min(self.alone, self.mixed) if running or self.single else self.alone

    def may(self, running: bool, since: int) -> bool:
        """Whether a batch may be launched, `since` batches after the last step of the loops."""
        return not running or since == 0


MIX = Mix()


class ReadyCall(NamedTuple):
    call: Call
    key: Hashable
    rows: int


Cut = Callable[[Call, int], Sequence[ReadyCall]]
"""A call and its rows -> its parts, which are made one after the other; fewer than two where it stays whole."""


class _QueuedCall(NamedTuple):
    due: float
    number: tuple[int, ...]
    """Of arrival, then of the part: breaks ties, so that calls are never compared."""
    rows: int
    call: Call


class Schedule:
    def __init__(self, *, budget: int = 4096, patience: float = 1.0) -> None:
        """`budget`: rows of a batch at most, unless one call has more. `patience`: seconds that a priority is worth."""
        self._budget, self._patience = budget, patience
        self._queues: dict[Hashable, list[_QueuedCall]] = {}
        self._held: dict[str, list[tuple[Hashable, _QueuedCall]]] = {}
        """Calls of runs that are suspended."""
        self._arrivals = 0

    def __len__(self) -> int:
        """Calls that may be served: those of held runs don't count."""
        return sum(map(len, self._queues.values()))

    def add(self, call: Call, key: Hashable, rows: int) -> None:
        self._arrivals += 1
        due = call.ready_at - call.priority * self._patience
        self._put(key, _QueuedCall(due, (self._arrivals,), rows, call))

    def hold(self, run: str) -> None:
        """Serve nothing of a run until `release` or `cancel`."""
        held = self._held.setdefault(run, [])
        for key, queue in list(self._queues.items()):
            held += [(key, w) for w in queue if w.call.run == run]
            self._keep(key, [w for w in queue if w.call.run != run])

    def release(self, run: str) -> None:
        """What was held takes the places that it had."""
        for key, waiting in self._held.pop(run, ()):
            self._put(key, waiting)

    def next(
        self, rows: int | None = None, cut: Cut | None = None, fits: Callable[[Any], bool] = lambda key: True
    ) -> Batch | None:
        """Takes the next batch out; none if nothing waits. `rows`: of this batch at most, where not the budget.
        `fits`: the batch keys that it may have."""
        key = self._first(cut, fits)
        if key is None:
            return None
        budget = self._budget if rows is None else rows
        chosen: list[Call] = []
        left: list[_QueuedCall] = []
        taken, busy = 0, set[StateKey]()
        for waiting in self._queues[key]:
            # Calls on one state keep their order: what is passed over blocks its states for those behind it.
            clash = not busy.isdisjoint(waiting.call.states.values())
            busy.update(waiting.call.states.values())
            if clash or (chosen and taken + waiting.rows > budget):
                left.append(waiting)
            else:
                chosen.append(waiting.call)
                taken += waiting.rows
        self._keep(key, left)
        return Batch(key, chosen)

    def cancel(self, run: str) -> list[Call]:
        """Takes out the waiting calls of a run, held or not."""
        self.release(run)
        removed = [w.call for queue in self._queues.values() for w in queue if w.call.run == run]
        self.remove(removed)
        return removed

    def remove(self, calls: Sequence[Call]) -> None:
        """Takes out these calls, told by identity."""
        if not calls:
            return
        gone = {id(call) for call in calls}
        for key, queue in list(self._queues.items()):
            self._keep(key, [w for w in queue if id(w.call) not in gone])
        for run, held in self._held.items():
            self._held[run] = [one for one in held if id(one[1].call) not in gone]

    def _first(self, cut: Cut | None, fits: Callable[[Any], bool]) -> Hashable | None:
        """The batch key whose turn it is, its first call cut where that has too many rows."""
        while True:
            key = min(filter(fits, self._queues), key=lambda one: self._queues[one][0][:2], default=None)
            if key is None:
                return None
            first = self._queues[key][0]
            parts = cut(first.call, first.rows) if cut else ()
            if len(parts) < 2:
                return key
            self._keep(key, self._queues[key][1:])
            for index, part in enumerate(parts):
                self._put(part.key, _QueuedCall(first.due, (*first.number, index), part.rows, part.call))

    def _put(self, key: Hashable, waiting: _QueuedCall) -> None:
        if waiting.call.run in self._held:
            self._held[waiting.call.run].append((key, waiting))
        else:
            insort(self._queues.setdefault(key, []), waiting)

    def _keep(self, key: Hashable, queue: list[_QueuedCall]) -> None:
        if queue:
            self._queues[key] = queue
        else:
            del self._queues[key]
