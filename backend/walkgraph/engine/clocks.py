"""When work was done, as the host's monotonic clock tells it."""

from typing import NamedTuple


class Timing(NamedTuple):
    """Of a batch of calls or a launch of a loop. Seconds."""

    taken: float
    """It was formed: its tensors and tables are prepared from here."""
    launched: float
    """The host has handed all of it to the device."""
    started: float
    """On the device; on a CPU, where it is taken."""
    finished: float
    """On the device; on a CPU, where the host has done it."""

    @property
    def busy(self) -> float:
        return self.finished - self.started
