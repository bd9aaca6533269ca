"""Chooses which ready calls form the next batch, and how many rows it may have. Pure: it sees counts and keys, no
operators, tensors or clocks.

Calls of one *batch key* may share a forward (one operator, one bucket). Calls are served in the order of their ready
times, moved forward by `patience` seconds for each level of priority. The key of the first call is next, and its batch
takes whatever else of that key fits the budget. Among the keys that may be next, a call therefore waits at most for
those that came before it, whatever its node, and a low priority delays a call but never starves it.

Of waiting calls that are *alike* (prompts of the same tokens), the first is served, and the others wait until it has
settled: they find in the prefix cache what it has computed.

A *deferred* call waits for the next call on its states, and is in that call's batch, ahead of it.

While loops are running on the device, batches are small, and only one is launched between two of their steps, or
several short ones (`Mix`). Where more runs wait for a batch than loops wait for its end, it is larger. A call with too
many rows is cut when its turn comes; the size of the parts depends on whether loops run then.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

from walkgraph.abi.calls import Call, StateKey


class Batch(NamedTuple):
    key: Any
    """The key that the calls were added with."""
    calls: list[Call]


class Mix(NamedTuple):
    """How batches and the steps of running loops share a device. Rows are tokens, or an operator's nearest measure."""

    budget: int = 4096
    """The most rows in a batch, unless a single call that can't be split has more."""
    alone: int = 2048
    """The most rows in a part of a call while no loop is running."""
    mixed: int = 512
    """The most rows in a batch while loops are running, whose next step waits for it: for each run with a call in the
    batch that a loop of another run waits for."""
    turn: float = 0.02
    """Seconds of the batches between two steps of running loops, if they are several."""
    single: bool = False
    """Every batch is one call, and calls are cut alike whether loops are running or not."""

    def rows(self, running: Collection[str] = (), waiting: Collection[str] = ()) -> int:
        """Rows that a batch may have; with 0, no second call fits. `running`: runs with loops that are running.
        `waiting`: runs with calls that are ready for such a batch. A run that is both waits for its own calls alone."""
        if self.single:
            return 0
        delayed = len({*running} - {*waiting})
        return min(self.budget, self.mixed * max(1, ceil(len(waiting) / delayed))) if delayed else self.budget

    def part(self, running: bool) -> int:
        """Rows that a call, or a part of one, may have before it is cut."""
        return min(self.alone, self.mixed) if running or self.single else self.alone

    def may(self, running: bool, spent: float, seconds: float) -> bool:
        """True if a batch may be launched that takes so long. `spent`: seconds of those since the last step of the
        loops."""
        return not running or spent == 0 or spent + seconds <= self.turn


MIX = Mix()
CPU_MIX = Mix(budget=1024, alone=256, mixed=256)
"""The mix on CPUs: cancels and probes wait for a part of a long prompt, which takes well under a second there too."""


class ReadyCall(NamedTuple):
    call: Call
    key: Hashable
    rows: int
    alike: Hashable = None
    """Equal for calls of which one is served first; None for a call that is like no other."""


Cut = Callable[[Call, int], Sequence[ReadyCall]]
"""Cuts a call with so many rows into parts, to be computed in order; fewer than two if it stays whole."""


Fits = Callable[[Any, Iterable[Call]], bool]
"""True for a batch key, with all calls that wait with it, if the next batch may have it."""


class _QueuedCall(NamedTuple):
    due: float
    number: tuple[int, ...]
    """Number of the arrival, then of the part: it breaks ties, so that calls are never compared."""
    rows: int
    call: Call
    alike: Hashable


class _Deferred:
    """Waiting calls that are deferred."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        """By their ids."""
        self._promoted: set[int] = set()
        """Ids of those that may be served although no other follows."""
        self._states: Counter[StateKey] = Counter()
        """How many of them are on each state."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __contains__(self, call: Call) -> bool:
        return id(call) in self._calls

    def add(self, call: Call) -> None:
        self._calls[id(call)] = call
        self._states.update(call.states.values())

    def forget(self, gone: set[int]) -> None:
        """Forget calls by their ids, of which some may not be here."""
        self._promoted -= gone
        for one in gone & self._calls.keys():
            for state in self._calls.pop(one).states.values():
                self._states[state] -= 1
                if not self._states[state]:
                    del self._states[state]

    def on(self, states: Collection[StateKey]) -> bool:
        """True if some are on these states."""
        return any(state in self._states for state in states)

    def promote(self, calls: Iterable[Call]) -> None:
        """Let these be served although no other follows."""
        self._promoted.update(map(id, calls))

    def waits(self, call: Call) -> bool:
        """True for a deferred call that is served only with another one."""
        return bool(self._calls) and id(call) in self._calls and id(call) not in self._promoted

    @property
    def runs(self) -> set[str]:
        """Runs with deferred calls of which none may be served yet."""
        if not self._calls:
            return set()
        return {call.run for call in self._calls.values()} - {self._calls[one].run for one in self._promoted}


class Schedule:
    def __init__(self, *, budget: int = 4096, patience: float = 1.0) -> None:
        """`budget`: the most rows in a batch, unless one call has more. `patience`: seconds that one level of priority
        is worth."""
        self._budget, self._patience = budget, patience
        self._queues: dict[Hashable, list[_QueuedCall]] = {}
        self._held: dict[str, list[tuple[Hashable, _QueuedCall]]] = {}
        """Calls of held runs."""
        self._leads: dict[int, Hashable] = {}
        """Ids of the calls under way for which others that are alike may wait -> in what they are alike."""
        self._deferred = _Deferred()
        self._arrivals = 0

    def __len__(self) -> int:
        """The number of calls that may be served; those of held runs don't count."""
        return sum(map(len, self._queues.values()))

    @property
    def leads(self) -> int:
        """The number of calls under way for which others that are alike may wait."""
        return len(self._leads)

    def __bool__(self) -> bool:
        """True if a call may be served; queues without calls are gone."""
        return bool(self._queues)

    def add(self, call: Call, key: Hashable, rows: int, alike: Hashable = None, *, deferred: bool = False) -> None:
        self._arrivals += 1
        if deferred:
            self._deferred.add(call)
        # Somebody listens to what is played as it comes, so it goes before work of the same level.
        due = call.ready_at - (call.priority + (call.timed is not None)) * self._patience
        self._put(key, _QueuedCall(due, (self._arrivals,), rows, call, alike))

    def hold(self, run: str) -> None:
        """Hold back a run's calls until `release` or `cancel`."""
        held = self._held.setdefault(run, [])
        for key, queue in list(self._queues.items()):
            held += [(key, w) for w in queue if w.call.run == run]
            self._keep(key, [w for w in queue if w.call.run != run])

    def release(self, run: str) -> None:
        """Put a held run's calls back in their places."""
        for key, waiting in self._held.pop(run, ()):
            self._put(key, waiting)

    def next(
        self, rows: int | None = None, cut: Cut | None = None, fits: Fits = lambda key, calls: True
    ) -> Batch | None:
        """Remove and return the next batch; None if nothing waits. `rows`: the most rows in this batch, instead of the
        budget. `fits`: says which batch keys it may have."""
        key = self._first(cut, fits)
        if key is None:
            return None
        budget = self._budget if rows is None else rows
        chosen: list[_QueuedCall] = []
        deferred: list[_QueuedCall] = []
        taken, busy = 0, set[StateKey]()
        for waiting in self._queues[key]:
            # Calls on one state keep their order: a call that is passed over blocks its states for those behind it.
            clash = not busy.isdisjoint(waiting.call.states.values())
            if self._deferred.waits(waiting.call) and not clash:
                deferred.append(waiting)
                continue
            busy.update(waiting.call.states.values())
            both = [*(_before(deferred, waiting.call.states.values()) if deferred else ()), waiting]
            rows = sum(one.rows for one in both)
            if clash or self._follows(waiting) or (chosen and taken + rows > budget):
                continue
            chosen += both
            taken += rows
            if len(both) > 1:
                deferred = [one for one in deferred if one not in both]
            if waiting.alike is not None:
                self._leads[id(waiting.call)] = waiting.alike
        gone = {id(one.call) for one in chosen}
        self._keep(key, [one for one in self._queues[key] if id(one.call) not in gone])
        self._deferred.forget(gone)
        return Batch(key, [one.call for one in chosen])

    # ── deferred calls ──

    def deferring(self) -> set[str]:
        """Runs with deferred calls of which none may be served yet, except those held."""
        return self._deferred.runs - self._held.keys()

    def promote(self, run: str) -> None:
        """Let the deferred calls of a run be served although no other follows, unless another of its calls waits: the
        last of each batch key is served like others from now on."""
        mine = [[one for one in queue if one.call.run == run] for queue in self._queues.values()]
        if all(one.call in self._deferred for of_key in mine for one in of_key):
            self._deferred.promote(of_key[-1].call for of_key in mine if of_key)

    def deferred_on(self, states: Iterable[StateKey], beside: Hashable = None) -> Iterator[Batch]:
        """Remove and return the deferred calls on these states, with those that must go before them, batch by batch.
        `beside`: not those with this key."""
        wanted = set(states)
        if not self._deferred.on(wanted):
            return
        for key in [key for key in self._queues if key != beside]:
            queue = [one for one in self._queues[key] if one.call in self._deferred]
            mine = [one.call for one in _before(queue, wanted)]
            if mine:
                self.remove(mine)
                yield Batch(key, mine)

    def ahead(self, fits: Fits) -> list[Call]:
        """The calls that may be in the next batch, if it has one of these batch keys; empty if none may be served."""
        key = self._first(None, fits)
        queue = self._queues[key] if key is not None else ()
        return [one.call for one in queue if not self._deferred.waits(one.call)]

    def settle(self, call: Call, *, failed: bool) -> None:
        """A call of an earlier batch is over; those that waited for it may be served, together unless it failed."""
        alike = self._leads.pop(id(call), None)
        if alike is None or failed:
            return
        for key, queue in self._queues.items():
            if any(one.alike == alike for one in queue):
                self._queues[key] = [one._replace(alike=None) if one.alike == alike else one for one in queue]

    def cancel(self, run: str) -> list[Call]:
        """Remove the waiting calls of a run, held or not."""
        self.release(run)
        removed = [w.call for queue in self._queues.values() for w in queue if w.call.run == run]
        self.remove(removed)
        return removed

    def remove(self, calls: Sequence[Call]) -> None:
        """Remove these calls, compared by identity."""
        if not calls:
            return
        gone = {id(call) for call in calls}
        self._deferred.forget(gone)
        for key, queue in list(self._queues.items()):
            self._keep(key, [w for w in queue if id(w.call) not in gone])
        for run, held in self._held.items():
            self._held[run] = [one for one in held if id(one[1].call) not in gone]

    def _first(self, cut: Cut | None, fits: Fits) -> Hashable | None:
        """The batch key that is next. Its first call is cut if it has too many rows."""
        while True:
            key, first = None, None
            for one, queue in self._queues.items():
                head = self._head(one) if fits(one, (waiting.call for waiting in queue)) else None
                if head is not None and (first is None or head[:2] < first[:2]):
                    key, first = one, head
            if first is None:
                return None
            parts = cut(first.call, first.rows) if cut else ()
            if len(parts) < 2:
                return key
            self._keep(key, [one for one in self._queues[key] if one is not first])
            for index, part in enumerate(parts):
                number = (*first.number, index)
                self._put(part.key, _QueuedCall(first.due, number, part.rows, part.call, part.alike))

    def _head(self, key: Hashable) -> _QueuedCall | None:
        """The first call of a queue that may be served."""
        if not self._leads and not self._deferred:
            return self._queues[key][0]
        busy = set[StateKey]()
        for waiting in self._queues[key]:
            if self._deferred.waits(waiting.call):
                continue
            if busy.isdisjoint(waiting.call.states.values()) and not self._follows(waiting):
                return waiting
            busy.update(waiting.call.states.values())
        return None

    def _follows(self, waiting: _QueuedCall) -> bool:
        """True if a call that is alike is under way."""
        return waiting.alike is not None and waiting.alike in self._leads.values()

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


def _before(deferred: Sequence[_QueuedCall], used: Iterable[StateKey]) -> list[_QueuedCall]:
    """The deferred calls that go before a use of these states, in order: those on them, and those on the states of
    one that does."""
    states = {*used}
    found: list[_QueuedCall] = []
    for one in reversed(deferred):
        if not states.isdisjoint(one.call.states.values()):
            found.append(one)
            states.update(one.call.states.values())
    return found[::-1]
