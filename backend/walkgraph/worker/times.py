"""Where a run's time goes on one rank, node by node."""

from collections import defaultdict
from dataclasses import dataclass

from walkgraph.ids import Rank
from walkgraph.wire.messages import NodeTime
from walkgraph.worker.events import CallDone
from walkgraph.worker.tables import UseTable


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    busy: float = 0.0
    queued: float = 0.0


class Times:
    def __init__(self) -> None:
        self._nodes: dict[str, _Sum] = defaultdict(_Sum)

    def add(self, use: UseTable, done: CallDone) -> None:
        """A loop's time is shared out evenly among the uses inside: nothing tells them apart."""
        body = (use,) if use.region is None else use.region.body
        for one in body:
            node = self._nodes[one.node.name if one.node else one.plan.op]
            node.calls += done.iterations
            node.busy += done.busy / len(body)
            node.queued += done.queued / len(body)

    def told(self, rank: Rank) -> tuple[NodeTime, ...]:
        return tuple(
            NodeTime(node=name, rank=rank, calls=one.calls, busy=one.busy, queued=one.queued)
            for name, one in self._nodes.items()
        )
