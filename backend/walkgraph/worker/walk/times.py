"""The totals of a run on one rank: time by node, tokens read, and how its loops ended."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import BOUND, LoopPlan
from walkgraph.wire.messages import LoopEnd, NodeTime, RankDone
from walkgraph.worker.events import CallDone
from walkgraph.worker.tables.walk_tables import DeviceLoopTable, UseTable


@dataclass(slots=True)
class _NodeTime:
    calls: int = 0
    """Calls; iterations for a loop."""
    busy: float = 0.0
    queued: float = 0.0
    kept: int = 0
    """Calls that were not made, as their outputs were kept."""


@dataclass(slots=True)
class _Reads:
    """Tokens that a node's calls added to its states, and how many of them were found in kept pages."""

    read: int = 0
    found: int = 0


@dataclass(slots=True)
class _LoopTime(_NodeTime):
    spans: bool = False
    inside: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class _End:
    iterations: int = 0
    reason: str = BOUND
    last: tuple[int, ...] = ()
    """Step and iteration of the call that gave the reason. Items of a map end in any order."""


class Times:
    def __init__(self) -> None:
        self._nodes: dict[str, _NodeTime] = defaultdict(_NodeTime)
        self._reads: dict[str, _Reads] = defaultdict(_Reads)
        self._loops: dict[tuple[str, str], _LoopTime] = defaultdict(_LoopTime)
        """Loops by Walk and name."""
        self._ends: dict[tuple[str, str], _End] = defaultdict(_End)

    def add(self, walk: str, use: UseTable, done: CallDone) -> None:
        for (link, _), busy in zip(use.links, done.links, strict=False):
            of_link = self._nodes[link.node]
            of_link.calls += 1
            of_link.busy += busy
        node = self._nodes[use.links[0][0].node if use.links else _name(use)]
        node.queued += done.queued
        if not use.links:
            node.calls += 1
            node.busy += done.busy
            node.kept += done.kept
        outputs: Mapping[str, Any] = done.outputs or {}
        for judge in use.judges:
            self._ended(walk, judge.loop, done, judge.reason(outputs))
        if not use.looped and done.read:
            reads = self._reads[_name(use)]
            reads.read += done.read
            reads.found += done.found

    def add_loop(self, walk: str, table: DeviceLoopTable, calls: Sequence[int], done: CallDone) -> None:
        """Add a device loop. `calls`: those of each use inside. The time counts for the loop as a whole, because it
        can't be divided among its uses."""
        device_loop = table.loop
        loop = self._loops[walk, device_loop.plan.name]
        loop.calls += done.iterations
        loop.busy += done.busy
        loop.queued += done.queued
        loop.spans = bool(device_loop.others)
        for use, count in zip(table.uses, calls, strict=True):
            if count:
                loop.inside[_name(use)] = loop.inside.get(_name(use), 0) + count
        if device_loop.leads and device_loop.until is not None:
            self._ended(walk, device_loop.plan, done, done.reason)

    def _ended(self, walk: str, loop: LoopPlan, done: CallDone, reason: str) -> None:
        end, at = self._ends[walk, loop.name], (done.ref.step, *done.ref.iteration)
        end.iterations += done.iterations
        if at >= end.last:
            end.reason, end.last = reason, at

    def told(self, rank: Rank, run: RunId) -> RankDone:
        # Views of one model read the same tokens: the largest figure is what the run read.
        read, found = max(((one.read, one.found) for one in self._reads.values()), default=(0, 0))
        return RankDone(
            rank=rank,
            run=run,
            times=(
                *(
                    NodeTime(node=name, rank=rank, calls=one.calls, busy=one.busy, queued=one.queued, kept=one.kept)
                    for name, one in self._nodes.items()
                ),
                *(
                    NodeTime(
                        node=name,
                        rank=rank,
                        calls=one.calls,
                        busy=one.busy,
                        queued=one.queued,
                        walk=walk,
                        inside=one.inside,
                        spans=one.spans,
                    )
                    for (walk, name), one in self._loops.items()
                ),
            ),
            loops=tuple(
                LoopEnd(walk=walk, loop=loop, iterations=end.iterations, reason=end.reason)
                for (walk, loop), end in self._ends.items()
            ),
            read=read,
            found=found,
        )


def _name(use: UseTable) -> str:
    return use.node.name if use.node else use.plan.op
