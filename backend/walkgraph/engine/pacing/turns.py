"""The order of a device's work where some of it has a deadline. Pure: it sees seconds and keys.

- Work without a deadline goes first as long as every deadline can still be kept after it (`leaves_time`). Work that is
  due is done in the order of the deadlines, which keeps all of them if any order does.
- Work that has waited while others had `1 / SHARE - 1` times its own seconds goes next whatever is due (`Shares`), so
  that nothing starves where there is more to do than time.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

NEAR_SECONDS = 0.5
"""Playback within which a run counts as near its deadline. A second chunk of sound must follow a short first one within
this."""
FIRST_SECONDS = 0.25
"""Time within which a run that plays nothing yet should."""
SPARE_SECONDS = 0.03
"""Time that is kept free before a deadline, for what follows the loops: a vocoder, copies, the host."""
SHARE = 0.25
"""The least share of the device's time that waiting work gets."""
SLOWER, FASTER = 0.1, 0.5
"""Weights of a longer and a shorter measurement: a launch that waited for others looks longer than it is."""


class DueWork(NamedTuple):
    """Work with a deadline."""

    due: float
    seconds: float
    """Time that it takes the device."""


def leaves_time(demands: Iterable[DueWork], seconds: float, now: float) -> bool:
    """True if other work may take the device for so long, and all deadlines can be kept after it."""
    at = now + seconds
    for demand in sorted(demands):
        at += demand.seconds
        if at > demand.due:
            return False
    return True


class StepTimes:
    """Measured seconds by kind of work."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}

    def note(self, kind: Hashable, seconds: float) -> None:
        known = self._seconds.get(kind, seconds)
        self._seconds[kind] = known + (seconds - known) * (FASTER if seconds < known else SLOWER)

    def of(self, kind: Hashable) -> float:
        """0 if it was never measured."""
        return self._seconds.get(kind, 0.0)


class Shares:
    """Keeps what waits from starving."""

    def __init__(self, share: float = SHARE) -> None:
        self._times = 1 / share - 1
        self._passed: dict[Hashable, float] = {}
        """Work that waits -> the device's seconds that others have had meanwhile."""

    def owed(self, key: Hashable, seconds: float) -> bool:
        """True if it is this work's turn, which takes so many seconds."""
        return self._passed.get(key, 0.0) >= max(seconds, 1e-9) * self._times

    def passed(self, key: Hashable) -> float:
        return self._passed.get(key, 0.0)

    def launched(self, key: Hashable, seconds: float, waiting: Iterable[Hashable]) -> None:
        """Note a launch, and what else was ready; what isn't ready any more waits for nothing."""
        passed = self._passed
        self._passed = {one: passed.get(one, 0.0) + seconds for one in waiting if one != key}


class Rows(NamedTuple):
    """The rows of a launch."""

    chosen: Sequence[int]
    some: bool
    """Others wait, because they are ahead."""


def chosen_rows(dues: Sequence[float], until: float, sizes: Sequence[int]) -> Rows:
    """The rows to launch, of which each is due then: those before `until` alone if a smaller batch has room for them,
    filled up with those that are due next. All rows if none of them are near, or all are."""
    near = sum(due < until for due in dues)
    places = batch_size(near, sizes)
    if not 0 < near < len(dues) or places >= len(dues):
        return Rows(range(len(dues)), some=False)
    return Rows(sorted(range(len(dues)), key=lambda at: dues[at])[:places], some=True)


def batch_size(rows: int, sizes: Sequence[int]) -> int:
    """The smallest of the batch sizes that has room for so many rows, or the largest of all."""
    return next((size for size in sizes if size >= rows), sizes[-1])
