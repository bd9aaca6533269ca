"""Calls as level `summary` tells them: added up by run, Walk and use until they are told.

Batches of the same uses of the same runs come again and again. What their rows have alike is added up once for all of
them, and the rows are made when they leave.
"""

from collections.abc import Sequence
from operator import add

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import LoopUseSpec
from walkgraph.ids import Rank
from walkgraph.telemetry.events import Activity

MOST = 4096
"""Rows that are held at a time."""

_Columns = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Runs, Walks, uses."""


class _BatchAggregate:
    """Batches of the same rows since something was told last."""

    __slots__ = ("busy", "calls", "count", "finished", "launched", "nodes", "ready", "started")

    def __init__(self, calls: Sequence[Call]) -> None:
        self.nodes = [call.node for call in calls]
        self.calls: Sequence[Call] = ()
        """Of the last batch."""
        self.ready: Sequence[float] = ()
        """Of each row, summed over the batches."""
        self.count = 0
        self.launched = self.started = self.finished = self.busy = 0.0
        """When the first one started; these times of all, summed; when the last one ended; seconds."""

    def clear(self) -> None:
        self.calls, self.count, self.started, self.busy = (), 0, 0.0, 0.0


class CallAggregates:
    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._groups: dict[_Columns, _BatchAggregate] = {}
        self._rows = 0
        self.lost = 0
        """Rows that found no room."""

    def __bool__(self) -> bool:
        return self._rows > 0

    def forwarded(self, event: Forwarded) -> None:
        calls = event.calls
        # A row for each call: nothing but columns is made of them here.
        key = tuple([c.run for c in calls]), tuple([c.walk for c in calls]), tuple([c.name for c in calls])
        one = self._groups.get(key)
        if one is None or not one.count:
            if not self._fits(len(calls)):
                return
            if one is None:
                one = self._groups[key] = _BatchAggregate(calls)
            one.launched, one.ready = event.timing.started, event.ready
        else:
            one.ready = list(map(add, one.ready, event.ready))
        _, _, started, one.finished = event.timing
        one.calls = calls
        one.count += 1
        one.started += started
        one.busy += one.finished - started

    def take(self) -> Sequence[Activity]:
        """All that there is, once: one for each use of a run."""
        if not self._rows:
            return ()
        found, self._rows = list[Activity](), 0
        # Those that did not come again make room.
        self._groups = {key: one for key, one in self._groups.items() if one.count}
        for columns, one in self._groups.items():
            found += self._told(columns, one)
            one.clear()
        names = {(one.run, one.walk, one.use) for one in found}
        return found if len(names) == len(found) else merged(found)

    def _told(self, columns: _Columns, one: _BatchAggregate) -> list[Activity]:
        rank, count, busy, batch, started = self._rank, one.count, one.busy, len(one.calls), one.started
        launched, finished = one.launched, one.finished
        return [
            Activity(
                run=run,  # pyright: ignore[reportArgumentType]: a call of `RunId` for each row is felt here
                rank=rank,
                node=node,
                use=use,
                walk=walk,
                iteration=call.iteration,
                calls=count,
                busy=busy,
                queued=started - ready if started > ready else 0.0,
                launched=launched,
                finished=finished,
                batch=batch,
            )
            for run, walk, use, node, call, ready in zip(*columns, one.nodes, one.calls, one.ready, strict=True)
        ]

    def _fits(self, rows: int) -> bool:
        if self._rows + rows > MOST:
            self.lost += rows
            return False
        self._rows += rows
        return True


def merged(rows: Sequence[Activity]) -> list[Activity]:
    """One for each use of a run, where there are several."""
    found: dict[tuple[str, str, str], Activity] = {}
    for row in rows:
        key = row.run, row.walk, row.use
        one = found.get(key)
        if one is None:
            found[key] = row
            continue
        latest = row if row.finished >= one.finished else one
        found[key] = Activity(
            run=row.run,
            rank=row.rank,
            node=row.node,
            use=row.use,
            walk=row.walk,
            iteration=latest.iteration,
            calls=one.calls + row.calls,
            busy=one.busy + row.busy,
            queued=one.queued + row.queued,
            launched=min(one.launched, row.launched),
            finished=latest.finished,
            batch=max(one.batch, row.batch),
        )
    return list(found.values())


def calls_of(done: LoopDone) -> Sequence[tuple[LoopUseSpec, int]]:
    """How often the loop has called its uses, those that it has, those of loops inside by their name; as if once where
    it failed before its first iteration."""
    tried = max(1, done.iterations)
    counts: dict[str, int] = {}
    for use, given in zip(done.call.spec.uses, done.call.uses, strict=True):
        counts[use.name] = counts.get(use.name, 0) + (tried if given.active is None else sum(given.active[:tried]))
    first = {use.name: use for use in reversed(done.call.spec.uses)}
    return [(first[name], count) for name, count in counts.items() if count]
