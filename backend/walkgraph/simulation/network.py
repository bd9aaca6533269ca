"""Messages between processes: they take their time, and keep their order between two processes, as sockets do."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from walkgraph.simulation.timeline import Timeline

MEAN_SECONDS = 0.001
LATE_SECONDS = 0.3
"""The longest that a message may take."""
LATE = 0.04
"""The share of messages that are late."""


class Process(NamedTuple):
    """Names one start of a rank, or the conductor."""

    rank: int
    start: int


CONDUCTOR = Process(-1, 0)


class Packet(NamedTuple):
    """A message on its way between two processes."""

    message: Any
    value: Any = None
    """What the message carries, as its receiver unpacks it."""
    ticket: int | None = None
    """Of the sender's arena: the receiver answers `Freed`."""


class Network:
    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        self.flying = 0
        """Messages on their way."""
        self.carried = 0
        """Messages so far."""
        self._timeline, self._chance = timeline, chance
        self._last: dict[tuple[Process, Process], float] = {}
        """When the last message of a pair arrives."""
        self._slow = defaultdict[tuple[Process, Process], float](lambda: self._chance.choice((1.0, 1.0, 5.0)))

    def send(self, source: Process, target: Process, packet: Packet, deliver: Callable[[Packet], None]) -> None:
        for one in self.passed(source, target, packet):
            arrives = self.arrival(source, target, one)
            self.flying += 1
            self.carried += 1
            self._timeline.at(arrives, lambda one=one: self._arrive(one, deliver))

    def passed(self, source: Process, target: Process, packet: Packet) -> Sequence[Packet]:
        """What becomes of a packet: itself. A network that loses or repeats messages gives others."""
        return (packet,)

    def arrival(self, source: Process, target: Process, packet: Packet) -> float:
        """When a packet is there: never before those that its pair was given before it."""
        pair = source, target
        seconds = self._chance.random() * 2 * MEAN_SECONDS * self._slow[pair]
        if self._chance.random() < LATE:
            seconds += self._chance.random() * LATE_SECONDS
        at = max(self._timeline.now + seconds, self._last.get(pair, 0.0))
        self._last[pair] = at
        return at

    def _arrive(self, packet: Packet, deliver: Callable[[Packet], None]) -> None:
        self.flying -= 1
        deliver(packet)
