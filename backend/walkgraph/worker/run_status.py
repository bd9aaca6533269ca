"""The status of a run on one rank, to find out why it makes no progress. Nothing here changes the run."""

from collections.abc import Iterator
from itertools import islice

from walkgraph.placement.tables import EdgePlan, Plan
from walkgraph.telemetry.places import end_name
from walkgraph.wire.standing import Standing, Wait
from walkgraph.worker.tables.walk_tables import UseTable
from walkgraph.worker.walk.host import Vector
from walkgraph.worker.walk.local_run import LocalRun
from walkgraph.worker.walk.walker import Walker

MOST_WAITS = 16
"""The most waits that are reported for a run."""


def standing(plan: Plan, run: LocalRun) -> Standing:
    waits = () if run.busy else tuple(islice(_waits(plan, run), MOST_WAITS))
    return Standing(run=run.run, busy=run.busy, sent=run.sent, received=run.received, waits=waits)


def _standing(outer: Walker) -> Iterator[tuple[Walker, UseTable, Vector, str]]:
    """Every use that has not ended, also in items of maps. A map that runs has no wait of its own."""
    for walker in outer.everywhere():
        for use, at, state in walker.progress.standing():
            if use.map is None or state != "running":
                yield walker, use, at, state


def _waits(plan: Plan, run: LocalRun) -> Iterator[Wait]:
    streams = {stream.index: f"@stream.{stream.name}" for stream in plan.streams}
    for outer in run.walkers:
        walk = outer.table.plan
        uses = {use.index: use.name for use in walk.uses}
        for walker, table, at, state in _standing(outer):
            for port, source in _lacks(run, walker, table, at, state):
                name = source if isinstance(source, str) else end_name(uses, source.source, streams)
                yield Wait(walk=walk.name, use=table.plan.name, iteration=at, port=port, source=name)


def _lacks(
    run: LocalRun, walker: Walker, table: UseTable, at: Vector, state: str
) -> Iterator[tuple[str, EdgePlan | str]]:
    """Yield what a use of an idle run waits for: its port and the edge, or an empty port and a description."""
    walk = walker.table.plan
    if state == "moving":
        cursor = walker.progress.cursors.get(table.plan.index)
        if cursor is None:
            return
        choice = walker.progress.verdicts.undecided(table, cursor.prefix) if cursor.entering else None
        loop = walk.loops[table.plan.loops[len(cursor.prefix) - (not cursor.entering)]]
        if choice is not None:
            yield "", walk.choices[choice].by
        elif loop.until is not None:
            yield "", f"{walk.uses[loop.until[0]].name}.{loop.until[1]}"
        return
    if state == "waiting" and (choice := walker.progress.verdicts.undecided(table, at)) is not None:
        yield "", walk.choices[choice].by
        return
    if table.map is not None:
        yield "", walk.uses[table.map.plan.head].name.partition(":")[2]
        return
    if state == "running" or not run.credit(table.paced):
        yield "", "its receiver" if table.plan.op == "export" else "room in its streams"
    for port, edges in table.inputs if state == "waiting" else ():
        edge = next((edge for edge in edges if not (edge.carried and at[edge.common - 1] == 0)), None)
        if edge is not None and _missing(walker, edge, at):
            yield port, edge


def _missing(walker: Walker, edge: EdgePlan, at: Vector) -> bool:
    """True if a walker would not find the value. Only the reader of a stream knows whether it has a chunk, so that
    value may be missing."""
    if edge.source.kind in ("loop", "stream"):
        return edge.source.kind == "stream"
    key = (*at[: edge.common - 1], at[edge.common - 1] - 1) if edge.carried else at[: edge.common]
    return not walker.mailbox.store(edge).has(edge.index, key)
