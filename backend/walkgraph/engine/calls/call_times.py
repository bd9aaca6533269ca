"""Measured seconds of calls outside loops: of batches by their node and rows, and of each call by its operator."""

from collections.abc import Mapping, Sequence

from walkgraph.abi.calls import Call
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.pacing.batch_times import BatchTimes
from walkgraph.engine.pacing.turns import StepTimes


class CallTimes:
    def __init__(self, nodes: Mapping[str, Loaded]) -> None:
        self._nodes, self._batches, self._each = nodes, BatchTimes(), StepTimes()

    def rows(self, calls: Sequence[Call]) -> int:
        """Rows of a batch of such calls, of one node. A call that its operator can't measure counts as one: what is
        wrong with it is told where it is served."""
        operator, rows = self._nodes[calls[0].node].operator, 0
        for call in calls:
            try:
                rows += operator.rows(call)
            except Exception:  # noqa: BLE001 (as said)
                rows += 1
        return rows

    def of(self, calls: Sequence[Call]) -> float:
        """Seconds that a batch of such calls probably takes; 0 if their node was never measured."""
        return self.of_rows(calls[0].node, self.rows(calls))

    def of_rows(self, node: str, rows: int) -> float:
        """Likewise, of so many rows."""
        return self._batches.of(node, rows)

    def of_each(self, operator: int) -> float:
        """Seconds of a call of an operator, shared with the other calls of its batch; 0 if it was never measured.
        `operator`: its index."""
        return self._each.of(operator)

    def note(self, node: str, rows: int, calls: int, seconds: float) -> None:
        """Note a batch that is over."""
        self._batches.note(node, rows, seconds)
        self._each.note(self._nodes[node].index, seconds / calls)
