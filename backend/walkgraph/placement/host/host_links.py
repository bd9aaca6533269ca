"""The links between hosts: what a value costs that goes over one."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HostLink:
    """The way between two hosts, as it was measured when the later one joined."""

    first: str
    second: str
    bandwidth: float
    """Bytes a second, in the slower direction."""
    latency: float
    """Seconds from one to the other."""

    def seconds(self, nbytes: int) -> float:
        """Time that so many bytes take."""
        return self.latency + nbytes / self.bandwidth
