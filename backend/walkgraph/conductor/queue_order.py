"""Decides which two runs exchange their places in the queue when an owner moves one of them. Pure.

Only places of that owner's runs change hands: the place of every other run stays, and so does the order between
priorities, between the depths of calls, and among the runs of a session.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

from walkgraph.ids import RunId
from walkgraph.wire.questions import Move, QueuedRun


def exchanged(queue: Sequence[QueuedRun], move: Move) -> tuple[RunId, RunId] | None:
    """The run to move, and the next waiting run of the same owner in that direction; None if there is none that it may
    exchange places with. `queue`: in the order of admission."""
    for before, behind in exchangeable(queue, {move.run, *move.among}):
        if move.run == (behind if move.up else before):
            return before, behind
    return None


def exchangeable(queue: Sequence[QueuedRun], own: Collection[RunId]) -> list[tuple[RunId, RunId]]:
    """The pairs of an owner's runs that may exchange their places."""
    waiting = [at for at, one in enumerate(queue) if one.run in own and not one.suspended]
    return [(queue[i].run, queue[j].run) for i, j in pairwise(waiting) if _alike(queue[i : j + 1])]


def _alike(stretch: Sequence[QueuedRun]) -> bool:
    """True if nothing but their arrival decides which of the first and the last run is admitted first."""
    one, other = stretch[0], stretch[-1]
    sessions = [run.session for run in stretch if run.session is not None and not run.suspended]
    once = all(sessions.count(end.session) == 1 for end in (one, other) if end.session is not None)
    return (one.priority, one.depth) == (other.priority, other.depth) and once
