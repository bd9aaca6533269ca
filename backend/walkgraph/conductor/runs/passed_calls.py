"""Calls of tasks: passes them from the ranks to the service, and the answers back.

A run that waits for one computes nothing for it. So it holds no place among the running ones against the runs that it
waits for, and any run that lacks pages may have it suspended (`admission`). It is resumed when none of its calls is
under way.
"""

from collections.abc import Callable

from msgspec.structs import replace

from walkgraph.conductor.events import Command, ToRank, ToService
from walkgraph.conductor.runs.records import RunRecord, RunTable
from walkgraph.wire import messages as m
from walkgraph.wire.calling import TaskCall


class PassedCalls:
    def __init__(
        self, table: RunTable, deadline: Callable[[RunRecord], float], heard: Callable[[RunRecord, float], None]
    ) -> None:
        """`deadline`: of a run. `heard` notes that a run goes on."""
        self._table, self._deadline, self._heard = table, deadline, heard

    def ask(self, call: m.CallTask, now: float) -> list[Command]:
        run = self._table.admitted(call.run)
        if run is None or call.rank not in run.holding:
            return []
        run.calls.add(_place(call))
        run.called = True
        left = self._deadline(run) - now
        return [ToService(replace(call, deadline=max(0.0, left) if left < float("inf") else None))]

    def piece(self, piece: m.TaskPiece) -> list[Command]:
        run = self._table.admitted(piece.run)
        return [ToRank(piece.rank, piece)] if run is not None and _place(piece) in run.calls else []

    def answer(self, answer: m.TaskAnswer, now: float) -> list[Command]:
        run = self._table.admitted(answer.run)
        if run is None or _place(answer) not in run.calls:
            return []
        run.calls.discard(_place(answer))
        self._heard(run, now)
        return [ToRank(answer.rank, answer)]


def _place(call: TaskCall) -> tuple[int, int, int, tuple[int, ...]]:
    return call.rank, call.step, call.use, call.iteration
