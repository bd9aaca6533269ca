"""Runs that may launch nothing: all work of a suspended run, or only the loops of a run whose loops are held."""

from typing import Protocol


class InFlightLike(Protocol):
    def has(self, run: str) -> bool: ...


class HeldCalls(Protocol):
    """The schedule of calls, as far as holds need it."""

    def hold(self, run: str) -> None: ...

    def release(self, run: str) -> None: ...


class HeldLoops(Protocol):
    """The loops' admission, as far as holds need it."""

    def hold(self, run: str) -> None: ...

    def release(self, run: str) -> None: ...

    def wake(self) -> None: ...

    def occupies(self, run: str) -> bool: ...


class RunHolds:
    def __init__(self, calls: HeldCalls, in_flight: InFlightLike, loops: HeldLoops) -> None:
        self._calls, self._in_flight, self._loops = calls, in_flight, loops
        self.held: set[str] = set()
        """Runs whose loops are held."""
        self._stopped: set[str] = set()

    def hold_loops(self, run: str) -> None:
        """Launch no more of a run's loops until `release_loops`; they leave their slots. Its calls go on."""
        self.held.add(run)
        self._loops.hold(run)

    def release_loops(self, run: str) -> None:
        self.held.discard(run)
        if run not in self._stopped:
            self._loops.release(run)

    def stop(self, run: str) -> None:
        """Launch no more of a run until `go_on`."""
        self._stopped.add(run)
        self._calls.hold(run)
        self._loops.hold(run)

    def quiet(self, run: str) -> bool:
        """True if a stopped run has nothing in flight and no slot."""
        return not (self._loops.occupies(run) or self._in_flight.has(run))

    def go_on(self, run: str) -> None:
        """End `stop`. Loops held by `hold_loops` stay held."""
        self._stopped.discard(run)
        self._calls.release(run)
        if run in self.held:
            self._loops.wake()
        else:
            self._loops.release(run)

    def forget(self, run: str) -> None:
        self.held.discard(run)
        self._stopped.discard(run)
