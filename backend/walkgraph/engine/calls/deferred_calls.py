"""Deferred calls, and when they are made although nothing follows them.

added ──> the next call on their states ──> made with it
      └─> nothing of the run for some collections ──> made alone
"""

from collections.abc import Iterable

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.inflight import InFlightBatches
from walkgraph.engine.calls.schedule import Schedule

QUIET = 2
"""Collections without a sign of a run, after which its deferred calls are made. The run's next call comes within one or
two, as each brings values to its Walk."""


class DeferredCalls:
    def __init__(self, schedule: Schedule, in_flight: InFlightBatches) -> None:
        self._schedule, self._in_flight = schedule, in_flight
        self._open: dict[int, Call] = {}
        """Those that aren't settled, by their ids."""
        self._since: dict[str, int] = {}
        """Runs with deferred calls -> the collection before which something of the run moved last."""
        self._collections = 0

    def __contains__(self, call: Call) -> bool:
        return id(call) in self._open

    @property
    def open(self) -> int:
        """The number of those that aren't settled."""
        return len(self._open)

    @property
    def restless(self) -> bool:
        """True if some will be made soon although nothing comes."""
        return any(not self._in_flight.has(run) for run in self._schedule.deferring())

    def added(self, call: Call, *, deferred: bool) -> None:
        """Note a call, deferred or not, that has been queued."""
        if deferred:
            self._open[id(call)] = call
        if deferred or call.run in self._since:
            self._since[call.run] = self._collections

    def settled(self, call: Call) -> None:
        """Note a call, deferred or not, that is done."""
        self._open.pop(id(call), None)
        if call.run in self._since:
            self._since[call.run] = self._collections

    def forget(self, run: str, calls: Iterable[Call]) -> None:
        """Forget a run that is cancelled, and its calls that are not made."""
        self._since.pop(run, None)
        for call in calls:
            self._open.pop(id(call), None)

    def collected(self) -> None:
        """Note a collection: deferred calls of runs that have been quiet for long enough may be served."""
        self._collections += 1
        if not self._since:
            return
        deferring = self._schedule.deferring()
        moving = deferring | {call.run for call in self._open.values()}
        for run in self._since.keys() - moving:
            del self._since[run]
        for run in deferring:
            if self._collections - self._since.get(run, 0) > QUIET and not self._in_flight.has(run):
                self._schedule.promote(run)
