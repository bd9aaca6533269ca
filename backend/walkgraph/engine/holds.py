"""Runs of which nothing may be launched: all of a run's work while it is suspended, its loops while these are held."""

from walkgraph.engine.calls.call_scheduler import CallScheduler
from walkgraph.engine.loops.slot_admission import SlotAdmission


class RunHolds:
    def __init__(self, calls: CallScheduler, loops: SlotAdmission) -> None:
        self._calls, self._loops = calls, loops
        self._held: set[str] = set()
        """Runs whose loops are held."""
        self._stopped: set[str] = set()

    def hold_loops(self, run: str) -> None:
        """Launch nothing more of a run's loops until `release_loops`: they leave their slots. Its calls go on."""
        self._held.add(run)
        self._loops.hold(run)

    def release_loops(self, run: str) -> None:
        self._held.discard(run)
        if run not in self._stopped:
            self._loops.release(run)

    def stop(self, run: str) -> None:
        """Launch nothing more of a run until `go_on`."""
        self._stopped.add(run)
        self._calls.hold(run)
        self._loops.hold(run)

    def quiet(self, run: str) -> bool:
        """Whether nothing of a stopped run is in flight."""
        return not (self._loops.occupies(run) or self._calls.in_flight.has(run))

    def go_on(self, run: str) -> None:
        """The end of `stop`; loops that are held stay so."""
        self._stopped.discard(run)
        self._calls.release(run)
        if run in self._held:
            self._loops.wake()
        else:
            self._loops.release(run)

    def forget(self, run: str) -> None:
        self._held.discard(run)
        self._stopped.discard(run)
