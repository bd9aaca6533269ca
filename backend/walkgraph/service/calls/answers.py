"""Answers to the calls of a run: pieces of outputs, and the end."""

import contextlib
from collections.abc import Mapping
from typing import TypedDict

import structlog

from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank, RunId
from walkgraph.service.runs.runs import LiveRun
from walkgraph.wire import messages as m

_log = structlog.get_logger("walkgraph.runs")


def piece(run: LiveRun, call: m.CallTask, output: str, value: m.Value) -> None:
    _tell(run, m.TaskPiece(**_place(call), output=output, value=value))


def answer(
    run: LiveRun,
    call: m.CallTask,
    outputs: Mapping[str, m.Value] | None = None,
    error: ErrorInfo | None = None,
    *,
    called: str = "",
    queued: float = 0.0,
) -> None:
    _tell(run, m.TaskAnswer(**_place(call), outputs=dict(outputs or {}), error=error, called=called, queued=queued))


def error_of(call: m.CallTask, error: ErrorInfo, message: str) -> ErrorInfo:
    """An error as one of the use that called."""
    return ErrorInfo(
        code=error.code,
        message=message,
        node=call.node,
        use=call.name,
        walk=call.walk,
        iteration=call.iteration,
        rank=call.rank,
        retryable=error.retryable,
    )


class _Place(TypedDict):
    run: RunId
    rank: Rank
    step: int
    use: int
    iteration: tuple[int, ...]


def _place(call: m.CallTask) -> _Place:
    return _Place(run=call.run, rank=call.rank, step=call.step, use=call.use, iteration=call.iteration)


def _tell(run: LiveRun, message: m.TaskPiece | m.TaskAnswer) -> None:
    try:
        run.tell(message)
    except WalkgraphError as fault:
        # The conductor has stopped reading: the run can't go on.
        _log.warning("an answer could not be sent", run=run.id, reason=str(fault))
        with contextlib.suppress(WalkgraphError):
            run.abort()
