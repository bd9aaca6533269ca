"""Marks in a device's work, and the times of a launch. Imports no torch."""

from typing import NamedTuple, Protocol


class Mark(Protocol):
    """A point in a device's work, with the interface of torch's events."""

    def query(self) -> bool:
        """True if the device has reached it."""
        ...

    def synchronize(self) -> None: ...

    def wait(self) -> None:
        """Make later work on the current stream wait for it."""
        ...


class Timing(NamedTuple):
    """When a batch of calls or a launch of a loop was made, in seconds on the host's clock."""

    taken: float
    """When it was formed; its tensors and tables are prepared from then on."""
    launched: float
    """When the host had handed all of it to the device."""
    started: float
    """When it began on the device; on a CPU, the same as `taken`."""
    finished: float
    """When it ended on the device; on a CPU, when the host was done with it."""

    @property
    def busy(self) -> float:
        return self.finished - self.started
