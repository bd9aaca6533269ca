"""The outside of an engine, which its choices follow from besides its calls: the time, and its device's progress.

An engine asks for it here and nowhere else. So another engine that gets the same calls, and the same answers to these
questions, makes the same choices: the shards of a rank depend on it. Imports no torch.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from walkgraph.engine.device.marks import Mark


class Outside(Protocol):
    def time(self) -> float:
        """Monotonic seconds."""
        ...

    def own(self) -> float:
        """Monotonic seconds for telemetry, which no choice follows from."""
        ...

    def mark(self, mark: Mark) -> Mark:
        """A mark that is asked in place of this one."""
        ...

    def span(self, began: float, finished: float) -> tuple[float, float]:
        """The times of a launch, in place of these, which were measured here."""
        ...

    @property
    def hears(self) -> "Hears | None":
        """None: the engine waits for its device alone."""
        ...


class Hears(Protocol):
    """Waits for messages."""

    def __call__(self, seconds: float, wakes: int | None) -> bool:
        """Wait so many seconds for a message, or for a file to be readable; False if none came. `wakes`: the file's
        descriptor."""
        ...


class AskedMark:
    """A mark whose progress somebody else tells."""

    __slots__ = ("own", "query", "synchronize", "wait")

    def __init__(self, own: Mark, reached: Callable[[Mark], bool]) -> None:
        """`reached`: answers `query` for the mark."""
        self.own, self.query = own, partial(reached, own)
        self.synchronize, self.wait = own.synchronize, own.wait


class Firsthand:
    """An engine's own clock and device."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, hears: Hears | None = None) -> None:
        self.time = self.own = clock
        self.hears = hears

    def mark(self, mark: Mark) -> Mark:
        return mark

    def span(self, began: float, finished: float) -> tuple[float, float]:
        return began, finished


FIRSTHAND: Outside = Firsthand()
