"""Suspended runs of a simulated rank: their states move to host memory and back, in simulated time.

here ──suspend──> stopping ──nothing in flight──> leaving ──> out ──resume──> coming ──> here
"""

from dataclasses import dataclass
from typing import Literal

from walkgraph.engine.holds import RunHolds
from walkgraph.engine.kv.swap import Swapped
from walkgraph.simulation.rank.device import SimulatedMark, SimulatedQueue
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.simulator import Simulator

SWAP_SECONDS = 0.01
"""Mean duration of a move."""


@dataclass(slots=True)
class _SwappedRun:
    state: Literal["stopping", "leaving", "out", "coming"] = "stopping"
    wanted: bool = False
    """The run should be moved back."""
    asked: bool = True
    """The suspension has not been reported yet."""
    mark: SimulatedMark | None = None
    """End of the move under way."""

    @property
    def over(self) -> bool:
        return self.mark is not None and self.mark.query()


class SimulatedSwap:
    """The counterpart of `engine.kv.swap.Swap` for a `StateStore`."""

    def __init__(self, simulator: Simulator, queue: SimulatedQueue, states: StateStore, holds: RunHolds) -> None:
        self._simulator, self._queue, self._states, self._holds = simulator, queue, states, holds
        self._suspended: dict[str, _SwappedRun] = {}

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._suspended)

    def here(self, run: str) -> bool:
        return run not in self._suspended or self._suspended[run].state == "stopping"

    def suspend(self, run: str) -> None:
        found = self._suspended.get(run)
        if found is None:
            self._simulator.counts["runs suspended"] += 1
            self._suspended[run] = _SwappedRun()
            self._holds.stop(run)
        else:
            found.wanted, found.asked = False, True

    def resume(self, run: str) -> None:
        if run in self._suspended:
            self._suspended[run].wanted = True

    def cancel(self, run: str) -> None:
        self._suspended.pop(run, None)

    def advance(self) -> list[Swapped]:
        """Advances all moves; returns the runs that are out or back now."""
        if not self._suspended:
            return []
        events = (self._advance(run, one) for run, one in list(self._suspended.items()))
        return [event for event in events if event is not None]

    @property
    def idle(self) -> bool:
        """True if no move is under way or wanted."""
        moves = self._suspended.values()
        return not moves or all(one.state == "out" and not one.wanted and not one.asked for one in moves)

    def due(self) -> list[float]:
        """Times at which moves end."""
        return [one.mark.at for one in self._suspended.values() if one.mark is not None]

    def _advance(self, run: str, one: _SwappedRun) -> Swapped | None:
        if one.state == "stopping" and self._holds.quiet(run):
            self._states.move_out(run)
            one.state, one.mark = "leaving", self._queue.launch(SWAP_SECONDS)
        if one.state == "leaving" and one.over:
            one.state, one.mark = "out", None
        if one.state == "out" and one.asked:
            one.asked = False
            return Swapped(run, out=True)
        if one.state == "out" and one.wanted:
            self._states.move_back(run)
            one.state, one.mark = "coming", self._queue.launch(SWAP_SECONDS)
        if one.state == "coming" and one.over:
            one.state, one.mark = "stopping", None
            if not one.wanted:
                return self._advance(run, one)
            self._simulator.counts["runs resumed"] += 1
            del self._suspended[run]
            self._holds.go_on(run)
            return Swapped(run, out=False)
        return None
