"""The totals of a run, which its end tells: times, ends of loops, how it was played."""

import msgspec

from walkgraph.ids import Rank
from walkgraph.wire.watching import Message


class NodeTime(Message, frozen=True, tag="node_time"):
    """A run's time on one rank: busy seconds, calls, and seconds spent ready but not yet running. For a node, or, with
    `walk`, for a device loop, where the times of its nodes are unknown."""

    node: str
    """Name of the node or loop."""
    rank: Rank
    calls: int
    """Calls, or iterations of a loop."""
    busy: float
    queued: float
    walk: str = ""
    """Walk of a loop; empty for a node."""
    inside: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """For a loop: node -> number of its calls."""
    spans: bool = False
    """The loop has parts on other ranks, which wait for each other on their devices: its times include theirs."""
    kept: int = 0
    """Calls that were not made: their outputs are those of earlier calls with the same inputs."""


class LoopEnd(Message, frozen=True, tag="loop_end"):
    """How a loop with an `until` ended in one run."""

    walk: str
    loop: str
    iterations: int
    """Iterations summed over all entries of the loop."""
    reason: str
    """The end of its last entry. `stop`: its `until`. `bound`: its count. Otherwise the flag that named the end."""


class Played(Message, frozen=True, tag="played"):
    """The playback of what a run gave as it came, such as speech, on the rank where it was latest."""

    seconds: float
    underruns: int = 0
    """Times that something left after a player that began with the first of it had run dry."""
    late: float = 0.0
    """Seconds by which that was too late, in all."""
