"""The clocks of other hosts, in terms of that of the service's host.

Times are seconds of a host's monotonic clock. Each host counts from another beginning, and no two clocks are equally
fast: a time of one host is a time of the other after an offset is added, which drifts.

conductor -> worker    Ping
worker -> conductor    Pong
"""

import msgspec

from walkgraph.ids import Rank
from walkgraph.wire.watching import Message


class HostClock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An estimate of the clock of another host, with its error bound. It holds near `at`."""

    host: str
    """As the plan names it."""
    at: float
    """A time of that host."""
    offset: float
    """Seconds to add to `at` for the time of the service's host."""
    drift: float
    """Change of the offset per second."""
    error: float
    """The most seconds by which `offset` may be wrong."""
    drift_error: float
    """The most by which `drift` may be wrong."""

    def here(self, at: float) -> float:
        """A time of the other host as one of the service's."""
        return at + self.offset + self.drift * (at - self.at)

    def error_at(self, at: float) -> float:
        """The most seconds by which `here(at)` may be wrong."""
        return self.error + self.drift_error * abs(at - self.at)


class Alignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of another host that were changed into times of the service's."""

    host: str
    """As the plan names it."""
    offset: float
    """Seconds that were added."""
    error: float
    """The most seconds by which they may be wrong."""


class Ping(Message, frozen=True, tag="ping"):
    """Answered by `Pong` between two steps of the engine."""

    number: int
    clock: HostClock | None = None
    """The clock of the rank's host; None on the service's host, and while it isn't known."""


class Pong(Message, frozen=True, tag="pong"):
    rank: Rank
    number: int
    at: float
    """When it read the ping, by the clock of its host."""
