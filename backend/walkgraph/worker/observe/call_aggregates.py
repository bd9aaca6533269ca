"""Calls at level `summary`: added up by run, Walk and use until they are reported.

Batches of the same uses of the same runs come again and again. What their rows share is added up once for the batch;
rows are made only when they leave.
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
"""The most rows held at a time."""

_Columns = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Runs, Walks, uses."""


class _BatchAggregate:
    """Batches of the same rows since the last report."""

    __slots__ = ("busy", "calls", "count", "finished", "launched", "nodes", "ready", "started")

    def __init__(self, calls: Sequence[Call]) -> None:
        self.nodes = [call.node for call in calls]
        self.calls: Sequence[Call] = ()
        """Calls of the last batch."""
        self.ready: Sequence[float] = ()
        """Ready time of each row, summed over the batches."""
        self.count = 0
        self.launched = self.started = self.finished = self.busy = 0.0
        """Start of the first batch; sum of all start times; end of the last batch; seconds in all."""

    def clear(self) -> None:
        self.calls, self.count, self.started, self.busy = (), 0, 0.0, 0.0


class CallAggregates:
    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._groups: dict[_Columns, _BatchAggregate] = {}
        self._rows = 0
        self.lost = 0
        """The number of rows dropped because there were too many."""

    def __bool__(self) -> bool:
        return self._rows > 0

    def forwarded(self, event: Forwarded) -> None:
        calls = event.calls
        # Every call is a row, so make nothing but columns here.
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
        """Remove and return everything added up so far: one activity for each use of a run."""
        if not self._rows:
            return ()
        found, self._rows = list[Activity](), 0
        # Batches that did not come again make space for others.
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
    """Merge rows of the same use of a run."""
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
    """How often the loop called its uses, without those it never called; uses of inner loops are counted by name. A
    loop that failed before its first iteration counts as one iteration."""
    tried = max(1, done.iterations)
    counts: dict[str, int] = {}
    for use, given in zip(done.call.spec.uses, done.call.uses, strict=True):
        counts[use.name] = counts.get(use.name, 0) + (tried if given.active is None else sum(given.active[:tried]))
    first = {use.name: use for use in reversed(done.call.spec.uses)}
    return [(first[name], count) for name, count in counts.items() if count]
