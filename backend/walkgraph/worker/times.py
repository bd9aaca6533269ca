"""Where a run's time goes on one rank, node by node."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from walkgraph.ids import Rank
from walkgraph.wire.messages import NodeTime
from walkgraph.worker.events import CallDone
from walkgraph.worker.tables import RegionTable, UseTable


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    busy: float = 0.0
    queued: float = 0.0


class Times:
    def __init__(self) -> None:
        self._nodes: dict[str, _Sum] = defaultdict(_Sum)

    def add(self, use: UseTable, done: CallDone) -> None:
        self._add(use, 1, done.busy, done.queued)

    def add_loop(self, region: RegionTable, calls: Sequence[int], done: CallDone) -> None:
        """`calls` of each use inside: the loop's time is shared out by them, as nothing else tells uses apart."""
        most = max(1, sum(calls))
        for use, count in zip(region.body, calls, strict=True):
            self._add(use, count, done.busy * count / most, done.queued * count / most)

    def _add(self, use: UseTable, calls: int, busy: float, queued: float) -> None:
        if calls:
            node = self._nodes[use.node.name if use.node else use.plan.op]
            node.calls += calls
            node.busy += busy
            node.queued += queued

    def told(self, rank: Rank) -> tuple[NodeTime, ...]:
        return tuple(
            NodeTime(node=name, rank=rank, calls=one.calls, busy=one.busy, queued=one.queued)
            for name, one in self._nodes.items()
        )
