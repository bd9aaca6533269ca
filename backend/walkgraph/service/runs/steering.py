"""Passes a client's commands on to a run: pause, step, continue."""

from walkgraph.errors import Conflict
from walkgraph.ids import Rank
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.schemas import watch as schemas
from walkgraph.wire import messages as m
from walkgraph.wire.watching import HeldCall


def steer(run: LiveRun, asked: schemas.SteerRequest) -> None:
    """Sends the command to the run's conductor. Raises Conflict if the run has ended or its state doesn't allow it."""
    if run.finished is not None:
        raise Conflict(f"the run is {run.state}; replay it to step through it")
    call = _held(run, asked.call) if asked.call is not None else None
    if asked.action != "pause" and run.paused is None:
        raise Conflict("the run isn't paused; pause it first")
    if asked.action in ("step", "iteration") and run.paused is not None and not run.paused.held:
        raise Conflict("no call is held yet: the run is still on its way to its next call; try again shortly")
    run.tell(m.Steer(run=run.id, action=asked.action, call=call))


def _held(run: LiveRun, asked: schemas.HeldCall) -> HeldCall:
    fields = asked.model_dump(exclude={"rank", "iteration"})
    call = HeldCall(rank=Rank(asked.rank), iteration=tuple(asked.iteration), **fields)
    if run.paused is None or call not in run.paused.held:
        raise Conflict("that call isn't held any more; choose one of those that are", "/call")
    return call
