"""The totals of a run, which its end tells: times, ends of loops, how it was played."""

from collections.abc import Iterable

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
    """The end of a loop with an `until` in one run: a loop in a Walk, or one of the task's steps."""

    walk: str
    """Empty for a loop of steps."""
    loop: str
    iterations: int
    """Iterations, or passes of steps, summed over all entries of the loop."""
    reason: str
    """The end of its last entry. `stop`: its `until`. `bound`: its count. Otherwise the flag that named the end."""

    @property
    def name(self) -> str:
        """`walk.loop`, or the name of a loop of steps, which has no dot."""
        return f"{self.walk}.{self.loop}" if self.walk else self.loop


def joined_ends(ends: Iterable[LoopEnd]) -> tuple[LoopEnd, ...]:
    """One end for each loop, where parts of a run each tell of it in their order."""
    found: dict[str, LoopEnd] = {}
    for end in ends:
        before = found.get(end.name)
        iterations = end.iterations + (before.iterations if before is not None else 0)
        found[end.name] = msgspec.structs.replace(end, iterations=iterations)
    return tuple(found.values())


class Played(Message, frozen=True, tag="played"):
    """The playback of what a run gave as it came, such as speech, on the rank where it was latest."""

    seconds: float
    underruns: int = 0
    """Times that something left after a player that began with the first of it had run dry."""
    late: float = 0.0
    """Seconds by which that was too late, in all."""
