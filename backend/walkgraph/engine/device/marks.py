"""Points of a device's work, and when a launch was made, started and finished. It imports no torch."""

from typing import NamedTuple, Protocol


class Mark(Protocol):
    """A point of a device's work, as torch's events are."""

    def query(self) -> bool:
        """Whether it was reached."""
        ...

    def synchronize(self) -> None: ...

    def wait(self) -> None:
        """What is launched on the current stream from now on is behind it."""
        ...


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
