"""An engine's waits while nothing can be launched: for the oldest launch, or for a message.

the device surely works for a while ──> for messages, with looks at the device
long work should be over, or others slow it ──> for both at once: a thread watches the device
its work is short, or about to be over ──> for the device alone, which finds its end soonest
"""

from collections.abc import Callable

from walkgraph.engine.calls.call_scheduler import CallScheduler
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.device.outside import Hears
from walkgraph.engine.loops.scheduler import LoopScheduler

SURE_SECONDS = 0.0015
"""A device that probably takes no longer is waited for without looking for messages, as that would find its end up to
a millisecond late."""
LOOK_SECONDS = 0.001
"""The longest wait for a message, until the device is looked at again."""
SHORT_SECONDS = 0.003
"""Shorter work is waited for by itself: a thread finds its end later, and messages wait no longer than the work."""
WATCH_SECONDS = 1.0
"""The longest wait while a thread watches the device."""


class DeviceWait:
    def __init__(
        self, calls: CallScheduler, loops: LoopScheduler, clock: Callable[[], float], hears: Hears | None
    ) -> None:
        """`hears`: None: the engine waits for its device alone."""
        self._calls, self._loops, self._clock, self._hears = calls, loops, clock, hears

    @property
    def wakes(self) -> int | None:
        """The descriptor of a file that is readable once a thread has made a call; None if none makes any."""
        threads = self._calls.threads
        return threads.wakes if threads is not None and self._calls.in_flight.threaded else None

    def wait(self) -> bool:
        """Wait. Returns True if a launch of the loops is still to be waited for, by `collect`."""
        loops, in_flight = self._loops, self._calls.in_flight
        if loops.waits_for_peers:
            return False
        turns, since = in_flight.turns, loops.launcher.since
        looped = loops.in_flight and (not turns or since is None or since < turns[0].began)
        left = loops.launcher.left if looped else lambda: in_flight.left(self._clock(), turns=bool(turns))
        if self._heard(left):
            return False
        seconds, mark = loops.launcher.oldest if looped else in_flight.oldest(turns=bool(turns))
        # Batches beside others slow those down.
        slowed = bool(in_flight.beside) and (looped or bool(turns))
        unsure = not 0 < seconds < SHORT_SECONDS and (slowed or left() <= 0)
        if mark is not None and unsure and not mark.query() and self._watched(mark):
            return False
        if not looped:
            in_flight.wait(turns=bool(turns))
        return looped

    def _heard(self, left: Callable[[], float]) -> bool:
        """Wait for a message while the device surely works; False if none came. `left`: gives the seconds that it
        probably still does."""
        while self._hears is not None and (seconds := left()) > SURE_SECONDS:
            if self._hears(min(seconds - SURE_SECONDS, LOOK_SECONDS), self.wakes):
                return True
        return False

    def _watched(self, mark: Mark) -> bool:
        """Wait for a mark or a message, whichever comes first; False if the engine hears nothing. A thread watches the
        mark, so its end is found a little later than by waiting for it alone."""
        threads = self._calls.threads
        if self._hears is None or threads is None:
            return False
        threads.watch(mark)
        self._hears(WATCH_SECONDS, threads.wakes)
        threads.heard()
        return True
