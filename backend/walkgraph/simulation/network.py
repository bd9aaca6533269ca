"""The simulated network: frames are delayed at random, but stay in order between two processes, as on sockets."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from walkgraph.simulation.simulator import Simulator

MEAN_SECONDS = 0.001
LATE_SECONDS = 0.3
"""Longest extra delay of a late frame."""
LATE = 0.04
"""Share of late frames."""

Frames = list[bytes]
"""One message of a socket."""


class Endpoint(NamedTuple):
    """A sender or receiver of messages: one start of a rank, or the conductor."""

    rank: int
    start: int


CONDUCTOR = Endpoint(-1, 0)


class Network:
    def __init__(self, simulator: Simulator) -> None:
        self.in_flight = 0
        self._simulator, self._chance = simulator, simulator.chance
        self._last: dict[tuple[Endpoint, Endpoint], float] = {}
        """Time at which the last frames of each pair arrive."""
        self._slow = defaultdict[tuple[Endpoint, Endpoint], float](lambda: self._chance.choice((1.0, 1.0, 5.0)))

    def send(self, source: Endpoint, target: Endpoint, frames: Frames, deliver: Callable[[Frames], None]) -> None:
        for one in self.passed(source, target, frames):
            arrives = self.arrival(source, target, one)
            self.in_flight += 1
            self._simulator.counts["messages"] += 1
            self._simulator.at(arrives, partial(self._arrive, one, deliver))

    def passed(self, source: Endpoint, target: Endpoint, frames: Frames) -> Sequence[Frames]:
        """The messages that get through: all. A network that loses or repeats messages overrides this."""
        return (frames,)

    def arrival(self, source: Endpoint, target: Endpoint, frames: Frames) -> float:
        """Time at which frames arrive: never before earlier ones from the same source to the same target."""
        pair = source, target
        seconds = self._chance.random() * 2 * MEAN_SECONDS * self._slow[pair]
        if self._chance.random() < LATE:
            self._simulator.counts["late messages"] += 1
            seconds += self._chance.random() * LATE_SECONDS
        at = max(self._simulator.now + seconds, self._last.get(pair, 0.0))
        self._last[pair] = at
        return at

    def _arrive(self, frames: Frames, deliver: Callable[[Frames], None]) -> None:
        self.in_flight -= 1
        deliver(frames)
