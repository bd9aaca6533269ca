"""The time, random numbers, counters and fault reports that all parts of a simulated world share.

Nothing here reads a clock: simulated time passes from one planned action to the next.
"""

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]


class Violation(AssertionError):
    """Something that must not happen in a world. The message names the scenario, the seed, the time and the run."""


class Simulator:
    def __init__(self, name: str, seed: int) -> None:
        """`name`: the scenario's, for messages."""
        self.now = 0.0
        """Seconds since the world began."""
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.apart = random.Random(f"apart {seed}")  # noqa: S311 - no secret
        """Draws for later additions, so that `chance` goes on as before."""
        self.counts = Counter[str]()
        """Occurrences by kind."""
        self.blocked = 0
        """Number of sockets that take no messages at the moment."""
        self._name, self._seed = name, seed
        self._planned: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def at(self, when: float, action: Action) -> None:
        """Plans an action. Those for the same time run in the order in which they were planned."""
        heappush(self._planned, (when if when > self.now else self.now, next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def step(self) -> bool:
        """Runs the next action. Returns False if none is planned. Raises Violation if it raises anything."""
        if not self._planned:
            return False
        self.now, _, action = heappop(self._planned)
        try:
            action()
        except Violation:
            raise
        except Exception as raised:
            raise self.fail(f"a process is ended by {raised!r}") from raised
        return True

    def fail(self, what: str, run: str = "") -> Violation:
        """Makes the violation to raise."""
        of = f"run {run}: " if run else ""
        return Violation(f"scenario `{self._name}`, seed {self._seed}, {self.now:.4f} s: {of}{what}")
