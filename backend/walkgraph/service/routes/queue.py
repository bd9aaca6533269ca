"""The queue of a deployment as a caller sees it: its own runs that wait or go on, to be cancelled and put in order."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request

from walkgraph.conductor.queue_order import exchangeable
from walkgraph.errors import Conflict, NotFound
from walkgraph.service.access.callers import Caller, caller_of
from walkgraph.service.deps import AnyRun, Services, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.problems import Unavailable
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import MoveRequest
from walkgraph.wire import messages as m
from walkgraph.wire.answers.runs import Queue, Queued, QueuedState
from walkgraph.wire.questions import Move

router = APIRouter(prefix="/api/v1/queue", tags=["runs"], route_class=StrictRoute)
Deployment = Annotated[str, Query(max_length=64)]


@router.get("")
async def get_queue(services: ServicesDep, request: Request, deployment: Deployment) -> Answer[Queue]:
    """The caller's runs of a deployment that wait or go on, and the places of those that wait."""
    own = _own(services, caller_of(request), deployment)
    try:
        told = await services.deployments.get(deployment).serving.questions.queue()
    except Unavailable:
        # It isn't serving: what is left of its runs goes on, and nothing waits.
        told = m.QueueTold(number=0, runs=())
    return _shown(deployment, own, told)


@router.post("/{run}/move")
async def move(services: ServicesDep, request: Request, run: AnyRun, body: MoveRequest) -> Answer[Queue]:
    """Exchange the places of a waiting run and of the caller's next waiting run before it (`up`) or behind it (`down`).
    Runs of other callers keep their places. Refused as a conflict if there is no such run of the same priority, or one
    of the same session."""
    caller, live = caller_of(request), services.runs.get(run)
    if live is None or not _belongs(live, caller):
        raise NotFound(f"you have no run `{run}` that waits")
    own = _own(services, caller, live.deployment)
    wanted = Move(run=live.part, among=tuple(one.part for one in own), up=body.direction == "up")
    deployment = services.deployments.get(live.deployment)
    told = await deployment.serving.questions.queue(wanted)
    if not told.moved:
        raise Conflict(_why(live, told, body.direction))
    deployment.announce()
    return _shown(live.deployment, own, told)


@router.delete("", status_code=202)
async def cancel_all(
    services: ServicesDep, request: Request, deployment: Deployment
) -> dict[Literal["cancelling"], int]:
    """Cancel the caller's runs of a deployment that wait or go on. Returns how many there are."""
    services.deployments.get(deployment)
    own = _own(services, caller_of(request), deployment)
    # From the back, so that none begins because one before it has ended.
    for run in sorted(own, key=lambda run: run.created_at, reverse=True):
        run.abort()
    return {"cancelling": len(own)}


def _belongs(run: LiveRun, caller: Caller) -> bool:
    """True for a run that the caller itself has sent; those that runs call are ended with them."""
    return not run.depth and (run.caller.key if run.caller else None) == caller.key


def _own(services: Services, caller: Caller, deployment: str) -> list[LiveRun]:
    return [run for run in services.runs.unfinished if run.deployment == deployment and _belongs(run, caller)]


def _shown(deployment: str, own: list[LiveRun], told: m.QueueTold) -> Queue:
    places = {one.run: place for place, one in enumerate(told.runs)}
    pairs = exchangeable(told.runs, {run.part for run in own})
    before, behind = {one for one, _ in pairs}, {other for _, other in pairs}
    shown = [
        Queued(
            run=run.id,
            task=run.task,
            created_at=run.created_at,
            state=_state(run, told, places.get(run.part)),
            place=places[run.part] + 1 if run.part in places else None,
            said=run.said,
            up=run.part in behind,
            down=run.part in before,
        )
        for run in own
    ]
    shown.sort(key=lambda one: (one["place"] or 0, one["created_at"]))
    return Queue(deployment=deployment, waiting=len(told.runs), runs=shown)


def _state(run: LiveRun, told: m.QueueTold, place: int | None) -> QueuedState:
    if place is not None:
        return "suspended" if told.runs[place].suspended else "waiting"
    return "paused" if run.paused is not None else "running"


def _why(run: LiveRun, told: m.QueueTold, direction: str) -> str:
    if not any(one.run == run.part and not one.suspended for one in told.runs):
        return f"the run `{run.id}` no longer waits"
    side = "before" if direction == "up" else "behind"
    return (
        f"no waiting run of yours {side} `{run.id}` can exchange places with it: it must have the same priority, and "
        "not be of the same session"
    )
