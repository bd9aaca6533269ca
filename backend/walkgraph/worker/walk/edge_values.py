"""Values on a step's edges: on the target's side until no later iteration reads them, on the source's side until they
leave, and those for the client as its request selects them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor

from walkgraph.placement.selection import Selection
from walkgraph.placement.tables import EdgePlan, Gather
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT, Report
from walkgraph.worker.tables.walk_tables import UseTable, WalkTable
from walkgraph.worker.walk.cursor import Vector
from walkgraph.worker.walk.progress import Progress

EMPTY: Final[dict[str, Any]] = {}
"""Outputs of a device loop without iterations."""
_KEPT, _GONE = 1, 2

Give = Callable[[EdgePlan, Vector, Any], None]


def _under(vectors: Sequence[Vector], prefix: Vector) -> bool:
    """True if one of the vectors begins with the prefix."""
    return any(vector[: len(prefix)] == prefix for vector in vectors)


class CollectedParts(list[Any]):
    """Values that a device loop gives to an outer loop, which goes on collecting."""


class ArrivedValues:
    """Values on the target's side of edges."""

    def __init__(self) -> None:
        self.by_edge: dict[int, dict[Vector, Any]] = {}
        """Edge -> key -> value."""

    def put(self, edge: int, key: Vector, value: Any) -> None:
        self.by_edge.setdefault(edge, {})[key] = value

    def has(self, edge: int, key: Vector) -> bool:
        return key in self.by_edge.get(edge, ())

    def merged(self, edges: Sequence[EdgePlan], first: EdgePlan, key: Vector) -> Any:
        """The value of those of a port's edges that stand for the same as `first`: at most one has a value. ABSENT if
        none has; None while that isn't known."""
        complete = True
        for edge in edges:
            if (edge.carried, edge.common) == (first.carried, first.common):
                values = self.by_edge.get(edge.index, {})
                if values.get(key, ABSENT) is not ABSENT:
                    return values[key]
                complete = complete and key in values
        return ABSENT if complete else None

    def forget(self, table: UseTable, to: Vector | None) -> None:
        """Drop values on the use's input edges that no later iteration of it reads."""
        for _, edges in table.inputs:
            for edge in edges:
                values = self.by_edge.get(edge.index)
                if not values:
                    continue
                if to is None:
                    del self.by_edge[edge.index]
                elif edge.common:
                    oldest = (*to[: edge.common - 1], to[edge.common - 1] - 1) if edge.carried else to[: edge.common]
                    # Values come in the order of their keys.
                    while values and (key := next(iter(values))) < oldest:
                        del values[key]


class LeavingValues:
    """Values on the source's side of edges: given by a use, and held back by its loops."""

    def __init__(self, table: WalkTable, progress: Progress, gather: Callable[[Sequence[Any], Gather], Any]) -> None:
        """`gather`: makes one value of those that a loop collected."""
        self._loops, self._progress, self._gather = table.plan.loops, progress, gather
        self._held: dict[int, list[Any]] = {}
        """Edge -> values of the iterations so far."""
        self._outputs: dict[int, dict[str, Any]] = {}
        """Use -> outputs of its current iteration, until it moves on."""
        self._left: dict[int, int] = {}
        """Leaving edge of a use that has not moved on -> `_KEPT` or `_GONE`."""

    def put(self, use: int, outputs: dict[str, Any]) -> None:
        self._outputs[use] = outputs

    def leave(self, index: int, table: UseTable, at: Vector, ended: int, untaken: Sequence[Vector], give: Give) -> None:
        """Let the values of iteration `at` leave; those of a loop leave once it has ended. All calls under
        `at[:ended]` are over. `untaken`: later iterations in which another branch was taken."""
        outputs = self._outputs.get(index)
        if outputs is None:
            return
        for edge in table.outputs:
            left = self._left.get(edge.index)
            if edge.leave in ("none", "pieces") or left == _GONE:
                continue
            if edge.leave == "each":
                drop = self._dropped(table, edge, at)
                if drop is None:
                    continue
                if not drop:
                    give(edge, at, outputs.get(edge.source.port, ABSENT))
                self._left[edge.index] = _GONE
                continue
            if left is None and outputs is not EMPTY:
                drop = edge.leave == "collect" and self._dropped(table, edge, at)
                if drop is None:
                    continue
                if not drop:
                    self._keep(edge, outputs.get(edge.source.port, ABSENT))
                self._left[edge.index] = _KEPT
            if untaken and edge.leave == "last" and _under(untaken, at[: edge.common]):
                self._held.pop(edge.index, None)
            if ended <= edge.common:
                self._left[edge.index] = _GONE
                give(edge, at[: edge.common], self.drain(edge))

    def drain(self, edge: EdgePlan) -> Any:
        held = self._held.pop(edge.index, [])
        if not held:
            return ABSENT
        return self._gather(held, edge.gather) if edge.leave == "collect" else held[-1]

    def take(self, edge: int) -> list[Any]:
        """The values that are held on an edge which leaves all loops here."""
        return self._held.pop(edge, [])

    def forget(self, index: int, table: UseTable) -> None:
        """Forget the outputs of a use that moves on."""
        self._outputs.pop(index, None)
        for edge in table.outputs:
            self._left.pop(edge.index, None)

    def _keep(self, edge: EdgePlan, value: Any) -> None:
        held = self._held.setdefault(edge.index, [])
        if edge.leave == "last":
            held.clear()
        if isinstance(value, CollectedParts):
            held.extend(value)
        elif value is not ABSENT:
            held.append(value)

    def _dropped(self, table: UseTable, edge: EdgePlan, at: Vector) -> bool | None:
        """True if the iteration's value is suppressed; None while there is no verdict on its innermost loop.

        Only that loop counts: values of an inner loop leave before there is a verdict on an outer one. A use that
        stands for an inner loop gives such values.
        """
        loops = table.plan.loops
        if len(loops) == edge.common or table.plan.op == "loop" or not self._loops[loops[-1]].drop_last:
            return False
        return self._progress.verdicts.of(loops[-1], at)


class ClientValues:
    """Values for the client. What isn't selected of them is not sent.

    Where it pays, the engine has left such values on the device already, and converted the others there.
    """

    def __init__(self, selected: Mapping[str, Selection]) -> None:
        """`selected`: by output."""
        self._selected = selected
        self._last: dict[int, dict[str, Report]] = defaultdict(dict)
        """Step -> output -> its last value so far, where only that one is sent."""

    def sent(self, emit: m.Emit, value: Any) -> Any:
        """The value as it is sent now; ABSENT if nothing is."""
        selection = self._selected.get(emit.name)
        if selection is None or value is ABSENT:
            return value
        if selection.skips((*emit.passes, *emit.iteration)):
            return ABSENT
        if not selection.last:
            return converted(value, selection.dtype)
        self._last[emit.step][emit.name] = Report(emit, value)
        return ABSENT

    def ended(self, step: int) -> list[Report]:
        """The last values of a step that sends no more."""
        kept = self._last.pop(step, {})
        return [
            Report(report.message, converted(report.value, self._selected[name].dtype)) for name, report in kept.items()
        ]


def converted(value: Any, dtype: str | None) -> Any:
    """The value with its floats, also those in lists, in another dtype."""
    if dtype is None:
        return value
    if isinstance(value, Tensor):
        return value.to(getattr(torch, dtype)) if value.is_floating_point() else value
    if isinstance(value, list):
        return [converted(item, dtype) for item in cast(list[Any], value)]
    return value
